"""Cuts the list of cells into stages so that the slowest stage is as fast as it can be.

A stage is a contiguous run of cells; its cost is the sum of theirs. Dynamic programming finds the
smallest possible bottleneck exactly: with P the prefix sums of the costs,

    best[k][i] = min over j < i of max(best[k-1][j], P[i] - P[j])

best[k-1][j] grows with j and P[i] - P[j] shrinks, so the best j moves only forward as i grows, and
each k takes one sweep: O(K * cells) in all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from lingpipe.errors import UserError


class PartitionError(UserError, ValueError):
    """Cells that cannot be cut as asked."""


def balanced_partition(costs: Sequence[float], num_stages: int) -> list[int]:
    """Number of cells in each stage, in order, with the smallest possible largest stage cost.

    Args:
      costs: cost of each cell, zero or more, in any unit.
      num_stages: number of stages; none of them is left empty.

    Raises:
      PartitionError: more stages than cells, no stage, or a cost that is negative or no number.
    """
    count = len(costs)
    if num_stages < 1:
        raise PartitionError(f"num_stages ({num_stages}) must be at least 1.")
    if num_stages > count:
        raise PartitionError(
            f"num_stages ({num_stages}) is more than the number of cells ({count}), so a stage "
            f"would be empty; use at most {count} stages or cut the model into more cells."
        )
    wrong = [cost for cost in costs if not 0 <= cost < math.inf]
    if wrong:
        raise PartitionError(f"Costs must be finite numbers of at least 0; got {wrong}.")
    prefix = list(itertools.accumulate(costs, initial=0.0))
    best = list(prefix)  # best[i]: bottleneck of the first i cells on one stage.
    cuts: list[list[int]] = []
    for stages in range(2, num_stages + 1):
        best, cut = _add_stage(prefix, best, stages)
        cuts.append(cut)
    ends = [count]
    for cut in reversed(cuts):
        ends.append(cut[ends[-1]])
    ends = [0, *reversed(ends)]
    return [end - start for start, end in itertools.pairwise(ends)]


def _add_stage(
    prefix: list[float], best: list[float], stages: int
) -> tuple[list[float], list[int]]:
    """Bottlenecks with one stage more, and where that stage starts, for every number of cells."""
    count = len(prefix) - 1
    grown = [float("inf")] * (count + 1)
    cut = [0] * (count + 1)
    start = stages - 1  # The earlier stages need a cell each.
    for end in range(stages, count + 1):

        def bottleneck(j: int, end: int = end) -> float:
            return max(best[j], prefix[end] - prefix[j])

        while start + 1 < end and bottleneck(start + 1) <= bottleneck(start):
            start += 1
        grown[end], cut[end] = bottleneck(start), start
    return grown, cut


def check_partition(partition: Sequence[int], num_cells: int, num_stages: int) -> list[int]:
    """The explicit partition, when it is one.

    Raises:
      PartitionError: the sizes do not add up, a stage is empty or their number is wrong.
    """
    if len(partition) != num_stages:
        raise PartitionError(
            f"partition {list(partition)} has {len(partition)} stages but num_stages is "
            f"{num_stages}; give one number of cells for each stage."
        )
    if min(partition) < 1:
        raise PartitionError(f"partition {list(partition)} has an empty stage; each needs a cell.")
    if sum(partition) != num_cells:
        raise PartitionError(
            f"partition {list(partition)} covers {sum(partition)} cells but the model has "
            f"{num_cells}; the numbers must add up to {num_cells}."
        )
    return list(partition)
