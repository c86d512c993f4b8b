"""Cuts cells into stages that fit their devices, or says why none does and what would.

Of what a stage holds, two things depend on more than its cells one by one: a weight used twice
lies there once, and its boundary is kept under `remat=stage`. In the limits that the partitioner is
given both stand as upper bounds; whatever cut it finds fits, and the plan then says exactly how
much it takes.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Callable, Sequence

from lingpipe.pipeline.keeping import Rematerialisation
from lingpipe.pipeline.memory import (
    CellMemory,
    StageMemory,
    WeightBytes,
    device_peaks,
    format_bytes,
    stage_memory,
)
from lingpipe.pipeline.partitioner import (
    MemoryLimits,
    PartitionError,
    balanced_partition,
    lightest_partition,
)
from lingpipe.pipeline.schedule import Schedule
from lingpipe.pipeline.schedules import ScheduleKind, make_schedule

# Numbers of stages to try one by one for a refusal's advice: a try takes up to 0.1 s.
_ONE_BY_ONE = 16


@dataclasses.dataclass(frozen=True)
class MemorySettings:
    """What, beside its cells, decides how much a stage holds.

    Attributes:
      schedule: which rule.
      num_micro_batches: M.
      stages_per_device: stages that share a device.
      remat: the rule.
      weights: bytes for each weight.
      device_memory: bytes of one device, for all of its stages; None for no limit.
    """

    schedule: ScheduleKind = ScheduleKind.gpipe
    num_micro_batches: int = 1
    stages_per_device: int = 1
    remat: Rematerialisation = Rematerialisation.none
    weights: WeightBytes = dataclasses.field(default_factory=WeightBytes)
    device_memory: int | None = None

    @property
    def stage_limit(self) -> int | None:
        """Bytes of each stage."""
        if self.device_memory is None:
            return None
        return self.device_memory // self.stages_per_device

    def make_schedule(self, num_stages: int) -> Schedule:
        """The schedule of so many stages."""
        return make_schedule(
            self.schedule, num_stages, self.num_micro_batches, self.stages_per_device
        )


def memory_of_stages(
    cells: Sequence[CellMemory], sizes: Sequence[int], settings: MemorySettings
) -> list[StageMemory]:
    """What each stage of a cut holds.

    Args:
      cells: all cells, in order.
      sizes: number of cells of each stage.
      settings: what else it depends on.
    """
    schedule = settings.make_schedule(len(sizes))
    live = schedule.peak_live_of_stages()
    owned: set[str] = set()
    found = []
    start = 0
    for index, size in enumerate(sizes):
        own = cells[start : start + size]
        weights = {path: weight for cell in own for path, weight in cell.weights.items()}
        found.append(
            stage_memory(
                own,
                settings.weights.fixed(weights, owned),
                live[index],
                settings.remat,
                keeps_all=schedule.keeps_all(index),
                device_memory=settings.stage_limit,
            )
        )
        owned |= weights.keys()
        start += size
    return found


def fits(stages: Sequence[StageMemory], settings: MemorySettings) -> bool:
    """Whether every device holds its stages."""
    if settings.device_memory is None:
        return True
    peaks = device_peaks(settings.make_schedule(len(stages)), stages)
    return max(peaks) <= settings.device_memory


def kept_limits(stages: Sequence[StageMemory], settings: MemorySettings) -> list[int | None]:
    """Bytes that a micro-batch may keep on each stage; None for no limit.

    A stage alone on its device may keep all that is left there. Stages that share one may keep what
    the plan says, and an equal part each of what that leaves.
    """
    if settings.device_memory is None:
        return [None] * len(stages)
    if settings.stages_per_device == 1:
        return [stage.kept_limit(settings.device_memory) for stage in stages]
    schedule = settings.make_schedule(len(stages))
    left = [max(0, settings.device_memory - peak) for peak in device_peaks(schedule, stages)]
    return [
        stage.kept_bytes + left[device] // (settings.stages_per_device * stage.live_micro_batches)
        for stage, device in zip(stages, schedule.placement, strict=True)
    ]


def fitting_partition(
    cells: Sequence[CellMemory],
    names: Sequence[str],
    num_stages: int,
    settings: MemorySettings,
    costs: Sequence[float],
    sending_costs: Sequence[float] | None = None,
) -> list[int]:
    """The best balanced cut whose stages fit their devices.

    Args:
      cells: all cells, in order.
      names: their names.
      num_stages: number of stages.
      settings: `device_memory` among them.
      costs: as for `balanced_partition`.
      sending_costs: likewise.

    Raises:
      PartitionError: no cut fits.
    """
    sizes = balanced_partition(costs, num_stages, sending_costs=sending_costs)
    if fits(memory_of_stages(cells, sizes, settings), settings):
        return sizes
    limits = memory_limits(cells, num_stages, settings)
    try:
        return balanced_partition(costs, num_stages, sending_costs=sending_costs, memory=limits)
    except PartitionError:
        lightest = lightest_partition(limits)
    if fits(memory_of_stages(cells, lightest, settings), settings):
        return lightest  # The limits were upper bounds.
    raise refusal(cells, names, lightest, settings, _no_cut(num_stages))


def _no_cut(num_stages: int) -> str:
    return f"no cut into {num_stages} stage{'s' if num_stages > 1 else ''} takes less"


def memory_limits(
    cells: Sequence[CellMemory], num_stages: int, settings: MemorySettings
) -> MemoryLimits:
    """What the partitioner needs to know: no stage takes more than this says.

    Where as much is kept as fits, it says what is taken if as little as possible is kept.
    """
    schedule = settings.make_schedule(num_stages)
    live = schedule.peak_live_of_stages()
    each_fixed = _fixed_of_cells(cells, settings.weights)
    greatest_boundary = max((cell.output_bytes for cell in cells[:-1]), default=0)
    rows = []
    for stage in range(num_stages):
        alone = [
            _alone(
                cell,
                fixed,
                live[stage],
                settings,
                keeps_all=schedule.keeps_all(stage),
            )
            for cell, fixed in zip(cells, each_fixed, strict=True)
        ]
        held, working, once = zip(*alone, strict=True)
        limit = (settings.stage_limit or 0) - max(once) - greatest_boundary
        rows.append((held, working, max(0, limit)))
    held_rows, working_rows, limits = zip(*rows, strict=True)
    return MemoryLimits(held_rows, working_rows, limits)


def refusal(
    cells: Sequence[CellMemory],
    names: Sequence[str],
    sizes: Sequence[int],
    settings: MemorySettings,
    why: str = "",
) -> PartitionError:
    """The error that says which stage of a cut does not fit, with the arithmetic and a way out."""
    stages = memory_of_stages(cells, sizes, settings)
    schedule = settings.make_schedule(len(sizes))
    peaks = device_peaks(schedule, stages)
    device = max(range(len(peaks)), key=peaks.__getitem__)
    on_device = [k for k, home in enumerate(schedule.placement) if home == device]
    worst = max(on_device, key=lambda k: stages[k].peak_bytes)
    start = sum(sizes[:worst])
    own = names[start : start + sizes[worst]]
    span = own[0] if len(own) == 1 else f"{own[0]} .. {own[-1]}"
    memory = stages[worst]
    together = (
        ""
        if len(on_device) == 1
        else f" The {len(on_device)} stages of its device take {format_bytes(peaks[device])}."
    )
    return PartitionError(
        f"Stage {worst} ({'cell' if len(own) == 1 else 'cells'} {span}) would take "
        f"{format_bytes(memory.peak_bytes)}: {format_bytes(memory.fixed_bytes)} of weights, "
        f"gradients and slots, {memory.live_micro_batches} x {format_bytes(memory.kept_bytes)} "
        f"that micro-batches keep, {format_bytes(memory.working_bytes)} while one is in its "
        f"backward pass{_updating_in_words(memory)}.{together} device_memory is "
        f"{format_bytes(settings.device_memory or 0)}"
        f"{f', and {why}' if why else ''}. {_way_out(cells, len(sizes), settings)}"
    )


def _updating_in_words(memory: StageMemory) -> str:
    """What the update takes, where that is more than the passes do."""
    passes = memory.live_micro_batches * memory.kept_bytes + memory.working_bytes
    if memory.updating_bytes <= passes:
        return ""
    return f"; or, beside the first, {format_bytes(memory.updating_bytes)} while they are updated"


def _way_out(cells: Sequence[CellMemory], num_stages: int, settings: MemorySettings) -> str:
    """What would do, in words: every setting that is named has been tried.

    Other sizes of micro-batches cannot be tried, for which cells would have other costs. They are
    named where the weights fit.
    """
    counts = range(num_stages, len(cells) + 1, settings.stages_per_device)
    weights = [cell.of_weights_alone() for cell in cells]
    enough = _first(counts, functools.partial(_some_cut_fits, weights, settings))
    if enough is None:
        return "Use smaller cells or more memory: no number of stages holds the weights."
    recomputing = dataclasses.replace(settings, remat=Rematerialisation.auto)
    if _some_cut_fits(cells, settings, num_stages):
        return "Leave pipeline.partition out: another cut would do."
    ways = []
    for remat, tried in (("", settings), ("pipeline.remat=auto", recomputing)):
        count = _first(counts, functools.partial(_some_cut_fits, cells, tried))
        if count is not None:
            ways.append((count, remat))
    if ways:
        count, remat = min(ways)
        stages = "" if count == num_stages else f"pipeline.num_stages={count}"
        smaller = ", or more and smaller micro-batches" if enough == num_stages else ""
        return f"{' with '.join(filter(None, (remat, stages)))} would do{smaller}."
    if enough == num_stages:
        return "Use more and smaller micro-batches: the weights fit."
    return (
        f"The weights fit from pipeline.num_stages={enough} on: take as many stages, and more and "
        "smaller micro-batches."
    )


def _first(counts: Sequence[int], holds: Callable[[int], bool]) -> int | None:
    """The first number for which `holds`; None if there is none.

    The first few are tried one by one. Beyond them strides double and the last one is halved: if
    `holds` comes and goes, what is found is one for which it does, and perhaps not the first.
    """
    for count in counts[:_ONE_BY_ONE]:
        if holds(count):
            return count
    failed, stride = _ONE_BY_ONE - 1, 1
    while failed + 1 < len(counts):
        tried = min(failed + stride, len(counts) - 1)
        if holds(counts[tried]):
            between = counts[failed + 1 : tried + 1]
            return between[bisect.bisect_left(between[:-1], True, key=holds)]
        failed, stride = tried, 2 * stride
    return None


def _some_cut_fits(cells: Sequence[CellMemory], settings: MemorySettings, num_stages: int) -> bool:
    """Whether the lightest cut fits its devices."""
    lightest = lightest_partition(memory_limits(cells, num_stages, settings))
    return fits(memory_of_stages(cells, lightest, settings), settings)


def _fixed_of_cells(cells: Sequence[CellMemory], weights: WeightBytes) -> list[int]:
    """At most the bytes of each cell's weights, if no stage had two cells that share one."""
    owned: set[str] = set()
    found = []
    for cell in cells:
        found.append(weights.fixed_at_most(cell.weights, owned))
        owned |= cell.weights.keys()
    return found


def _alone(
    cell: CellMemory, fixed: int, live: int, settings: MemorySettings, *, keeps_all: bool
) -> tuple[int, int, int]:
    """What a cell adds to a stage: bytes held, bytes while it works, bytes that count once."""
    kept, waiting, boundary = cell.kept_bytes, cell.waiting_bytes, live * cell.input_bytes
    working, again = cell.working_bytes, cell.working_bytes_again
    once = 0
    if cell.input_bytes == 0:  # The first cell: it always keeps all.
        fixed += live * max(kept, cell.output_bytes) + waiting
    elif keeps_all or settings.remat is Rematerialisation.none:
        fixed += live * kept + waiting
        once = live * cell.cost.passed_bytes
    elif settings.remat is Rematerialisation.layer:
        fixed += boundary + waiting
        working = kept + again
    elif settings.remat is Rematerialisation.stage:
        fixed += kept + waiting
        working, once = again, boundary
    else:
        fixed += waiting
        working, once = kept + again, boundary
    return fixed, max(working, cell.updating_bytes), once
