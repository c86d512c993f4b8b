"""The partitioner against brute force over all cuts, on the figures of others' bug reports."""

import itertools
import random
import re
import time
from collections.abc import Sequence

import pytest

from lingpipe.errors import UserError
from lingpipe.pipeline.partitioner import (
    MemoryLimits,
    PartitionError,
    balanced_partition,
    check_partition,
)


def alike(cells: Sequence[int], stages: Sequence[int]) -> MemoryLimits:
    """Cells that hold the same on every stage and need nothing on top."""
    return MemoryLimits([cells] * len(stages), [[0] * len(cells)] * len(stages), stages)


def stage_costs(costs: Sequence[float], sizes: Sequence[int]) -> list[float]:
    ends = list(itertools.accumulate(sizes))
    return [sum(costs[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def best_bottleneck(costs: Sequence[float], num_stages: int) -> float:
    """The smallest possible cost of the largest stage, by trying every cut."""
    count = len(costs)
    return min(
        max(sum(costs[a:b]) for a, b in itertools.pairwise((0, *cuts, count)))
        for cuts in itertools.combinations(range(1, count), num_stages - 1)
    )


def assert_is_optimal(costs: Sequence[float], num_stages: int) -> None:
    sizes = balanced_partition(costs, num_stages)
    assert len(sizes) == num_stages
    assert min(sizes) >= 1
    assert sum(sizes) == len(costs)
    assert max(stage_costs(costs, sizes)) == pytest.approx(best_bottleneck(costs, num_stages)), (
        costs,
        sizes,
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_largest_stage_is_as_small_as_brute_force_finds(seed: int) -> None:
    numbers = random.Random(seed)
    draws = {
        "small integers": lambda: numbers.randint(1, 9),
        "many zeros": lambda: numbers.choice((0, 0, 0, 1, 7)),
        "reals": lambda: numbers.uniform(0, 1),
        "magnitudes": lambda: 10.0 ** numbers.randint(-6, 12),
        "zeros": lambda: 0,
    }
    for draw in draws.values():
        for count in (1, 2, 5, 9):
            costs = [draw() for _ in range(count)]
            for num_stages in range(1, count + 1):
                assert_is_optimal(costs, num_stages)


@pytest.mark.parametrize(
    ("num_cells", "num_stages", "largest"),
    [(15, 8, 2), (38, 8, 5), (8, 4, 2), (2, 2, 1), (5, 1, 5)],
)
def test_p09_equal_cells_are_spread_evenly(num_cells: int, num_stages: int, largest: int) -> None:
    sizes = balanced_partition([3.0] * num_cells, num_stages)
    assert sum(sizes) == num_cells
    assert max(sizes) == largest
    assert min(sizes) >= 1


def test_p09_equal_cells_that_divide_give_equal_stages() -> None:
    assert balanced_partition([1] * 8, 4) == [2, 2, 2, 2]
    assert balanced_partition([1] * 2, 2) == [1, 1]


@pytest.mark.parametrize("place", range(9))
def test_p09_one_heavy_cell_stands_alone(place: int) -> None:
    costs = [1.0] * 9
    costs[place] = 100.0
    for num_stages in range(2, 7):
        assert_is_optimal(costs, num_stages)


def test_the_sum_of_all_stages_does_not_depend_on_their_number() -> None:
    costs = [5, 1, 4, 2, 8, 3]
    for num_stages in range(1, 7):
        assert sum(stage_costs(costs, balanced_partition(costs, num_stages))) == sum(costs)


def every_cut(num_cells: int, num_stages: int) -> list[list[int]]:
    """The sizes of the stages for every way to cut."""
    places = itertools.combinations(range(1, num_cells), num_stages - 1)
    return [[b - a for a, b in itertools.pairwise((0, *cut, num_cells))] for cut in places]


def costs_with_sending(
    costs: Sequence[float], sending: Sequence[float], sizes: Sequence[int]
) -> list[float]:
    ends = list(itertools.accumulate(sizes))
    sent = [sending[end - 1] if end < len(costs) else 0 for end in ends]
    return [cost + extra for cost, extra in zip(stage_costs(costs, sizes), sent, strict=True)]


@pytest.mark.parametrize("seed", range(6))
def test_sending_and_limits_are_minded_as_brute_force_minds_them(seed: int) -> None:
    numbers = random.Random(seed)
    num_refused = 0
    for _ in range(150):
        count = numbers.randint(1, 8)
        num_stages = numbers.randint(1, count)
        costs = [numbers.choice((0, numbers.randint(1, 9), numbers.random())) for _ in range(count)]
        sending = [numbers.choice((0, numbers.randint(0, 20))) for _ in range(count - 1)]
        held = [numbers.randint(0, 5) for _ in range(count)]
        limits = [numbers.randint(3, 12) for _ in range(num_stages)]
        allowed = [
            sizes
            for sizes in every_cut(count, num_stages)
            if all(a <= b for a, b in zip(stage_costs(held, sizes), limits, strict=True))
        ]
        memory = alike(held, limits)
        if not allowed:
            num_refused += 1
            with pytest.raises(PartitionError, match="No cut into"):
                balanced_partition(costs, num_stages, sending_costs=sending, memory=memory)
            continue
        sizes = balanced_partition(costs, num_stages, sending_costs=sending, memory=memory)
        assert sizes in allowed
        best = min(max(costs_with_sending(costs, sending, cut)) for cut in allowed)
        assert max(costs_with_sending(costs, sending, sizes)) == pytest.approx(best, rel=1e-12)
    assert 0 < num_refused < 150


def test_of_equal_cuts_the_latest_wins() -> None:
    assert balanced_partition([1] * 5, 4) == [2, 1, 1, 1]
    assert balanced_partition([4, 0, 0, 4], 2) == [3, 1]
    # Three times 0.1 is more than 0.3 once it has been rounded.
    assert balanced_partition([0.1] * 15, 8) == [2] * 7 + [1]
    assert balanced_partition([0.1] * 9, 3) == balanced_partition([1] * 9, 3) == [3, 3, 3]


def test_a_cut_moves_away_from_where_sending_is_dear() -> None:
    costs = [1, 1, 1, 1]
    assert balanced_partition(costs, 2, sending_costs=[0, 0, 0]) == [2, 2]
    assert balanced_partition(costs, 2, sending_costs=[0, 9, 0]) == [3, 1]
    assert balanced_partition(costs, 2, sending_costs=[0, 9, 2]) == [1, 3]


def test_a_limit_moves_a_cut_and_each_stage_has_its_own() -> None:
    costs, held = [1, 1, 1, 1], [5, 5, 1, 1]
    assert balanced_partition(costs, 2, memory=alike(held, [10, 10])) == [2, 2]
    assert balanced_partition(costs, 2, memory=alike(held, [7, 7])) == [1, 3]
    assert balanced_partition(costs, 2, memory=alike(held, [11, 1])) == [3, 1]


@pytest.mark.parametrize(
    ("held", "limits", "words"),
    [
        (
            [40, 30, 50, 30],
            [60, 60],
            "No cut into 2 stages keeps each within its limit (60 bytes): the cells would take "
            "150 bytes on the first, and the heaviest (number 2, counted from 0) takes 50 alone. "
            "Limits greater by 20 bytes would do; or more stages.",
        ),
        (
            [10, 1200, 10, 10],
            [1000, 1000],
            "(1,000 bytes): the cells would take 1,230 bytes on the first, and the heaviest "
            "(number 1, counted from 0) takes 1,200 alone. Limits greater by 210 bytes would do; "
            "more stages do not help, since the heaviest cell fits none; cut it into several.",
        ),
        (
            [10, 10, 10, 50],
            [60, 20],
            "([60, 20] bytes): the cells would take 80 bytes on the first, and the heaviest "
            "(number 3, counted from 0) takes 50 alone. Limits greater by 30 bytes would do; or "
            "more stages.",
        ),
    ],
)
def test_limits_that_cannot_be_kept_to_are_refused_with_what_would_do(
    held: list[int], limits: list[int], words: str
) -> None:
    with pytest.raises(PartitionError, match=re.escape(words)):
        balanced_partition([1, 1, 1, 1], 2, memory=alike(held, limits))


def test_the_limits_that_a_refusal_names_do_and_smaller_ones_do_not() -> None:
    numbers = random.Random(3)
    for _ in range(100):
        held = [numbers.randint(1, 50) for _ in range(8)]
        limits = [max(held)] * 3
        with pytest.raises(PartitionError) as refusal:
            balanced_partition(held, 3, memory=alike(held, limits))
        told = re.search(r"Limits greater by (\d+) bytes", str(refusal.value))
        assert told is not None
        missing = int(told[1])
        enough = [limit + missing for limit in limits]
        balanced_partition(held, 3, memory=alike(held, enough))
        with pytest.raises(PartitionError):
            less = [limit - 1 for limit in enough]
            balanced_partition(held, 3, memory=alike(held, less))


@pytest.mark.parametrize("seed", range(4))
def test_what_cells_take_may_differ_from_stage_to_stage(seed: int) -> None:
    numbers = random.Random(seed)
    num_refused = 0
    for _ in range(150):
        count = numbers.randint(1, 8)
        num_stages = numbers.randint(1, count)
        costs = [numbers.randint(0, 9) for _ in range(count)]
        sending = [numbers.choice((0, numbers.randint(0, 20))) for _ in range(count - 1)]
        held = [[numbers.randint(0, 5) for _ in range(count)] for _ in range(num_stages)]
        working = [[numbers.randint(0, 8) for _ in range(count)] for _ in range(num_stages)]
        limits = [numbers.randint(6, 20) for _ in range(num_stages)]
        memory = MemoryLimits(held, working, limits)
        allowed = []
        for sizes in every_cut(count, num_stages):
            ends = list(itertools.accumulate(sizes))
            spans = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
            taken = [sum(held[k][span]) + max(working[k][span]) for k, span in enumerate(spans)]
            assert taken == [memory.taken(k, span) for k, span in enumerate(spans)]
            if all(a <= b for a, b in zip(taken, limits, strict=True)):
                allowed.append(sizes)
        if not allowed:
            num_refused += 1
            with pytest.raises(PartitionError, match="No cut into"):
                balanced_partition(costs, num_stages, sending_costs=sending, memory=memory)
            continue
        sizes = balanced_partition(costs, num_stages, sending_costs=sending, memory=memory)
        assert sizes in allowed
        best = min(max(costs_with_sending(costs, sending, cut)) for cut in allowed)
        assert max(costs_with_sending(costs, sending, sizes)) == best
    assert 0 < num_refused < 150


def test_too_few_numbers_are_refused() -> None:
    with pytest.raises(PartitionError, match=r"sending_costs has 2 numbers; .* need 1\."):
        balanced_partition([1, 1], 2, sending_costs=[0, 0])
    with pytest.raises(PartitionError, match=r"memory.held has 1 numbers; .* need 2\."):
        balanced_partition([1, 1], 2, memory=alike([1], [1, 1]))
    with pytest.raises(PartitionError, match=r"held has 3 rows .*working 3; 2 stages need one"):
        balanced_partition([1, 1], 2, memory=alike([1, 1], [1, 1, 1]))
    rows = [[1, 1], [1, 1]]
    with pytest.raises(PartitionError, match=r"memory.stages has 3 numbers; .* need 2\."):
        balanced_partition([1, 1], 2, memory=MemoryLimits(rows, rows, [1, 1, 1]))
    with pytest.raises(PartitionError, match=r"sending_costs must be finite .* got \[-1\]"):
        balanced_partition([1, 1], 2, sending_costs=[-1])


def test_two_thousand_cells_over_128_stages_take_a_moment() -> None:
    numbers = random.Random(7)
    costs = [numbers.choice((0, numbers.randint(1, 1000))) for _ in range(2000)]
    held = [[numbers.randint(1, 9) for _ in costs] for _ in range(128)]
    memory = MemoryLimits(held, held, [sum(map(max, zip(*held, strict=True)))] * 128)
    start = time.process_time()
    sizes = balanced_partition(costs, 128)
    assert balanced_partition(costs, 128, memory=memory) == sizes
    assert time.process_time() - start < 5.0
    assert (len(sizes), sum(sizes), min(sizes) >= 1) == (128, 2000, True)
    largest = max(stage_costs(costs, sizes))
    # No cut can beat both the average and the heaviest cell; one of neighbours comes this close.
    assert max(sum(costs) / 128, max(costs)) <= largest <= sum(costs) / 128 + max(costs)


@pytest.mark.parametrize(
    ("costs", "num_stages", "words"),
    [
        ([1, 1], 3, r"num_stages \(3\) is more than the number of cells \(2\).* at most 2 stages"),
        ([], 1, r"num_stages \(1\) is more than the number of cells \(0\)"),
        ([1], 0, r"num_stages \(0\) must be at least 1\."),
        ([1, -2.5], 1, r"Costs must be finite numbers of at least 0; got \[-2\.5\]\."),
        ([1, float("nan")], 1, r"Costs must be finite numbers of at least 0; got \[nan\]\."),
        ([1, float("inf")], 1, r"Costs must be finite numbers of at least 0; got \[inf\]\."),
    ],
)
def test_what_cannot_be_cut_is_refused(costs: list[float], num_stages: int, words: str) -> None:
    with pytest.raises(PartitionError, match=words) as refusal:
        balanced_partition(costs, num_stages)
    assert isinstance(refusal.value, UserError)


def test_an_explicit_partition_is_taken_as_it_is() -> None:
    assert check_partition((3, 1, 2), num_cells=6, num_stages=3) == [3, 1, 2]


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        ([3, 3], r"partition \[3, 3\] has 2 stages but num_stages is 3"),
        ([3, 0, 3], r"partition \[3, 0, 3\] has an empty stage; each needs a cell\."),
        ([7, -2, 1], r"partition \[7, -2, 1\] has an empty stage"),
        ([3, 3, 1], r"partition \[3, 3, 1\] covers 7 cells but the model has 6; .* up to 6\."),
        ([], r"partition \[\] has 0 stages"),
    ],
)
def test_an_explicit_partition_that_is_none_is_refused(partition: list[int], words: str) -> None:
    with pytest.raises(PartitionError, match=words):
        check_partition(partition, num_cells=6, num_stages=3)
