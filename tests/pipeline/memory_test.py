"""Predicted bytes of stages against arithmetic by hand, and bytes as people write them."""

from __future__ import annotations

import dataclasses
import random

import pytest

from lingpipe.base.cost import Cost
from lingpipe.base.spec import Spec
from lingpipe.errors import UserError
from lingpipe.pipeline.keeping import Rematerialisation
from lingpipe.pipeline.memory import (
    BytesError,
    CellMemory,
    StageMemory,
    WeightBytes,
    device_peaks,
    format_bytes,
    parse_bytes,
    stage_memory,
)
from lingpipe.pipeline.schedules import ScheduleKind, make_schedule


@dataclasses.dataclass(frozen=True)
class FakeWeight:
    size: int
    trainable: bool = True


def cell(
    kept: int,
    sends: int = 8,
    given: int = 8,
    working: int | None = 0,
    waiting: int | None = 0,
    passed: int = 0,
    weights: int = 0,
) -> CellMemory:
    """A cell that sends so many bytes."""
    cost = Cost(1, Spec((sends,), "bool"), kept, working, waiting, passed)
    return CellMemory({"kernel": FakeWeight(weights)}, cost, given)


def peak(cells: list[CellMemory], live: int, remat: str, *, keeps_all: bool = False) -> int:
    rule = Rematerialisation(remat)
    return stage_memory(cells, 1000, live, rule, keeps_all=keeps_all).peak_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1024", 1024),
        ("1B", 1),
        ("16GiB", 16 * 2**30),
        ("1.5 GiB", 3 * 2**29),
        ("500MB", 500_000_000),
        (" 2 kB ", 2000),
        ("1TiB", 2**40),
    ],
)
def test_bytes_are_read_as_people_write_them(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "16 gib", "-1GB", "1e9", "16GiBs", "0", "0.1B"])
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(BytesError, match=r"is no number of bytes; write it such|less than a byte"):
        parse_bytes(text)
    assert issubclass(BytesError, UserError)


def test_bytes_are_written_in_binary_units() -> None:
    counts = (0, 1023, 1024, 1_536, 2**20, 5 * 2**30, 2**50)
    words = [format_bytes(count) for count in counts]
    assert words == ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 GiB", "1024.0 TiB"]


def test_what_is_kept_counts_once_a_live_micro_batch_and_what_works_once() -> None:
    cells = [cell(kept=100, working=30), cell(kept=200, working=50)]
    assert peak(cells, 4, "none") == 1000 + 4 * 300 + 50 + 8
    assert peak(cells, 4, "layer") == 1000 + 4 * (8 + 8) + (200 + 50) + 8
    assert peak(cells, 4, "stage") == 1000 + 4 * 8 + (100 + 200) + 50 + 8


def test_the_last_stage_keeps_all_and_is_given_no_gradient() -> None:
    cells = [cell(kept=100, working=30), cell(kept=200, working=50)]
    for remat in ("none", "layer", "stage", "auto"):
        assert peak(cells, 1, remat, keeps_all=True) == 1000 + 300 + 50


def test_the_first_cell_of_the_model_is_never_computed_again() -> None:
    embedding = cell(kept=10, given=0, working=5)
    cells = [embedding, cell(kept=100, working=30), cell(kept=200, working=50)]
    assert peak(cells, 3, "none") == 1000 + 3 * 310 + 50 + 8
    assert peak(cells, 3, "layer") == 1000 + 3 * (10 + 8) + (200 + 50) + 8
    assert peak(cells, 3, "stage") == 1000 + 3 * 10 + (100 + 200) + 50 + 8
    assert peak([embedding], 3, "stage") == 1000 + 3 * 10 + 5 + 8
    # One that keeps nothing still hands on what the others are computed again from.
    batch = cell(kept=0, given=0)
    assert peak([batch, cells[1]], 3, "stage") == 1000 + 3 * 8 + 100 + 30 + 8


