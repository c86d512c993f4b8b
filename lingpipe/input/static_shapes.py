"""Batches in few shapes: what XLA, which compiles a model anew for each, can live with.

    width    8    16   24   32   48   72   104  152  224  256     the ladder, in multiples of 8
    rows     512  256  168  128  84   56   36   24   16   16      of a budget of 8,192 tokens

An example belongs to the narrowest width that holds all of its sides, its bucket. A batch holds one
bucket's examples, has as many rows as the budget gives that width, and every side of it is as wide:
so there are no more shapes than buckets. Where examples run out, rows of zeros fill the batch. They
have no weight, so that loss, gradient and counts are those of the examples.

Everything here is a function of its arguments.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lingpipe.input.permutation import Int64s

# From one width to the next, before rounding. A smaller step leaves less padding and compiles more.
_STEP = 1.5


def ladder(reach: int, multiple: int, max_length: int | None = None) -> list[int]:
    """Widths, narrow ones first, each about a half more than the one before.

    Args:
        reach: the last width is the first one that holds so many tokens.
        multiple: all widths are multiples of it.
        max_length: rounded up to a multiple, a width of its own; what is longer, such as a long
            line of an evaluation, finds wider ones behind it.
    """
    longest = -(-(max_length or 0) // multiple) * multiple
    widths = [multiple]
    while widths[-1] < reach:
        last = widths[-1]
        wider = max(last + multiple, int(last * _STEP) // multiple * multiple)
        widths.append(longest if last < longest < wider else wider)
    return widths


def rows_that_fit(width: int, sides: int, tokens: int, multiple: int) -> int:
    """Rows of a batch whose sides are all `width` wide: as many as `tokens` hold, at least one.

    Args:
        width: tokens of a row on each side.
        sides: number of sides.
        tokens: most tokens of a batch.
        multiple: the number is rounded down to a multiple of it, unless that leaves none.
    """
    rows = max(1, tokens // (width * sides))
    return rows // multiple * multiple or rows


def plan_buckets(widths: Int64s, order: Int64s, rows: Callable[[int], int]) -> list[Int64s]:
    """Cuts examples into batches of one bucket each.

    What is left over of a bucket takes free rows of the next one's batches, if all of it finds
    room there: that saves a batch, and every batch costs the same.

    Args:
        widths: int64 [n], the bucket of each example.
        order: int64 [n], all numbers of examples, in the order in which to take them.
        rows: width -> rows of a batch.

    Returns:
        Batches of numbers of examples, narrow buckets first.
    """
    buckets = [(int(width), order[widths[order] == width]) for width in np.unique(widths)]
    plan: list[Int64s] = []
    left = order[:0]
    for width, own in buckets:
        size = rows(width)
        if len(left) > -len(own) % size and len(left):
            plan.append(left)
            left = left[:0]
        numbers = np.concatenate([left, own])
        full = len(numbers) // size * size
        plan += np.split(numbers[:full], range(size, full, size)) if full else []
        left = numbers[full:]
    return [*plan, left] if len(left) else plan


def filled(
    arrays: Mapping[str, npt.NDArray[Any]], num_rows: int, width: int
) -> dict[str, npt.NDArray[Any]]:
    """The arrays with zeros behind their rows and columns.

    Args:
        arrays: name -> array of at most `num_rows` rows; if it has columns, at most `width`.
        num_rows: rows of each result.
        width: columns of each result that has any.
    """
    return {name: _filled(array, (num_rows, width)) for name, array in arrays.items()}


def _filled(array: npt.NDArray[Any], shape: Sequence[int]) -> npt.NDArray[Any]:
    sizes = [*shape[: array.ndim], *array.shape[2:]]
    result = np.zeros(sizes, array.dtype)
    result[tuple(slice(size) for size in array.shape)] = array
    return result
