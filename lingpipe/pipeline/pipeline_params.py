"""How to cut a model and run it: the params of a pipeline, known without TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from lingpipe.hyperparams import Parameterized
from lingpipe.pipeline.keeping import Keeping, Rematerialisation
from lingpipe.pipeline.memory import BytesError, WeightBytes, parse_bytes
from lingpipe.pipeline.memory_limits import MemorySettings
from lingpipe.pipeline.plan import PartitionCosts
from lingpipe.pipeline.schedules import ScheduleKind, stages_per_device_fault


class PipelineParams(Parameterized.Params):
    """The fields of `Pipeline.Params`."""

    num_stages: int = 1  # K: stages, over all devices of a replica.
    stages_per_device: int = 1  # More than 1 for schedule interleaved; divides num_stages.
    num_micro_batches: int = 1  # M: slices of a replica's mini-batch that are in flight together.
    num_replicas: int = 1  # R: copies of all stages; each gets a share of every mini-batch.
    # Each replica updates a share of the weights and holds its slots; false: the first one all.
    shards_optimizer: bool = True
    schedule: ScheduleKind = ScheduleKind.gpipe  # Order of forwards and backwards.
    remat: Rematerialisation = Rematerialisation.none  # Activations computed again.
    # For debugging: compares what is computed again with what it was, bit for bit.
    verify_recompute: bool = False
    # For debugging: devices that would idle compute on NaN, which must change nothing.
    poison_bubbles: bool = False
    partition: list[int] | None = None  # Cells of each stage; None balances by cost.
    # By what to balance: analytic (FLOPs), or measured (seconds; each cell is run alone first).
    partition_costs: PartitionCosts = PartitionCosts.analytic
    # Memory of one device, for all of its stages, such as 16GiB: stages are cut to fit it.
    device_memory: str | None = None
    # Bytes a second from stage to stage, to balance by what sending takes, too; with measured
    # costs only. None: sending takes no time.
    link_bandwidth: float | None = None
    jit_compile: bool = False  # XLA compiles every stage, anew for each shape of a micro-batch.

    def inconsistencies(self) -> Iterable[tuple[str, str]]:
        for field in ("num_stages", "num_micro_batches", "num_replicas"):
            value = getattr(self, field)
            if value < 1:
                yield field, f"{field} ({value}) must be at least 1."
        if self.partition is not None and self.partition_costs is PartitionCosts.measured:
            yield (
                "partition_costs",
                f"partition_costs (measured) has no use beside partition ({self.partition}), "
                "which says where to cut; leave one of them out.",
            )
        if self.jit_compile and self.verify_recompute:
            yield (
                "verify_recompute",
                "verify_recompute compares bits, and XLA adds up in another order when it "
                "computes again; set jit_compile=false to verify.",
            )
        fault = stages_per_device_fault(self.schedule, self.num_stages, self.stages_per_device)
        if fault:
            yield "stages_per_device", fault
        yield from self._memory_faults()
        yield from self._bandwidth_faults()

    def keeping(self) -> Keeping:
        """What stages keep from their forward to their backward passes."""
        return Keeping(self.remat, verify=self.verify_recompute)

    def num_devices(self) -> int:
        """Number of devices that the stages of all replicas need."""
        return self.num_stages // self.stages_per_device * self.num_replicas

    def num_slices(self) -> int:
        """Number of micro-batches into which a mini-batch is cut, over all replicas."""
        return self.num_micro_batches * self.num_replicas

    def num_sharing(self) -> int:
        """Number of replicas that share out the weights of a stage, to update them."""
        return self.num_replicas if self.shards_optimizer else 1

    def memory_settings(self, num_slots: int, compute_bytes: int) -> MemorySettings:
        """What the plan's memory depends on.

        Args:
          num_slots: slots of the optimiser for each weight.
          compute_bytes: bytes of a number in the dtype of activations.
        """
        memory = self.device_memory
        return MemorySettings(
            schedule=self.schedule,
            num_micro_batches=self.num_micro_batches,
            stages_per_device=self.stages_per_device,
            remat=self.remat,
            weights=WeightBytes(num_slots, compute_bytes, self.num_sharing()),
            device_memory=None if memory is None else parse_bytes(memory),
        )

    def _memory_faults(self) -> Iterator[tuple[str, str]]:
        if self.device_memory is not None:
            try:
                parse_bytes(self.device_memory)
            except BytesError as error:
                yield "device_memory", str(error)
        elif self.remat is Rematerialisation.auto:
            yield (
                "remat",
                "remat (auto) keeps what fits device_memory, which is None: set it, such as "
                "16GiB, or take remat layer or stage.",
            )

    def _bandwidth_faults(self) -> Iterator[tuple[str, str]]:
        bandwidth = self.link_bandwidth
        if bandwidth is None:
            return
        if not (math.isfinite(bandwidth) and bandwidth > 0):
            yield (
                "link_bandwidth",
                f"link_bandwidth ({bandwidth}) must be a finite number of bytes a second greater "
                "than 0, such as 1e10.",
            )
        if self.partition_costs is not PartitionCosts.measured:
            yield (
                "link_bandwidth",
                f"link_bandwidth ({bandwidth}) gives seconds, which do not add up with FLOPs: set "
                "partition_costs to measured, or leave it out.",
            )