def test_gradients_that_wait_for_the_end_of_the_pass_add_up() -> None:
    cells = [cell(kept=100, working=30, waiting=20), cell(kept=200, working=50, waiting=25)]
    assert peak(cells, 4, "none") == 1000 + 4 * 300 + 50 + 8  # They are among the 50 here,
    assert peak(cells * 2, 4, "none") == 1000 + 4 * 600 + 90 + 8  # and not here.
    assert peak(cells * 2, 4, "stage") == 1000 + 4 * 8 + 600 + 90 + 8
    assert peak(cells * 2, 4, "layer") == 1000 + 4 * 32 + 200 + 90 + 8


def test_the_update_needs_two_gradients_when_all_passes_are_over() -> None:
    small = cell(kept=100, working=0, weights=10)
    assert peak([small], 1, "none") == 1000 + 100 + 8
    large = CellMemory({"table": FakeWeight(90)}, small.cost, 8)
    assert peak([small, large], 1, "none") == 1000 + 4 * (90 + 10)


def test_what_cells_hand_on_is_kept_once() -> None:
    """Decoder cells: 8 bytes of the target and 5 of the source, which all of them read."""
    cells = [cell(kept=100, sends=13, given=13, passed=5)] * 3
    assert peak(cells, 2, "layer") == 1000 + 2 * (13 + 8 + 8) + 100 + 13
    assert peak(cells, 2, "stage") == 1000 + 2 * 13 + 300 + 13
    assert peak(cells, 2, "none") == 1000 + 2 * (300 + 5) + 13


def test_a_cell_that_does_not_know_what_it_needs_at_work_gets_an_estimate() -> None:
    """Gradients of both ends and of the greatest weight, or those of all cells' outputs."""
    unknown = cell(100, working=None, waiting=None)
    assert peak([unknown] * 3, 1, "none") == 1308 + 3 * 8
    assert peak([unknown], 1, "none") == 1108 + 8 + 8
    assert peak([cell(100, working=None, weights=7)], 1, "none") == 1108 + 8 + 8 + 28
    # Computed again, a table that is read by rows has a gradient as large as itself.
    assert peak([cell(kept=100, working=3, weights=7)], 1, "layer") == 1008 + 100 + 28 + 8


def test_auto_keeps_as_much_as_fits() -> None:
    cells = [cell(kept=100, working=30), cell(kept=200, working=50)]

    def kept(device_memory: int | None) -> int:
        stage = stage_memory(
            cells, 1000, 4, Rematerialisation.auto, keeps_all=False, device_memory=device_memory
        )
        assert stage.full_bytes == 300
        fits = device_memory is None or stage.peak_bytes <= device_memory
        assert fits or stage.kept_bytes == 8
        return stage.kept_bytes

    assert kept(None) == 300
    assert kept(1000 + 4 * 300 + 50 + 8) == 300
    assert kept(1000 + 4 * 300 + 50 + 8 - 1) == (1200 + 58 - 1 - 258) // 4
    assert kept(1000 + 4 * 20 + 258) == 20
    assert kept(1000) == kept(1) == 8


def test_the_limit_of_what_is_kept_fills_the_device() -> None:
    stage = StageMemory(100, 3, kept_bytes=7, full_bytes=50, working_bytes=20)
    assert stage.peak_bytes == 100 + 21 + 20
    assert stage.kept_limit(220) == 33
    assert stage.kept_limit(119) == 0


def test_a_weight_takes_its_value_its_gradient_and_its_slots() -> None:
    weights = {"a": FakeWeight(10), "b": FakeWeight(3), "moving": FakeWeight(5, trainable=False)}
    assert WeightBytes(num_slots=2).fixed(weights, set()) == 13 * 16 + 5 * 4
    assert WeightBytes(num_slots=2).fixed(weights, {"b"}) == 10 * 16 + 3 * 8 + 5 * 4
    assert WeightBytes(num_slots=0).fixed(weights, set()) == 13 * 8 + 5 * 4
    assert WeightBytes(num_slots=0, compute_bytes=2).fixed(weights, set()) == 13 * 10 + 5 * 4
    # Of two replicas one has the slots of ten numbers, the other those of three.
    assert WeightBytes(num_slots=2, num_sharing=2).fixed(weights, set()) == 13 * 8 + 80 + 5 * 4
    assert WeightBytes(num_slots=2, num_sharing=3).fixed(weights, {"a"}) == 13 * 8 + 24 + 5 * 4


