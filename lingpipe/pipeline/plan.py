"""What will run where: the plan of stages, worked out from params before a device is touched.

`make_plan` asks every cell's params for their cost, cuts the list and returns a `Plan`, plain data
that the builder follows, the trainer prints at start and `lingpipe plan` shows. Where the seconds
of every cell have been measured, it cuts by these instead of by FLOPs. Told what memory depends on,
it says what every stage will hold at its peak, and keeps within the memory of a device.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from lingpipe.base.cost import Cost
from lingpipe.base.spec import Spec, Specs, flatten_specs, specs_bytes, with_floats_as
from lingpipe.pipeline.keeping import Rematerialisation
from lingpipe.pipeline.memory import CellMemory, StageMemory, device_peaks, format_bytes
from lingpipe.pipeline.memory_limits import (
    MemorySettings,
    fits,
    fitting_partition,
    kept_limits,
    memory_of_stages,
    refusal,
)
from lingpipe.pipeline.partitioner import PartitionError, balanced_partition, check_partition


class PartitionCosts(enum.Enum):
    """By what cells are weighed where stages are balanced."""

    analytic = "analytic"  # FLOPs, worked out from params.
    measured = "measured"  # Seconds of both passes, measured before the start.


class CellParams(Protocol):
    """What the plan needs to know of a cell; `Layer.Params` offers it."""

    def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost: ...

    def all_weights(self, path: str = "") -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class StagePlan:
    """One stage.

    Attributes:
      cells: names of its cells, in order.
      weights: number of weights that live on it; a shared weight lives on the first stage that
        uses it.
      mirrored_weights: number of weights of which it holds a copy because an earlier stage owns
        them.
      flops: floating-point operations of the forward pass of one micro-batch.
      activation_bytes: what one micro-batch keeps for the backward pass without rematerialisation.
      boundary_bytes: bytes of one micro-batch that cross the cut behind the stage; what it only
        passes on is among them, though its maker sends that straight to its readers. 0 for the
        last.
      seconds: measured seconds of the forward and backward pass of one micro-batch, the sum of its
        cells'; None where they were not measured.
      memory: what it holds at its peak; None where the plan was not told what that depends on.
      remat: what it does about activations, in words.
      kept_limit: bytes that a micro-batch may keep; None where memory is not limited.
    """

    cells: tuple[str, ...]
    weights: int
    mirrored_weights: int
    flops: int
    activation_bytes: int
    boundary_bytes: int
    seconds: float | None = None
    memory: StageMemory | None = None
    remat: str = ""
    kept_limit: int | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """All stages of a model, and the micro-batch for which they were worked out.

    Attributes:
      stages: the stages, in order.
      micro_batch: spec of each batch entry.
      device_bytes: the most bytes that each device holds at a time; empty where not worked out.
        With several replicas those of the fullest.
      num_replicas: how many times the stages are there, each time on devices of their own.
    """

    stages: tuple[StagePlan, ...]
    micro_batch: dict[str, Spec]
    device_bytes: tuple[int, ...] = ()
    num_replicas: int = 1

    @property
    def partition(self) -> list[int]:
        """Number of cells of each stage."""
        return [len(stage.cells) for stage in self.stages]

    @property
    def weights(self) -> int:
        """Number of weights of the model; shared ones count once."""
        return sum(stage.weights for stage in self.stages)

    @property
    def flops(self) -> int:
        """Floating-point operations of the forward pass of one micro-batch."""
        return sum(stage.flops for stage in self.stages)

    @property
    def seconds(self) -> float | None:
        """Measured seconds of both passes of one micro-batch on one device; None if unknown."""
        known = [stage.seconds for stage in self.stages if stage.seconds is not None]
        return sum(known) if len(known) == len(self.stages) else None

    def shares(self) -> list[float]:
        """Share of each stage in the measured seconds, or in the FLOPs where there are none.

        Equal shares are the best a cut can do.
        """
        if self.seconds is None:
            return [stage.flops / max(self.flops, 1) for stage in self.stages]
        return [(stage.seconds or 0.0) / (self.seconds or 1.0) for stage in self.stages]


def make_plan(
    cells: Mapping[str, CellParams],
    num_stages: int,
    micro_batch: Mapping[str, Spec],
    partition: Sequence[int] | None = None,
    *,
    compute_dtype: str = "float32",
    cell_seconds: Mapping[str, float] | None = None,
    link_bandwidth: float | None = None,
    memory: MemorySettings | None = None,
) -> Plan:
    """Cuts `cells` into stages of balanced cost.

    Args:
      cells: name -> params of each cell, in order.
      num_stages: number of stages K.
      micro_batch: spec of each entry of a typical micro-batch.
      partition: number of cells of each stage; None for the balanced cut.
      compute_dtype: dtype of the activations that cells send and keep, by name.
      cell_seconds: name -> measured seconds of both passes of each cell, by which to balance; None
        to balance by FLOPs.
      link_bandwidth: bytes a second that go from stage to stage, to add to measured seconds what
        sending takes, forwards and backwards; None if it takes none.
      memory: what memory depends on, and how much there is; None if nobody minds.

    Raises:
      PartitionError: the cells cannot be cut so, or a cell was not measured; or the stages do not
        fit their devices.
    """
    names = list(cells)
    found = _memory_of_cells(cells, micro_batch, compute_dtype)
    seconds = None if cell_seconds is None else _in_order(names, cell_seconds)
    weighed = seconds or [cell.cost.flops for cell in found]
    sending = _sending_seconds(found, link_bandwidth) if seconds and link_bandwidth else None
    if partition is not None:
        sizes = check_partition(partition, len(names), num_stages)
    elif memory and memory.device_memory is not None:
        sizes = fitting_partition(found, names, num_stages, memory, weighed, sending)
    else:
        sizes = balanced_partition(weighed, num_stages, sending_costs=sending)
    stages = _stages(names, found, sizes, seconds)
    if not memory:
        return Plan(stages, dict(micro_batch))
    held = memory_of_stages(found, sizes, memory)
    if not fits(held, memory):
        raise refusal(found, names, sizes, memory)
    return Plan(
        _with_memory(stages, held, memory),
        dict(micro_batch),
        device_peaks(memory.make_schedule(num_stages), held),
    )


def _with_memory(
    stages: Sequence[StagePlan], held: Sequence[StageMemory], settings: MemorySettings
) -> tuple[StagePlan, ...]:
    """The stages with what each holds."""
    schedule = settings.make_schedule(len(stages))
    limits = kept_limits(held, settings)
    return tuple(
        dataclasses.replace(
            stage,
            memory=own,
            remat=_remat_in_words(own, settings, schedule.keeps_all(index)),
            kept_limit=limits[index],
        )
        for index, (stage, own) in enumerate(zip(stages, held, strict=True))
    )


def _stages(
    names: Sequence[str],
    cells: Sequence[CellMemory],
    sizes: Sequence[int],
    seconds: Sequence[float] | None,
) -> tuple[StagePlan, ...]:
    """The stages of a cut; a shared weight lives on the first of them that uses it."""
    stages = []
    owned: set[str] = set()
    start = 0
    for size in sizes:
        span = slice(start, start + size)
        own = cells[span]
        weights = {path: weight for cell in own for path, weight in cell.weights.items()}
        is_last = start + size == len(names)
        stages.append(
            StagePlan(
                cells=tuple(names[span]),
                weights=sum(w.size for path, w in weights.items() if path not in owned),
                mirrored_weights=sum(w.size for path, w in weights.items() if path in owned),
                flops=sum(cell.cost.flops for cell in own),
                activation_bytes=sum(cell.kept_bytes for cell in own),
                boundary_bytes=0 if is_last else own[-1].output_bytes,
                seconds=None if seconds is None else sum(seconds[span]),
            )
        )
        owned.update(weights)
        start += size
    return tuple(stages)


def _remat_in_words(stage: StageMemory, settings: MemorySettings, keeps_all: bool) -> str:
    """What a stage does about activations, for a column of the table."""
    chooses = settings.remat is Rematerialisation.auto
    if keeps_all or (chooses and stage.kept_bytes == stage.full_bytes):
        return "none"
    if chooses:
        kept, full = format_bytes(stage.kept_bytes), format_bytes(stage.full_bytes)
        return f"keeps {kept} of {full}"
    return settings.remat.value


def _sending_seconds(cells: Sequence[CellMemory], link_bandwidth: float) -> list[float]:
    """Seconds to send what each cell but the last returns, and to get its floats' gradients."""
    return [
        sum(
            spec.bytes * (2 if "float" in spec.dtype else 1)
            for spec in flatten_specs(cell.cost.outputs)
        )
        / link_bandwidth
        for cell in cells[:-1]
    ]


