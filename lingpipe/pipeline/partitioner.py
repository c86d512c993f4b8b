"""Cuts the list of cells into stages so that the slowest stage is as fast as it can be.

A stage is a contiguous run of cells. It costs the sum of theirs and, if asked for, what it takes to
send its outputs to the next one. Dynamic programming finds the smallest possible bottleneck: with P
the prefix sums of the costs and s the cost of sending,

    best[k][i] = min over j < i of max(best[k-1][j], P[i] + s[i] - P[j])

Of all j only those matter for which no later one has so small a best[k-1]: a later start leaves the
last stage less to do and less to hold. Along these, best[k-1] rises and P[i] + s[i] - P[j] falls,
and where they cross is found by bisection: O(K * cells * log(cells)) in all. A memory limit allows
no start before some j, and that j moves only forward, also where the greatest of some number over
the stage's cells counts beside a sum: a later start has no greater one.

Costs are taken as the exact binary fractions that they are, scaled to integers, so that no sum is
rounded and equal cuts are seen to be equal. Of these the one with the latest cut wins, and so on
forward: surplus cells go to the first stages.

Where a device holds v stages (the interleaved schedule) its load is the sum of every D-th stage's.
Balancing these sums exactly would couple all cuts; the cut here holds each sum to v times the
smallest possible largest stage. A limit of a device's memory becomes a v-th of it for each stage.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
import math
from collections.abc import Sequence

from lingpipe.errors import UserError


class PartitionError(UserError, ValueError):
    """Cells that cannot be cut as asked."""


@dataclasses.dataclass(frozen=True)
class MemoryLimits:
    """What cells take and stages have, in bytes; what a cell takes may differ from stage to stage.

    A stage takes the sum of what its cells hold and the greatest of what they need while they work,
    since they work one after another.

    Attributes:
      held: for each stage the bytes that each cell would hold on it: weights, gradients, slots,
        activations.
      working: for each stage the bytes that each cell would need on top while it works.
      stages: bytes that each stage may take.
    """

    held: Sequence[Sequence[int]]
    working: Sequence[Sequence[int]]
    stages: Sequence[int]

    def taken(self, stage: int, cells: slice) -> int:
        """Bytes that a stage of those cells takes."""
        return sum(self.held[stage][cells]) + max(self.working[stage][cells])


def balanced_partition(
    costs: Sequence[float],
    num_stages: int,
    *,
    sending_costs: Sequence[float] | None = None,
    memory: MemoryLimits | None = None,
) -> list[int]:
    """Number of cells in each stage, in order, with the smallest possible largest stage cost.

    Args:
      costs: cost of each cell, zero or more, in any unit.
      num_stages: number of stages; none of them is left empty.
      sending_costs: cost, in the same unit, of sending on what each cell but the last returns; it
        is added to the stage that sends. None: sending costs nothing.
      memory: limits that no stage may exceed; None for no limit.

    Raises:
      PartitionError: more stages than cells, no stage, a number that is negative or none, too many
        or too few of them, or limits that no cut keeps to.
    """
    count = len(costs)
    sending = [0] * (count - 1) if sending_costs is None else sending_costs
    _check(costs, num_stages, sending, memory)
    exact_costs, exact_sending = _as_integers(costs, sending)
    totals = list(itertools.accumulate(exact_costs, initial=0))
    # ends[i]: what is to be taken from for a last stage that ends before cell i.
    ends = [total + sent for total, sent in zip(totals, [0, *exact_sending, 0], strict=True)]
    best: list[float] = [0] + [math.inf] * count  # Of no stage: it covers no cell.
    cuts: list[list[int]] = []
    for stage in range(num_stages):
        last = count - (num_stages - 1 - stage)  # The later stages need a cell each.
        room = _Room(memory, stage) if memory else None
        best, cut = _add_stage(best, totals, ends, room, range(stage + 1, last + 1))
        cuts.append(cut)
    if memory and best[count] == math.inf:
        raise PartitionError(_arithmetic(memory))
    bounds = [count]
    for cut in reversed(cuts):
        bounds.append(cut[bounds[-1]])
    return [end - start for start, end in itertools.pairwise(reversed(bounds))]


class _Room:
    """Whether runs of cells fit a stage; neither their ends nor their starts may ever go back."""

    def __init__(self, memory: MemoryLimits, stage: int) -> None:
        self._limit = memory.stages[stage]
        self._held = list(itertools.accumulate(memory.held[stage], initial=0))
        self._working = memory.working[stage]
        # Cells of the run with no greater working bytes behind them: the first has the greatest.
        self._greatest: collections.deque[int] = collections.deque()
        self._end = 0

    def move_end(self, end: int) -> None:
        """Lets the run end before cell `end`."""
        for cell in range(self._end, end):
            while self._greatest and self._working[self._greatest[-1]] <= self._working[cell]:
                self._greatest.pop()
            self._greatest.append(cell)
        self._end = end

    def fits_from(self, start: int) -> bool:
        """Whether the run that starts with cell `start` fits."""
        while self._greatest[0] < start:
            self._greatest.popleft()
        held = self._held[self._end] - self._held[start]
        return held + self._working[self._greatest[0]] <= self._limit


def lightest_partition(memory: MemoryLimits) -> list[int]:
    """The cut that exceeds its limits least, or one that keeps to them; to 1 % of the excess."""
    missing = _missing(memory)
    enough = dataclasses.replace(memory, stages=[limit + missing for limit in memory.stages])
    count, num_stages = len(memory.held[0]), len(memory.stages)
    return balanced_partition([0] * count, num_stages, memory=enough)


def _add_stage(
    best: Sequence[float],
    totals: Sequence[int],
    ends: Sequence[int],
    room: _Room | None,
    span: range,
) -> tuple[list[float], list[int]]:
    """Bottlenecks with one stage more, and where that stage starts.

    Args:
      best: smallest bottleneck of the stages before, for every number of cells.
      totals: cost of the first i cells.
      ends: the same, and the cost of sending what they return.
      room: what fits the new stage; None if all does.
      span: where it may end.

    Returns:
      smallest bottleneck for every number of cells, infinite if there is none, and the latest start
      with which it is reached.
    """
    grown: list[float] = [math.inf] * len(totals)
    cut = [0] * len(totals)
    starts: list[int] = []  # Those that matter: best rises along them.
    crossings: list[float] = []  # best + total of each: up to which end the stages before decide.
    first = 0  # The starts before this one exceed the limit.
    for end in span:
        new = end - 1
        if best[new] < math.inf:
            while len(starts) > first and best[starts[-1]] >= best[new]:
                starts.pop()
                crossings.pop()
            starts.append(new)
            crossings.append(best[new] + totals[new])
        if room:
            room.move_end(end)
            while first < len(starts) and not room.fits_from(starts[first]):
                first += 1
        if first == len(starts):
            continue
        crossing = bisect.bisect_left(crossings, ends[end], lo=first)
        bottleneck, before = min(
            (max(best[start], ends[end] - totals[start]), -start)
            for start in starts[max(first, crossing - 1) : crossing + 1]
        )
        grown[end], cut[end] = bottleneck, -before
    return grown, cut


def _as_integers(*rows: Sequence[float]) -> list[list[int]]:
    """All numbers times the smallest power of two that makes integers of them."""
    ratios = [[number.as_integer_ratio() for number in row] for row in rows]
    scale = max((below for row in ratios for _, below in row), default=1)
    return [[above * (scale // below) for above, below in row] for row in ratios]


def _check(
    costs: Sequence[float],
    num_stages: int,
    sending_costs: Sequence[float],
    memory: MemoryLimits | None,
) -> None:
    """Raises what `balanced_partition` promises, limits that cannot be kept to excepted."""
    count = len(costs)
    if num_stages < 1:
        raise PartitionError(f"num_stages ({num_stages}) must be at least 1.")
    if num_stages > count:
        raise PartitionError(
            f"num_stages ({num_stages}) is more than the number of cells ({count}), so a stage "
            f"would be empty; use at most {count} stages or cut the model into more cells."
        )
    rows = [("Costs", costs, count), ("sending_costs", sending_costs, count - 1)]
    if memory:
        if not len(memory.held) == len(memory.working) == num_stages:
            raise PartitionError(
                f"memory.held has {len(memory.held)} rows and memory.working "
                f"{len(memory.working)}; {num_stages} stages need one each."
            )
        rows += [("memory.held", row, count) for row in memory.held]
        rows += [("memory.working", row, count) for row in memory.working]
        rows.append(("memory.stages", memory.stages, num_stages))
    for name, row, length in rows:
        wrong = [number for number in row if not 0 <= number < math.inf]
        if wrong:
            raise PartitionError(f"{name} must be finite numbers of at least 0; got {wrong}.")
        if len(row) != length:
            raise PartitionError(
                f"{name} has {len(row)} numbers; {count} cells on {num_stages} stages need "
                f"{length}."
            )


def _arithmetic(memory: MemoryLimits) -> str:
    """Why no cut keeps to the limits, and what would do."""
    num_stages, count = len(memory.stages), len(memory.held[0])
    alone = [
        min(memory.held[k][cell] + memory.working[k][cell] for k in range(num_stages))
        for cell in range(count)
    ]
    heaviest = max(range(count), key=alone.__getitem__)
    least, most = min(memory.stages), max(memory.stages)
    limits = f"{least:,}" if least == most else f"{list(memory.stages)}"
    if alone[heaviest] > most:
        advice = "more stages do not help, since the heaviest cell fits none; cut it into several"
    else:
        advice = "or more stages"
    return (
        f"No cut into {num_stages} stages keeps each within its limit ({limits} bytes): the cells "
        f"would take {memory.taken(0, slice(None)):,} bytes on the first, and the heaviest (number "
        f"{heaviest}, counted from 0) takes {alone[heaviest]:,} alone. Limits greater by "
        f"{_missing(memory):,} bytes would do; {advice}."
    )


def _missing(memory: MemoryLimits) -> int:
    """By how much every limit would have to grow for a cut to keep to them, to 1 %."""
    if _can_be_cut(memory, 0):
        return 0
    low, high = 0, max(memory.taken(k, slice(None)) for k in range(len(memory.stages)))
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        if _can_be_cut(memory, middle):
            high = middle
        else:
            low = middle
    return high


def _can_be_cut(memory: MemoryLimits, more: int) -> bool:
    """Whether some cut keeps to the limits and `more`."""
    limits = [limit + more for limit in memory.stages]
    grown = dataclasses.replace(memory, stages=limits)
    count, num_stages = len(memory.held[0]), len(limits)
    best: list[float] = [0] + [math.inf] * count
    zeros = [0] * (count + 1)
    for stage in range(num_stages):
        last = count - (num_stages - 1 - stage)
        best, _ = _add_stage(best, zeros, zeros, _Room(grown, stage), range(stage + 1, last + 1))
    return best[count] < math.inf


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
