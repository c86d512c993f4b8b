"""A computed shuffle is one-to-one, looks random, and stays what it is."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingpipe.input.permutation import key, permute, shuffled


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_every_index_goes_to_a_place_of_its_own(size: int, a_key: int) -> None:
    assert sorted(permute(np.arange(size), size, a_key)) == list(range(size))


def test_every_order_of_four_is_about_equally_likely() -> None:
    orders = collections.Counter(
        tuple(permute(np.arange(4), 4, key(n)).tolist()) for n in range(2400)
    )
    assert len(orders) == 24
    assert all(60 < count < 140 for count in orders.values())  # 100 each, 4 sigma.


def test_neighbours_part() -> None:
    places = permute(np.arange(10_000), 10_000, key(1))
    assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < 0.04
    assert (np.abs(np.diff(places)) == 1).sum() < 12  # 2 expected.


def test_sizes_and_keys_may_differ_from_index_to_index() -> None:
    sizes, keys = np.array([5, 900, 10**8]), np.array([1, 2, 3], np.uint64)
    together = permute(np.array([4, 17, 99]), sizes, keys)
    alone = [
        int(permute(np.array([i]), int(n), int(k))[0])
        for i, n, k in zip([4, 17, 99], sizes, keys, strict=True)
    ]
    assert together.tolist() == alone


def test_the_order_never_changes_between_versions() -> None:
    """A resumed run would see other data: change these numbers only with a note to users."""
    assert permute(np.arange(10), 10, key(1, "lines")).tolist() == [9, 6, 5, 2, 4, 8, 1, 3, 7, 0]
    assert shuffled(8, key(1, "pairs")).tolist() == [2, 7, 0, 6, 1, 3, 4, 5]


@pytest.mark.parametrize("parts", [(1, 23), (12, 3), ("1", 23), (-1,), (2**200,), ()])
def test_keys_of_different_things_differ(parts: tuple[int | str, ...]) -> None:
    others = [(1, 23), (12, 3), ("1", 23), (-1,), (2**200,), ()]
    assert [key(*other) for other in others].count(key(*parts)) == 1
    assert 0 <= key(*parts) < 2**64
