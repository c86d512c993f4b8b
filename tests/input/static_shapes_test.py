"""Few shapes: the ladder of widths, the rows of a batch, and the plan against brute force."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingpipe.input.static_shapes import filled, ladder, plan_buckets, rows_that_fit


def test_the_ladder_by_hand() -> None:
    assert ladder(256, 8, 256) == [8, 16, 24, 32, 48, 72, 104, 152, 224, 256]
    assert ladder(50, 8, 100) == [8, 16, 24, 32, 48, 72]
    assert ladder(400, 8, 100) == [8, 16, 24, 32, 48, 72, 104, 152, 224, 336, 504]
    assert ladder(1, 8) == [8]
    assert ladder(9, 1) == [1, 2, 3, 4, 6, 9]


@given(st.integers(1, 5000), st.integers(1, 64), st.none() | st.integers(1, 5000))
def test_a_ladder_is_short_and_reaches_as_far_as_it_must(
    reach: int, multiple: int, longest: int | None
) -> None:
    widths = ladder(reach, multiple, longest)
    assert all(width % multiple == 0 for width in widths)
    assert widths[-1] >= reach and all(width < reach for width in widths[:-1])
    for width, wider in itertools.pairwise(widths):
        assert width < wider <= max(1.5 * width, width + multiple)
    assert len(widths) <= 5 + np.log(max(1, reach / multiple)) / np.log(1.5)
    # How far it goes changes none of its widths: a shape of one batch is a shape of all.
    assert ladder(2 * reach, multiple, longest)[: len(widths)] == widths
    if longest is not None and longest <= reach:
        assert -(-longest // multiple) * multiple in widths


@pytest.mark.parametrize(
    ("width", "tokens", "multiple", "rows"),
    [(8, 8192, 4, 512), (104, 8192, 4, 36), (104, 8192, 1, 39), (256, 600, 4, 1), (256, 9, 4, 1)],
)
def test_rows_fill_the_budget_in_whole_multiples(
    width: int, tokens: int, multiple: int, rows: int
) -> None:
    assert rows_that_fit(width, 2, tokens, multiple) == rows


Buckets = st.lists(st.sampled_from([8, 16, 24, 48]), max_size=60)


@settings(deadline=None)
@given(Buckets, st.integers(48, 400), st.integers(0, 99))
def test_a_plan_holds_every_example_once_in_no_more_batches_than_its_buckets_need(
    widths: list[int], tokens: int, seed: int
) -> None:
    order = list(range(len(widths)))
    random.Random(seed).shuffle(order)

    def rows(width: int) -> int:
        return tokens // width

    plan = plan_buckets(np.array(widths, np.int64), np.array(order, np.int64), rows)
    assert sorted(itertools.chain(*plan)) == list(range(len(widths)))
    needed = sum(-(-widths.count(width) // rows(width)) for width in set(widths))
    assert len(plan) <= needed
    buckets = []
    for batch in plan:
        buckets.append(max(widths[number] for number in batch))
        assert 0 < len(batch) <= rows(buckets[-1])
    assert buckets == sorted(buckets)


def test_what_is_left_over_fills_free_rows_of_the_next_bucket() -> None:
    widths = np.array([8, 8, 8, 16, 8, 16, 16])
    order = np.arange(7)
    # One example of width 8 is left over, and one row of the second batch of width 16 is free.
    plan = plan_buckets(widths, order, lambda width: {8: 3, 16: 2}[width])
    assert [batch.tolist() for batch in plan] == [[0, 1, 2], [4, 3], [5, 6]]
    # A batch of width 24 has one row, which is taken.
    plan = plan_buckets(np.array([16, 24]), order[:2], lambda width: {16: 2, 24: 1}[width])
    assert [batch.tolist() for batch in plan] == [[0], [1]]


def test_no_examples_make_no_batches() -> None:
    none = np.zeros(0, np.int64)
    assert plan_buckets(none, none, lambda width: 1) == []


def test_zeros_fill_rows_and_columns() -> None:
    arrays = {"ids": np.array([[1, 2]], np.int32), "row": np.array([3.5], np.float32)}
    found = filled(arrays, 2, 3)
    np.testing.assert_array_equal(found["ids"], [[1, 2, 0], [0, 0, 0]])
    np.testing.assert_array_equal(found["row"], [3.5, 0])
    assert [array.dtype for array in found.values()] == [np.int32, np.float32]
