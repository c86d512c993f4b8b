"""Batches by a budget of tokens, from windows of the training stream.

    stream   0 ........ W-1 | W ....... 2W-1 | 2W ...      windows of W consecutive positions
    window   sorted by length, cut into batches that fit the budget, their order shuffled
    cursor   (window, batches of it that are done)

Sentences of like lengths share a batch, so little of it is padding. The budget counts what the
device computes: rows x (padded source length + padded target length), each side padded to its
longest row, rounded up to a multiple; or all of them to one of a few widths, see static_shapes.py.
As a window is made from its number and the seed alone, going on from any cursor costs one window.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lingpipe.errors import UserError
from lingpipe.input.batch import Batch, Cursor
from lingpipe.input.permutation import Int64s, key, shuffled
from lingpipe.input.static_shapes import filled, ladder, plan_buckets, rows_that_fit


class BatchingError(UserError, ValueError):
    """Limits that no example can keep."""


class Window(Protocol):
    """Some examples, ready to be put into batches.

    Attributes:
        lengths: int64 [n, sides], tokens of each example on each side.
        positions: int64 [n], what `Batch.positions` says of each example.
    """

    @property
    def lengths(self) -> Int64s: ...
    @property
    def positions(self) -> Int64s: ...

    def collate(self, rows: Int64s, length_multiple: int) -> dict[str, npt.NDArray[Any]]:
        """The batch of some rows, each side padded to a multiple of `length_multiple`.

        Dimension 0 of its arrays counts rows and dimension 1, if there is one, tokens; where a row
        is all zeros there is no example.
        """


@dataclasses.dataclass(frozen=True)
class Budget:
    """What a batch may hold.

    Attributes:
        tokens_per_batch: most tokens of all sides together, padding counted.
        max_length: most tokens of an example on one side; None for no limit.
        length_multiple: padded lengths are multiples of this.
        static_shapes: whether batches have few shapes, rows of zeros among them; see
            static_shapes.py.
        rows_multiple: with static shapes, rows of a batch are a multiple of this where they can be.

    Raises:
        BatchingError: an example of max_length would not fit into a batch.
    """

    tokens_per_batch: int
    max_length: int | None = None
    length_multiple: int = 1
    static_shapes: bool = False
    rows_multiple: int = 1

    def __post_init__(self) -> None:
        """Checks the limits against each other."""
        for name in ("tokens_per_batch", "max_length", "length_multiple", "rows_multiple"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BatchingError(f"{name} ({value}) must be at least 1.")
        if self.max_length is not None:
            longest = 2 * int(self.padded(np.array([self.max_length]))[0])
            if longest > self.tokens_per_batch:
                raise BatchingError(
                    f"tokens_per_batch ({self.tokens_per_batch}) must hold a source and a target "
                    f"of max_length ({self.max_length}), {longest} tokens padded to multiples of "
                    f"{self.length_multiple}; raise it or lower max_length."
                )

    def padded(self, lengths: Int64s) -> Int64s:
        """Lengths rounded up to multiples of `length_multiple`."""
        return -(-lengths // self.length_multiple) * self.length_multiple

    def widths(self, lengths: Int64s) -> Int64s:
        """With static shapes, the bucket of each example: int64 [n, sides] -> int64 [n]."""
        longest = lengths.max(axis=1)
        widths = np.array(ladder(int(longest.max()), self.length_multiple, self.max_length))
        return widths[np.searchsorted(widths, longest)]

    def rows(self, width: int, sides: int) -> int:
        """With static shapes, the rows of a batch of a bucket."""
        return rows_that_fit(width, sides, self.tokens_per_batch, self.rows_multiple)

    def padded_shape(self, lengths: Int64s) -> tuple[int, list[int]]:
        """Rows, and width of each side, of the batch of some examples: int64 [n, sides]."""
        num_rows, sides = lengths.shape
        if not self.static_shapes:
            return num_rows, self.padded(lengths.max(axis=0)).tolist()
        width = int(self.widths(lengths).max())
        return max(num_rows, self.rows(width, sides)), [width] * sides

    def padded_tokens(self, lengths: Int64s) -> int:
        """Tokens of that batch, padding counted."""
        num_rows, widths = self.padded_shape(lengths)
        return num_rows * sum(widths)


def plan_batches(lengths: Int64s, budget: Budget) -> list[Int64s]:
    """Cuts examples into batches that keep the budget.

    Args:
        lengths: int64 [n, sides].
        budget: its `max_length` leaves nothing out. An example that alone exceeds
            `tokens_per_batch` makes a batch of its own.

    Returns:
        Batches of row numbers, short ones first; every row is in exactly one.
    """
    if not len(lengths):
        return []
    if budget.static_shapes:
        sides = lengths.shape[1]
        order = np.lexsort([*lengths.T[::-1], lengths.max(axis=1)])
        return plan_buckets(budget.widths(lengths), order, lambda w: budget.rows(w, sides))
    padded = budget.padded(lengths)
    # By the padded length that costs most, then by the other sides; ties stay in stream order.
    order = np.lexsort([*lengths.T[::-1], padded.max(axis=1)])
    cuts = [0]
    longest = [0] * lengths.shape[1]
    for place, row in enumerate(padded[order].tolist()):
        grown = [max(old, new) for old, new in zip(longest, row, strict=True)]
        if (place + 1 - cuts[-1]) * sum(grown) > budget.tokens_per_batch and place > cuts[-1]:
            cuts.append(place)
            grown = row
        longest = grown
    return np.split(order, cuts[1:])


def short_enough(lengths: Int64s, budget: Budget) -> npt.NDArray[np.bool_]:
    """Which examples training keeps: those of at most `max_length` on every side, bool [n].

    Args:
        lengths: int64 [n, sides], n at least 1.
        budget: its `max_length` counts.

    Raises:
        BatchingError: none of them is.
    """
    longest = lengths.max(axis=1)
    fits = longest <= (np.inf if budget.max_length is None else budget.max_length)
    if not fits.any():
        raise BatchingError(
            f"None of {len(lengths)} examples in a row has at most max_length "
            f"({budget.max_length}) tokens; the shortest has {longest.min()}. Raise max_length."
        )
    return fits


def training_batches(
    load: Callable[[int], Window],
    cursor: Cursor,
    *,
    budget: Budget,
    seed: int,
    report_dropped: Callable[[Int64s, Int64s], None],
) -> Iterator[Batch]:
    """The endless batches from a cursor on.

    Args:
        load: makes the window of a number; must depend on the number alone.
        cursor: where to begin.
        budget: what a batch may hold; longer examples than its `max_length` are dropped.
        seed: selects the order of the batches in a window.
        report_dropped: called once a window that has too long examples, with their positions,
            int64 [n], and lengths, int64 [n, sides].

    Raises:
        BatchingError: a whole window has no example that is short enough, or the cursor stands
            behind the last batch of its window.
    """
    while True:
        window = load(cursor.window)
        lengths = window.lengths
        fits = short_enough(lengths, budget)
        if not fits.all():
            report_dropped(window.positions[~fits], lengths[~fits])
        kept = np.flatnonzero(fits)
        plan = [kept[rows] for rows in plan_batches(lengths[kept], budget)]
        if cursor.batch >= len(plan):
            raise BatchingError(
                f"{cursor} stands behind the last of {len(plan)} batches. The corpus, the "
                "vocabulary or the params of the input changed since it was saved."
            )
        order = shuffled(len(plan), key(seed, "batches", cursor.window))
        dropped = int(len(lengths) - len(kept))
        yield from _batches_of(window, [plan[i] for i in order], cursor, budget, dropped)
        cursor = Cursor(cursor.window + 1)


def evaluation_batches(load: Callable[[int], Window | None], budget: Budget) -> Iterator[Batch]:
    """The batches of a text, each example exactly once, the longest too, in a fixed order.

    Args:
        load: makes the window of a number; None after the last.
        budget: what a batch may hold; its `max_length` plays no part.
    """
    cursor = Cursor()
    while (window := load(cursor.window)) is not None:
        yield from _batches_of(window, plan_batches(window.lengths, budget), cursor, budget, 0)
        cursor = Cursor(cursor.window + 1)


def _batches_of(
    window: Window, plan: Sequence[Int64s], cursor: Cursor, budget: Budget, dropped: int
) -> Iterator[Batch]:
    for number in range(cursor.batch, len(plan)):
        rows = plan[number]
        last = number + 1 == len(plan)
        lengths = window.lengths[rows]
        arrays = window.collate(rows, budget.length_multiple)
        if budget.static_shapes:
            num_rows, widths = budget.padded_shape(lengths)
            arrays = filled(arrays, num_rows, widths[0])
        yield Batch(
            arrays=arrays,
            positions=window.positions[rows],
            cursor=Cursor(cursor.window, number),
            next_cursor=Cursor(cursor.window + last, 0 if last else number + 1),
            tokens=int(lengths.sum()),
            padded_tokens=budget.padded_tokens(lengths),
            dropped=dropped if number == 0 else 0,
        )
