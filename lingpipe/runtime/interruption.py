"""SIGTERM and SIGINT as a request: finish the step at hand, save, and end."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interruption:
    """While its `with` block runs, the first signal is noted and the second one acts at once.

    Attributes:
      name: name of the signal that came, such as "SIGTERM"; empty as long as none did.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        """No signal has come."""
        self.name = ""
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interruption:
        """Takes over the signals; only the main thread of a process can."""
        if threading.current_thread() is threading.main_thread():
            self._previous = {each: signal.signal(each, self._note) for each in self._SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Gives the signals back."""
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        self._restore()

    def _restore(self) -> None:
        for each, handler in self._previous.items():
            signal.signal(each, handler)  # type: ignore[arg-type]
        self._previous = {}
