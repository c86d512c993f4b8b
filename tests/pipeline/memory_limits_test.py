"""Cuts that fit devices, against all cuts there are."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re

import pytest

from lingpipe.base.cost import Cost
from lingpipe.base.spec import Spec
from lingpipe.pipeline.keeping import Rematerialisation
from lingpipe.pipeline.memory import CellMemory, WeightBytes
from lingpipe.pipeline.memory_limits import (
    MemorySettings,
    fits,
    fitting_partition,
    memory_limits,
    memory_of_stages,
)
from lingpipe.pipeline.partitioner import PartitionError, lightest_partition
from lingpipe.pipeline.schedules import ScheduleKind


@dataclasses.dataclass(frozen=True)
class FakeWeight:
    size: int
    trainable: bool = True


def drawn_cells(numbers: random.Random, count: int) -> list[CellMemory]:
    """Cells of random sizes, some of which share a table."""
    given = 0
    cells = []
    for index in range(count):
        sends = numbers.randint(1, 20)
        weights = {f"{index}/kernel": FakeWeight(numbers.randint(0, 9))}
        if not numbers.randrange(3):
            weights["table"] = FakeWeight(7)
        cost = Cost(
            flops=numbers.randint(0, 9),
            outputs=Spec((sends,), "bool"),
            activation_bytes=numbers.randint(0, 50),
            working_bytes=numbers.choice((None, numbers.randint(0, 60))),
            passed_bytes=numbers.choice((0, numbers.randint(0, min(given, sends)))),
        )
        cells.append(CellMemory(weights, cost, given))
        given = sends
    return cells


def drawn_settings(numbers: random.Random, num_stages: int) -> MemorySettings:
    kind = numbers.choice(list(ScheduleKind))
    each = [v for v in (1, 2, 3) if num_stages % v == 0]
    return MemorySettings(
        schedule=kind,
        num_micro_batches=numbers.randint(1, 5),
        stages_per_device=numbers.choice(each) if kind is ScheduleKind.interleaved else 1,
        remat=numbers.choice(list(Rematerialisation)),
        weights=WeightBytes(num_slots=numbers.randint(0, 2)),
        device_memory=numbers.randint(50, 900),
    )


def every_cut(count: int, num_stages: int) -> list[list[int]]:
    places = itertools.combinations(range(1, count), num_stages - 1)
    return [[b - a for a, b in itertools.pairwise((0, *cut, count))] for cut in places]


@pytest.mark.parametrize("seed", range(4))
def test_what_limits_allow_fits_and_the_lightest_cut_is_nearly_so(seed: int) -> None:
    numbers = random.Random(seed)
    num_fitting = num_refused = 0
    for _ in range(60):
        count = numbers.randint(1, 7)
        num_stages = numbers.randint(1, count)
        cells = drawn_cells(numbers, count)
        settings = drawn_settings(numbers, num_stages)
        limits = memory_limits(cells, num_stages, settings)
        for sizes in every_cut(count, num_stages):
            spans = [
                slice(end - size, end)
                for size, end in zip(sizes, itertools.accumulate(sizes), strict=True)
            ]
            if all(limits.taken(k, span) <= limits.stages[k] for k, span in enumerate(spans)):
                num_fitting += 1
                assert fits(memory_of_stages(cells, sizes, settings), settings)
        flops = [cell.cost.flops for cell in cells]
        names = [f"cell_{index}" for index in range(count)]
        try:
            sizes = fitting_partition(cells, names, num_stages, settings, flops)
        except PartitionError as refusal:
            num_refused += 1
            assert "device_memory is" in str(refusal)
            lightest = lightest_partition(limits)
            assert not fits(memory_of_stages(cells, lightest, settings), settings)
        else:
            assert fits(memory_of_stages(cells, sizes, settings), settings)
    assert num_fitting > 20
    assert num_refused > 5


def test_what_a_refusal_names_fits_and_no_fewer_stages_do() -> None:
    """Against all cuts there are, with the rematerialisation that it names."""
    numbers = random.Random(0)
    named = 0
    for _ in range(200):
        count = numbers.randint(2, 7)
        cells = drawn_cells(numbers, count)
        settings = drawn_settings(numbers, 1)
        names = [f"cell_{index}" for index in range(count)]
        try:
            fitting_partition(cells, names, 1, settings, [1.0] * count)
        except PartitionError as refusal:
            words = re.search(r"(\S+ with )?pipeline\.num_stages=(\d+) would", str(refusal))
            if words:
                named += 1
                stages = int(words[2])
                tried = (
                    dataclasses.replace(settings, remat=Rematerialisation.auto)
                    if words[1]
                    else settings
                )
                assert any(fits_so(cells, sizes, tried) for sizes in every_cut(count, stages))
                for fewer in range(2, stages):
                    limits = memory_limits(cells, fewer, settings)
                    assert not fits_so(cells, lightest_partition(limits), settings)
    assert named > 10


def fits_so(cells: list[CellMemory], sizes: list[int], settings: MemorySettings) -> bool:
    return fits(memory_of_stages(cells, sizes, settings), settings)


@pytest.mark.parametrize("needed", [1, 2, 16, 17, 18, 40, 100, 130])
def test_many_stages_are_advised_where_as_many_are_needed(needed: int) -> None:
    """Of 130 equal cells of 80 bytes, and 80 while they are updated."""
    cost = Cost(1, Spec((1,), "bool"), 0, 0, 0)
    cells = [CellMemory({str(k): FakeWeight(10)}, cost, min(k, 1)) for k in range(130)]
    most = -(-130 // needed)  # Cells of a stage.
    settings = MemorySettings(device_memory=80 * (most + 1) + 1)
    names = [str(k) for k in range(130)]
    if needed == 1:
        assert fitting_partition(cells, names, 1, settings, [1.0] * 130) == [130]
        return
    with pytest.raises(PartitionError, match=rf"num_stages={-(-130 // most)} would do"):
        fitting_partition(cells, names, 1, settings, [1.0] * 130)


@pytest.mark.parametrize(
    ("device_memory", "kept", "advice"),
    [
        # Each cell has 80 bytes of weights and gradients, and 80 more while they are updated.
        (100, 0, "Use smaller cells or more memory: no number of stages holds the weights."),
        (400, 1000, "Use more and smaller micro-batches: the weights fit."),
        (250, 1000, "The weights fit from pipeline.num_stages=3 on: take as many stages, and"),
        (250, 10, "pipeline.num_stages=3 would do."),
        # Two cells: 160 bytes of weights, 200 kept and one at the boundary.
        (400, 100, "pipeline.num_stages=3 would do, or more and smaller micro-batches."),
    ],
)
def test_smaller_micro_batches_are_advised_only_where_the_weights_fit(
    device_memory: int, kept: int, advice: str
) -> None:
    cost = Cost(1, Spec((1,), "bool"), kept, 0, 0)
    cells = [CellMemory({str(k): FakeWeight(10)}, cost, min(k, 1)) for k in range(5)]
    with pytest.raises(PartitionError) as refusal:
        settings = MemorySettings(device_memory=device_memory)
        fitting_partition(cells, list("abcde"), 2, settings, [1.0] * 5)
    assert str(refusal.value).partition("takes less. ")[2].startswith(advice)


def test_1f1b_cuts_more_cells_onto_the_stages_that_hold_fewer_micro_batches() -> None:
    """Stage k of 4 holds 4 - k micro-batches of 10 bytes a cell, and each sends a byte."""
    cell = CellMemory({}, Cost(1, Spec((1,), "bool"), 10, 0, 0), 1)
    first = dataclasses.replace(cell, input_bytes=0)
    settings = MemorySettings(
        schedule=ScheduleKind.one_forward_one_backward, num_micro_batches=8, device_memory=130
    )
    cells = [first, *[cell] * 15]
    sizes = fitting_partition(cells, [str(k) for k in range(16)], 4, settings, [1.0] * 16)
    held = memory_of_stages(cells, sizes, settings)
    assert [stage.live_micro_batches for stage in held] == [4, 3, 2, 1]
    assert sizes == [3, 4, 5, 4]
    # Under GPipe all but the last hold 8.
    gpipe = dataclasses.replace(settings, schedule=ScheduleKind.gpipe)
    sizes = fitting_partition(cells, [str(k) for k in range(16)], 4, gpipe, [1.0] * 16)
    assert sizes == [1, 1, 1, 13]


def test_a_refusal_of_several_stages_on_a_device_says_what_they_take_together() -> None:
    cells = drawn_cells(random.Random(1), 6)
    settings = MemorySettings(
        schedule=ScheduleKind.interleaved, stages_per_device=2, device_memory=50
    )
    with pytest.raises(PartitionError, match=r"The 2 stages of its device take \d+ B\. device_mem"):
        fitting_partition(cells, list("abcdef"), 4, settings, [1.0] * 6)
