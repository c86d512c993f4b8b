"""What the stages of one step send each other.

Every parcel is addressed from one stage to another; the thread of the receiver's device waits for
it. If any thread fails, all are woken and leave the step.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple


class Stopped(BaseException):
    """Tells a thread that the step has failed elsewhere; no failure of its own, hence the base."""


class Parcel(NamedTuple):
    """An address: "inputs" or "gradients", from which stage to which, of which micro-batch."""

    what: str
    sender: int
    receiver: int
    micro_batch: int


class Mailboxes:
    """The parcels that are under way in one step, or that a thread has failed."""

    def __init__(self, placement: Sequence[int]) -> None:
        """Starts with nothing under way.

        Args:
          placement: for each stage the number of its device.
        """
        self._lock = threading.Lock()
        self._placement = placement
        # Each device's thread waits at its own door.
        self._arrivals = [threading.Condition(self._lock) for _ in range(max(placement) + 1)]
        self._values: dict[Parcel, Any] = {}
        self._failure: BaseException | None = None

    def put(self, parcel: Parcel, value: Any) -> None:
        """Delivers what an action of a stage waits for.

        Raises:
          Stopped: the step has failed.
        """
        with self._lock:
            if self._failure is not None:
                raise Stopped
            self._values[parcel] = value
            self._arrivals[self._placement[parcel.receiver]].notify()

    def take(self, parcel: Parcel) -> Any:
        """Waits for it and forgets it, so that its memory is free once the action is done.

        Raises:
          Stopped: the step has failed.
        """
        with self._lock:
            while self._failure is None and parcel not in self._values:
                self._arrivals[self._placement[parcel.receiver]].wait()
            if self._failure is not None:
                raise Stopped
            return self._values.pop(parcel)

    def fail(self, failure: BaseException) -> None:
        """Keeps the first failure of the step and wakes every thread that waits."""
        with self._lock:
            if self._failure is None:
                self._failure = failure
                self._values.clear()
            for arrival in self._arrivals:
                arrival.notify()

    def take_failure(self) -> BaseException | None:
        """The failure, if there was one; asked once, when all threads have ended."""
        failure, self._failure = self._failure, None
        return failure
