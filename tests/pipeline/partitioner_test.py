"""The partitioner against brute force over all cuts, on the figures of others' bug reports."""

import itertools
import random
import time
from collections.abc import Sequence

import pytest

from lingpipe.errors import UserError
from lingpipe.pipeline.partitioner import PartitionError, balanced_partition, check_partition


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
def test_equal_cells_are_spread_evenly(num_cells: int, num_stages: int, largest: int) -> None:
    sizes = balanced_partition([3.0] * num_cells, num_stages)
    assert sum(sizes) == num_cells
    assert max(sizes) == largest
    assert min(sizes) >= 1


def test_equal_cells_that_divide_give_equal_stages() -> None:
    assert balanced_partition([1] * 8, 4) == [2, 2, 2, 2]
    assert balanced_partition([1] * 2, 2) == [1, 1]


@pytest.mark.parametrize("place", range(9))
def test_one_heavy_cell_stands_alone(place: int) -> None:
    costs = [1.0] * 9
    costs[place] = 100.0
    for num_stages in range(2, 7):
        assert_is_optimal(costs, num_stages)


def test_the_sum_of_all_stages_does_not_depend_on_their_number() -> None:
    costs = [5, 1, 4, 2, 8, 3]
    for num_stages in range(1, 7):
        assert sum(stage_costs(costs, balanced_partition(costs, num_stages))) == sum(costs)


def test_two_thousand_cells_over_128_stages_take_a_moment() -> None:
    numbers = random.Random(7)
    costs = [numbers.choice((0, numbers.randint(1, 1000))) for _ in range(2000)]
    start = time.process_time()
    sizes = balanced_partition(costs, 128)
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
