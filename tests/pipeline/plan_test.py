"""The plan counts every weight once, says what crosses boundaries and prints itself as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from lingpipe.base.cost import Cost
from lingpipe.base.spec import Spec, Specs
from lingpipe.pipeline.partitioner import PartitionError
from lingpipe.pipeline.plan import format_plan, make_plan


@dataclasses.dataclass(frozen=True)
class FakeWeight:
    size: int


@dataclasses.dataclass(frozen=True)
class FakeCell:
    """Params of a cell as the plan sees them; no TensorFlow."""

    weights: Mapping[str, int]
    flops: int
    sends: Specs

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
        "stage  cells                device  weights          forward FLOPs  share  sends",
        "0      3: embed .. layer_1  /CPU:0  544              2e+03          50.0%  192 B",
        "1      1: softmax           /CPU:1  1 (+400 shared)  2e+03          50.0%  0 B",
        "total 545 weights; one micro-batch: ids [2, 3]",
    ]


def test_the_table_does_without_devices() -> None:
    row = format_plan(make_plan(CELLS, 1, MICRO_BATCH)).splitlines()[1].split()
    assert row == ["0", "4:", "embed", "..", "softmax", "-", "545", "4e+03", "100.0%", "0", "B"]