def _in_order(names: Sequence[str], cell_seconds: Mapping[str, float]) -> list[float]:
    """The seconds of each cell."""
    missing = [name for name in names if name not in cell_seconds]
    if missing:
        raise PartitionError(
            f"cell_seconds lacks {', '.join(missing)}; give the measured seconds of every cell."
        )
    return [cell_seconds[name] for name in names]


def _memory_of_cells(
    cells: Mapping[str, CellParams], micro_batch: Mapping[str, Spec], compute_dtype: str
) -> list[CellMemory]:
    """Each cell's cost and weights, the outputs of one being the inputs of the next."""
    found = []
    outputs: Specs = None
    for name, cell in cells.items():
        cost = cell.cost(outputs, micro_batch)
        # A cell from elsewhere says what it returns, and may not mind the compute dtype.
        if getattr(cell, "returns_compute_dtype", False):
            cost = _sending_in(compute_dtype, cost)
        found.append(CellMemory(cell.all_weights(name), cost, specs_bytes(outputs)))
        outputs = cost.outputs
    return found


def _sending_in(compute_dtype: str, cost: Cost) -> Cost:
    """The cost of a cell whose outputs are of the compute dtype.

    A layer's cost follows the dtype of its inputs, and knows what it computes in float32 all the
    same. One that makes vectors of ids has no such input and says float32: what it sends, and as
    much of what it keeps, are corrected.
    """
    outputs = with_floats_as(cost.outputs, compute_dtype)
    saved = specs_bytes(cost.outputs) - specs_bytes(outputs)
    kept = max(0, cost.activation_bytes - saved)
    return dataclasses.replace(cost, outputs=outputs, activation_bytes=kept)


