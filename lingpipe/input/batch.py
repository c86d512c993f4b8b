"""What an input hands out: a batch, and the cursor that says where in the stream it stands."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lingpipe.errors import UserError


class CursorError(UserError, ValueError):
    """A cursor that stands nowhere."""


@dataclasses.dataclass(frozen=True, order=True)
class Cursor:
    """A place in the training stream; the batches from there on depend on it and the seed alone.

    Attributes:
        window: which window of consecutive examples.
        batch: how many batches of this window come before.

    Raises:
        CursorError: one of them is not an integer of at least 0.
    """

    window: int = 0
    batch: int = 0

    def __post_init__(self) -> None:
        """Checks both."""
        for value in (self.window, self.batch):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise CursorError(f"{self} is no place in a stream; both must be integers >= 0.")

    def to_record(self) -> dict[str, int]:
        """As data for JSON; `from_record` reads it back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Cursor":
        """The cursor of a record.

        Raises:
            CursorError: it was not written by `to_record`.
        """
        if set(record) != {"window", "batch"}:
            raise CursorError(f"{dict(record)} is no cursor: it must have window and batch.")
        return cls(**record)


@dataclasses.dataclass(frozen=True)
class Batch:
    """Examples that are trained on or evaluated together.

    Attributes:
        arrays: what the model sees, by name; the first dimension is B throughout, or with static
            shapes more: then the rows behind the examples are zeros.
        positions: int64 [B], where in the stream (or, in evaluation, in its text) each stands.
        cursor: where this batch stands.
        next_cursor: where the next one stands; a run that saves it goes on from there.
        tokens: real tokens, of sources and targets.
        padded_tokens: the same with padding counted.
        dropped: examples left out of this window for their length; counted by its first batch.
    """

    arrays: Mapping[str, npt.NDArray[Any]]
    positions: npt.NDArray[np.int64]
    cursor: Cursor
    next_cursor: Cursor
    tokens: int
    padded_tokens: int
    dropped: int = 0

    @property
    def size(self) -> int:
        """How many examples: B."""
        return len(self.positions)
