"""The plan counts every weight once, says what crosses boundaries and prints itself as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from lingpipe.base.cost import Cost
from lingpipe.base.spec import Spec, Specs
from lingpipe.pipeline.keeping import Rematerialisation
from lingpipe.pipeline.memory import WeightBytes
from lingpipe.pipeline.memory_limits import MemorySettings
from lingpipe.pipeline.partitioner import PartitionError
from lingpipe.pipeline.plan import format_plan, make_plan
from lingpipe.pipeline.schedules import ScheduleKind


@dataclasses.dataclass(frozen=True)
class FakeWeight:
    size: int
    trainable: bool = True


@dataclasses.dataclass(frozen=True)
class FakeCell:
    """Params of a cell as the plan sees them; no TensorFlow."""

    weights: Mapping[str, int]
    flops: int
    sends: Specs
    returns_compute_dtype: bool = True

    def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
        assert batch is not None
        assert "ids" in batch
        return Cost(self.flops, self.sends, activation_bytes=10 * self.flops)

    def all_weights(self, path: str = "") -> dict[str, FakeWeight]:
        return {
            name if name.startswith("table") else f"{path}/{name}": FakeWeight(size)
            for name, size in self.weights.items()
        }


VECTORS = Spec((2, 3, 8))  # 192 bytes.
MASK = Spec((2, 3), "bool")  # 6 bytes.

CELLS = {
    "embed": FakeCell({"table": 400}, 0, {"x": VECTORS, "mask": MASK}),
    "layer_0": FakeCell({"kernel": 64, "bias": 8}, 1000, {"x": VECTORS, "mask": MASK}),
    "layer_1": FakeCell({"kernel": 64, "bias": 8}, 1000, {"x": VECTORS}),
    "softmax": FakeCell({"table": 400, "gain": 1}, 2000, {"loss": Spec(())}),
}
MICRO_BATCH = {"ids": Spec((2, 3), "int32")}


def test_cells_are_cut_by_cost() -> None:
    plan = make_plan(CELLS, 2, MICRO_BATCH)
    assert plan.partition == [3, 1]
    assert [stage.cells for stage in plan.stages] == [("embed", "layer_0", "layer_1"), ("softmax",)]
    assert plan.shares() == [0.5, 0.5]
    assert [stage.activation_bytes for stage in plan.stages] == [20_000, 20_000]


@pytest.mark.parametrize("num_stages", (1, 2, 3, 4))
def test_the_number_of_weights_does_not_depend_on_the_number_of_stages(num_stages: int) -> None:
    plan = make_plan(CELLS, num_stages, MICRO_BATCH)
    assert plan.weights == 400 + 72 + 72 + 1
    assert plan.flops == 4000
    assert len(plan.stages) == num_stages


def test_a_shared_weight_lives_on_its_first_stage_and_is_mirrored_on_others() -> None:
    plan = make_plan(CELLS, 4, MICRO_BATCH)
    assert [stage.weights for stage in plan.stages] == [400, 72, 72, 1]
    assert [stage.mirrored_weights for stage in plan.stages] == [0, 0, 0, 400]
    alone = make_plan(CELLS, 1, MICRO_BATCH)
    assert alone.stages[0].mirrored_weights == 0


def test_a_stage_sends_what_its_last_cell_returns_and_the_last_stage_nothing() -> None:
    plan = make_plan(CELLS, 4, MICRO_BATCH)
    assert [stage.boundary_bytes for stage in plan.stages] == [198, 198, 192, 0]


def test_an_explicit_partition_is_followed_or_refused() -> None:
    plan = make_plan(CELLS, 2, MICRO_BATCH, partition=[1, 3])
    assert plan.partition == [1, 3]
    with pytest.raises(PartitionError, match="add up to 4"):
        make_plan(CELLS, 2, MICRO_BATCH, partition=[1, 2])
    with pytest.raises(PartitionError, match=r"num_stages \(5\).* cells \(4\)"):
        make_plan(CELLS, 5, MICRO_BATCH)


def test_a_model_that_costs_nothing_has_shares_of_zero() -> None:
    cells = {name: dataclasses.replace(cell, flops=0) for name, cell in CELLS.items()}
    plan = make_plan(cells, 2, MICRO_BATCH)
    assert plan.shares() == [0.0, 0.0]
    assert sum(plan.partition) == 4


def test_the_table_has_a_row_a_stage_and_the_total() -> None:
    plan = make_plan(CELLS, 2, MICRO_BATCH)
    lines = format_plan(plan, ["/CPU:0", "/CPU:1"]).splitlines()
    assert lines == [
        "stage  cells                device  weights          forward FLOPs  share  crosses",
        "0      3: embed .. layer_1  /CPU:0  544              2e+03          50.0%  192 B",
        "1      1: softmax           /CPU:1  1 (+400 shared)  2e+03          50.0%  0 B",
        "total 545 weights; one micro-batch: ids [2, 3]",
    ]


def test_the_table_does_without_devices() -> None:
    row = format_plan(make_plan(CELLS, 1, MICRO_BATCH)).splitlines()[1].split()
    assert row == ["0", "4:", "embed", "..", "softmax", "-", "545", "4e+03", "100.0%", "0", "B"]


def test_what_is_sent_and_kept_in_bfloat16_takes_half_and_masks_what_they_took() -> None:
    plan = make_plan(CELLS, 4, MICRO_BATCH, compute_dtype="bfloat16")
    assert [stage.boundary_bytes for stage in plan.stages] == [96 + 6, 96 + 6, 96, 0]
    # What these cells keep is a number; known to be floats is what they send.
    kept = [stage.activation_bytes for stage in plan.stages]
    assert kept[:3] == [0, 10_000 - 96, 10_000 - 96]


def test_a_cell_from_elsewhere_sends_what_it_says() -> None:
    cells = {
        name: dataclasses.replace(cell, returns_compute_dtype=name != "layer_0")
        for name, cell in CELLS.items()
    }
    plan = make_plan(cells, 4, MICRO_BATCH, compute_dtype="bfloat16")
    assert [stage.boundary_bytes for stage in plan.stages] == [102, 198, 96, 0]
    assert plan.stages[1].activation_bytes == 10_000


def test_measured_seconds_take_the_place_of_flops() -> None:
    seconds = {"embed": 0.5, "layer_0": 0.125, "layer_1": 0.125, "softmax": 0.25}
    plan = make_plan(CELLS, 2, MICRO_BATCH, cell_seconds=seconds)
    assert plan.partition == [1, 3]
    assert plan.shares() == [0.5, 0.5]
    assert plan.seconds == 1.0
    header, first, *_ = (" ".join(line.split()) for line in format_plan(plan).splitlines())
    assert header == "stage cells device weights forward FLOPs seconds measured share crosses"
    assert first == "0 1: embed - 400 0 0.5 50.0% 198 B"
    assert make_plan(CELLS, 2, MICRO_BATCH).seconds is None


def test_seconds_of_some_cells_are_refused() -> None:
    with pytest.raises(PartitionError, match="cell_seconds lacks embed, softmax; give"):
        make_plan(CELLS, 2, MICRO_BATCH, cell_seconds={"layer_0": 1.0, "layer_1": 1.0})


def test_seconds_of_zero_have_shares_of_zero() -> None:
    plan = make_plan(CELLS, 2, MICRO_BATCH, cell_seconds=dict.fromkeys(CELLS, 0.0))
    assert plan.shares() == [0.0, 0.0]


# ------------------------------------------------------------------ memory


def settings(remat: str = "none", device_memory: int | None = None) -> MemorySettings:
    """Three micro-batches under GPipe, one slot for each weight."""
    return MemorySettings(
        num_micro_batches=3,
        remat=Rematerialisation(remat),
        weights=WeightBytes(num_slots=1),
        device_memory=device_memory,
    )


def test_the_plan_says_what_each_stage_holds() -> None:
    """Weights take 12 bytes, copies 8; a cell keeps 10 bytes a FLOP; 3 micro-batches, then 1.

    A cell that does not know needs both ends' gradients and that of its greatest weight.
    """
    plan = make_plan(CELLS, 2, MICRO_BATCH, partition=[3, 1], memory=settings())
    working = 198 + 4 * 400 + 192, 192 + 4 + 4 * 400  # The embedding's; and the softmax's.
    peaks = (
        544 * 12 + 3 * 20_000 + working[0],
        1 * 12 + 400 * 8 + 20_000 + working[1],
    )
    assert [stage.memory and stage.memory.peak_bytes for stage in plan.stages] == list(peaks)
    assert plan.device_bytes == peaks
    assert make_plan(CELLS, 2, MICRO_BATCH).device_bytes == ()


def test_the_table_shows_memory_and_rematerialisation() -> None:
    plan = make_plan(CELLS, 2, MICRO_BATCH, memory=settings("layer"))
    header, *rows, _ = [line.split() for line in format_plan(plan).splitlines()]
    assert header[-2:] == ["memory", "remat"]
    assert [row[-3:] for row in rows] == [["18.1", "KiB", "layer"], ["24.4", "KiB", "none"]]


def test_the_table_shows_what_auto_keeps() -> None:
    plan = make_plan(CELLS, 2, MICRO_BATCH, [3, 1], memory=settings("auto", 60_000))
    kept = plan.stages[0].memory
    assert kept is not None and 198 < kept.kept_bytes < 20_000
    assert 60_000 - 3 < kept.peak_bytes <= 60_000
    assert [stage.remat for stage in plan.stages] == ["keeps 13.9 KiB of 19.5 KiB", "none"]
    loose = make_plan(CELLS, 2, MICRO_BATCH, [3, 1], memory=settings("auto"))
    assert [stage.remat for stage in loose.stages] == ["none", "none"]


def test_devices_of_several_stages_have_a_line_of_their_own() -> None:
    interleaved = dataclasses.replace(
        settings(), schedule=ScheduleKind.interleaved, stages_per_device=2
    )
    plan = make_plan(CELLS, 4, MICRO_BATCH, memory=interleaved)
    last = format_plan(plan).splitlines()[-1]
    assert last.startswith("memory of each device, over its stages: ")
    assert len(plan.device_bytes) == 2


def test_replicas_have_a_line_of_their_own() -> None:
    plan = dataclasses.replace(make_plan(CELLS, 2, MICRO_BATCH), num_replicas=3)
    last = format_plan(plan).splitlines()[-1]
    assert last == "3 replicas of all stages, each with devices of its own"


def test_memory_moves_the_cut_away_from_the_balanced_one() -> None:
    free = make_plan(CELLS, 2, MICRO_BATCH, memory=settings())
    assert free.partition == [3, 1]
    assert max(free.device_bytes) > 50_000
    tight = make_plan(CELLS, 2, MICRO_BATCH, memory=settings(device_memory=50_000))
    assert tight.partition == [2, 2]
    assert max(tight.device_bytes) <= 50_000


def test_a_partition_that_does_not_fit_is_refused_with_the_arithmetic() -> None:
    words = (
        r"Stage 0 \(cells embed .. layer_1\) would take 66.9 KiB: 6.4 KiB of weights, gradients "
        r"and slots, 3 x 19.5 KiB that micro-batches keep, 1.9 KiB while one is in its backward "
        r"pass. device_memory is 48.8 KiB. Leave pipeline.partition out: another cut would do"
    )
    with pytest.raises(PartitionError, match=words):
        make_plan(CELLS, 2, MICRO_BATCH, [3, 1], memory=settings(device_memory=50_000))


def test_a_model_that_no_cut_makes_fit_is_refused() -> None:
    words = (
        r"Stage 0 .* device_memory is 9.8 KiB, and no cut into 2 stages takes less\. "
        r"Use more and smaller micro-batches: the weights fit\.$"
    )
    with pytest.raises(PartitionError, match=words):
        make_plan(CELLS, 2, MICRO_BATCH, memory=settings(device_memory=10_000))
    words = r"no cut into 1 stage takes less\. pipeline.num_stages=2 would do, or more"
    with pytest.raises(PartitionError, match=words):
        make_plan(CELLS, 1, MICRO_BATCH, memory=settings(device_memory=42_000))


def test_a_slow_link_moves_the_cut_to_where_less_is_sent() -> None:
    sends = {"embed": 8, "layer_0": 800, "layer_1": 8, "softmax": 1}
    cells = {
        name: dataclasses.replace(CELLS[name], sends=Spec((count,)))
        for name, count in sends.items()
    }
    seconds = dict.fromkeys(cells, 1.0)
    assert make_plan(cells, 2, MICRO_BATCH, cell_seconds=seconds).partition == [2, 2]
    # There and back: 6,400 bytes take 6.4 s after layer_0, 64 bytes 0.064 s elsewhere.
    slow = make_plan(cells, 2, MICRO_BATCH, cell_seconds=seconds, link_bandwidth=1000.0)
    assert slow.partition == [1, 3]  # 1.064 and 3 s, better than 3.064 and 1.
    assert slow.seconds == 4.0
