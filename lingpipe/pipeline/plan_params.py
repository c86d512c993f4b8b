"""What the params of a pipeline say about its plan: their faults, and what memory depends on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

from lingpipe.pipeline.memory import BytesError, WeightBytes, parse_bytes
from lingpipe.pipeline.memory_limits import MemorySettings
from lingpipe.pipeline.plan import PartitionCosts
from lingpipe.pipeline.schedules import ScheduleKind


class PlanParams(Protocol):
    """The fields of `Pipeline.Params` that are read here."""

    num_micro_batches: int
    stages_per_device: int
    schedule: ScheduleKind
    remat: Any  # A Rematerialisation, whose module needs TensorFlow.
    partition_costs: PartitionCosts
    device_memory: str | None
    link_bandwidth: float | None


def plan_faults(params: PlanParams) -> Iterator[tuple[str, str]]:
    """Name of a field and what is wrong with its value, for each that is wrong."""
    if params.device_memory is not None:
        try:
            parse_bytes(params.device_memory)
        except BytesError as error:
            yield "device_memory", str(error)
    elif params.remat.value == "auto":
        yield (
            "remat",
            "remat (auto) keeps what fits device_memory, which is None: set it, such as 16GiB, or "
            "take remat layer or stage.",
        )
    bandwidth = params.link_bandwidth
    if bandwidth is None:
        return
    if not (math.isfinite(bandwidth) and bandwidth > 0):
        yield (
            "link_bandwidth",
            f"link_bandwidth ({bandwidth}) must be a finite number of bytes a second greater than "
            "0, such as 1e10.",
        )
    if params.partition_costs is not PartitionCosts.measured:
        yield (
            "link_bandwidth",
            f"link_bandwidth ({bandwidth}) gives seconds, which do not add up with FLOPs: set "
            "partition_costs to measured, or leave it out.",
        )


def memory_settings(params: PlanParams, num_slots: int, compute_bytes: int) -> MemorySettings:
    """What the plan's memory depends on.

    Args:
      params: the pipeline's.
      num_slots: slots of the optimiser for each weight.
      compute_bytes: bytes of a number in the dtype of activations.
    """
    return MemorySettings(
        schedule=params.schedule,
        num_micro_batches=params.num_micro_batches,
        stages_per_device=params.stages_per_device,
        remat=params.remat.value,
        weights=WeightBytes(num_slots, compute_bytes),
        device_memory=None if params.device_memory is None else parse_bytes(params.device_memory),
    )