def first_and_last(names: Sequence[str]) -> str:
    """A run of cells in words: "a .. d", or "a" if there is but one."""
    return names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}"


def format_plan(plan: Plan, devices: Sequence[str] | None = None) -> str:
    """The plan as a table for people: one row a stage.

    The share is that of the FLOPs, or, under a heading that says so, of the measured seconds.
    Memory is what a stage holds at its peak.
    """
    is_measured = plan.seconds is not None
    work = ("forward FLOPs", *(("seconds", "measured share") if is_measured else ("share",)))
    knows_memory = bool(plan.device_bytes)
    held = ("memory", "remat") if knows_memory else ()
    rows = [("stage", "cells", "device", "weights", *work, "crosses", *held)]
    for index, (stage, share) in enumerate(zip(plan.stages, plan.shares(), strict=True)):
        shared = f" (+{stage.mirrored_weights:,} shared)" if stage.mirrored_weights else ""
        rows.append(
            (
                str(index),
                f"{len(stage.cells)}: {first_and_last(stage.cells)}",
                devices[index] if devices else "-",
                f"{stage.weights:,}{shared}",
                f"{stage.flops:.3g}",
                *([f"{stage.seconds:.3g}"] if is_measured else []),
                f"{share:.1%}",
                f"{stage.boundary_bytes:,} B",
                *([format_bytes(stage.memory.peak_bytes), stage.remat] if stage.memory else []),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    shapes = ", ".join(f"{name} {list(spec.shape)}" for name, spec in plan.micro_batch.items())
    lines.append(f"total {plan.weights:,} weights; one micro-batch: {shapes}")
    if len(plan.stages) > len(plan.device_bytes) > 0:
        together = ", ".join(format_bytes(count) for count in plan.device_bytes)
        lines.append(f"memory of each device, over its stages: {together}")
    if plan.num_replicas > 1:
        lines.append(f"{plan.num_replicas} replicas of all stages, each with devices of its own")
    return "\n".join(lines) + "\n"