@pytest.mark.parametrize("number", range(50))
def test_the_bounds_of_cells_add_up_to_no_less_than_their_stage(number: int) -> None:
    chance = random.Random(number)
    rule = WeightBytes(chance.randint(0, 2), chance.choice([2, 4]), chance.randint(1, 4))
    cells = [
        {
            f"{cell}/{i}": FakeWeight(chance.randint(1, 60), chance.random() < 0.8)
            for i in range(chance.randint(0, 5))
        }
        for cell in range(chance.randint(1, 5))
    ]
    stage = {path: weight for cell in cells for path, weight in cell.items()}
    elsewhere = {path for path in stage if chance.random() < 0.2}
    bound = sum(rule.fixed_at_most(cell, elsewhere) for cell in cells)
    assert rule.fixed(stage, elsewhere) <= bound
    if rule.num_sharing == 1:
        assert rule.fixed(stage, elsewhere) == bound


def test_a_slot_of_one_gives_the_12_bytes_a_parameter_of_gpipe() -> None:
    """Huang et al. 2019, table 1, Transformer-L: weight, gradient and RMSProp's slot.

    With Adam, which has two slots, ours take 16.
    """
    for parameters, gibibytes in ((785.8e6, 8.8), (5.3e9, 59.5), (21.0e9, 235.1), (83.9e9, 937.9)):
        fixed = WeightBytes(num_slots=1).fixed({"w": FakeWeight(int(parameters))}, set())
        assert fixed / 2**30 == pytest.approx(gibibytes, rel=0.01)


def test_with_stages_recomputed_gpipe_holds_boundaries_of_all_and_activations_of_one() -> None:
    """O(N + L/K * N/M), Huang et al. 2019, section 2.3: N examples of 8 bytes, 100 a layer."""
    num_layers, num_stages, num_examples = 24, 4, 64
    for num_micro_batches in (1, 4, 16, 64):
        size = num_examples // num_micro_batches
        cells = [cell(kept=100 * size, sends=8 * size, given=8 * size)] * (num_layers // num_stages)
        schedule = make_schedule(ScheduleKind.gpipe, num_stages, num_micro_batches)
        live = schedule.peak_live_of_stages()
        assert live == (num_micro_batches,) * 3 + (1,)
        held = stage_memory(cells, 0, live[1], Rematerialisation.stage, keeps_all=False).peak_bytes
        assert held == 8 * num_examples + 100 * num_layers // num_stages * size + 8 * size


def test_a_device_of_one_stage_holds_what_its_stage_does() -> None:
    stages = [StageMemory(100 * k, 0, 10, 10, 7) for k in range(4)]
    for kind in (ScheduleKind.gpipe, ScheduleKind.one_forward_one_backward, ScheduleKind.zb_h1):
        schedule = make_schedule(kind, 4, 8)
        live = schedule.peak_live_of_stages()
        assert live == schedule.peak_live_micro_batches()
        held = [
            dataclasses.replace(stage, live_micro_batches=count)
            for stage, count in zip(stages, live, strict=True)
        ]
        assert device_peaks(schedule, held) == tuple(stage.peak_bytes for stage in held)


def test_of_two_stages_on_a_device_one_works_at_a_time() -> None:
    schedule = make_schedule(ScheduleKind.interleaved, 4, 4, stages_per_device=2)
    alike = [StageMemory(100, 0, kept_bytes=10, full_bytes=10, working_bytes=7)] * 4
    live = schedule.peak_live_micro_batches()
    assert device_peaks(schedule, alike) == tuple(200 + 10 * count + 7 for count in live)
    assert sum(schedule.peak_live_of_stages()) >= sum(live)
