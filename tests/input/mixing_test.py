"""Pairs mix at p ~ D^(1/T), each line once an epoch, whatever came before, in little memory."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingpipe.input.mixing import CYCLE, MixedOrder, expected_epochs, probabilities


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 5.0, 100.0])
def test_probabilities_follow_the_formula(temperature: float) -> None:
    counts = [40_000_000, 900, 12_345, 1]
    shares = np.array(counts) / sum(counts)
    wanted = shares ** (1 / temperature) / np.sum(shares ** (1 / temperature))
    np.testing.assert_allclose(probabilities(counts, temperature), wanted, rtol=1e-12)


def test_temperature_5_of_a_hundredfold_difference() -> None:
    # 100^(1/5) = 2.512: the small pair is drawn 2.5 times less, not 100 times.
    np.testing.assert_allclose(probabilities([100, 1], 5.0), [0.71525, 0.28475], atol=1e-5)


def test_extreme_temperatures_stay_finite() -> None:
    np.testing.assert_allclose(probabilities([10**8, 10], 1e-3), [1, 0])
    np.testing.assert_allclose(probabilities([10**8, 10], float("inf")), [0.5, 0.5])


@pytest.mark.parametrize(
    ("counts", "temperature", "words"),
    [
        ([], 1.0, r"Every pair must have at least 1 line; got \[\]"),
        ([3, 0], 1.0, r"Every pair must have at least 1 line; got \[3, 0\]"),
        ([3], 0.0, r"temperature \(0.0\) must be greater than 0"),
        ([3], float("nan"), r"temperature \(nan\) must be greater than 0"),
    ],
)
def test_impossible_mixtures(counts: list[int], temperature: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        probabilities(counts, temperature)


def test_expected_epochs() -> None:
    np.testing.assert_allclose(expected_epochs([100, 10], np.array([0.75, 0.25]), 400), [3, 10])


def test_a_cycle_holds_each_pairs_share_to_the_draw() -> None:
    counts = [9_000_000, 50_000, 700, 3]
    order = MixedOrder(counts, 2.0, seed=1)
    drawn = np.bincount(order.draws(np.arange(CYCLE)).pairs)
    assert np.abs(drawn - probabilities(counts, 2.0) * CYCLE).max() <= 1


def test_the_rarest_pair_is_seen() -> None:
    drawn = MixedOrder([10**8, 1], 1.0, seed=1).draws(np.arange(CYCLE))
    assert (drawn.pairs == 1).sum() == 1


@settings(max_examples=6, deadline=None)
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=5),
    st.floats(0.7, 10),
    st.integers(0, 2**32),
)
def test_every_line_of_a_pair_once_an_epoch(
    counts: list[int], temperature: float, seed: int
) -> None:
    order = MixedOrder(counts, temperature, seed)
    drawn = order.draws(np.arange(CYCLE - 5000, CYCLE + 5000))  # Across the end of a cycle.
    for pair, count in enumerate(counts):
        lines, epochs = drawn.lines[drawn.pairs == pair], drawn.epochs[drawn.pairs == pair]
        assert (np.diff(epochs) >= 0).all()
        for epoch in np.unique(epochs)[1:-1]:  # The first and last are cut by the range.
            assert sorted(lines[epochs == epoch]) == list(range(count))


def test_each_epoch_and_each_pair_has_its_own_order() -> None:
    drawn = MixedOrder([500, 500], 1.0, seed=3).draws(np.arange(20_000))
    orders = [
        tuple(drawn.lines[(drawn.pairs == pair) & (drawn.epochs == epoch)].tolist())
        for pair in (0, 1)
        for epoch in range(10)
    ]
    assert len(set(orders)) == 20


def test_a_position_holds_the_same_whatever_is_asked_with_it() -> None:
    order = MixedOrder([1000, 77, 5], 3.0, seed=5)
    whole = order.draws(np.arange(3000))
    alone = MixedOrder([1000, 77, 5], 3.0, seed=5).draws(np.array([2999, 17]))
    assert alone.lines.tolist() == whole.lines[[2999, 17]].tolist()
    assert alone.pairs.tolist() == whole.pairs[[2999, 17]].tolist()
    other = MixedOrder([1000, 77, 5], 3.0, seed=6).draws(np.arange(3000))
    assert (other.lines != whole.lines).mean() > 0.9


def test_a_thousand_pairs_of_a_hundred_million_lines_take_little_memory() -> None:
    counts = [10**8] * 500 + [10**5] * 500
    tracemalloc.start()
    order = MixedOrder(counts, 5.0, seed=1)
    kept, peak = tracemalloc.get_traced_memory()
    drawn = order.draws(np.arange(10**12, 10**12 + 4096))
    tracemalloc.stop()
    assert kept < 10e6
    assert peak < 60e6
    assert drawn.lines.max() < 10**8 and drawn.lines.min() >= 0
    assert len(np.unique(drawn.pairs)) > 850


def test_more_pairs_than_a_cycle_holds() -> None:
    with pytest.raises(ValueError, match="1048577 pairs are too many; at most 1048576 can mix"):
        MixedOrder([1] * (CYCLE + 1), 1.0, seed=0)
