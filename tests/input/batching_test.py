"""Batches keep their budget, lose nothing, and go on from any cursor as if never interrupted."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingpipe.input.batch import Batch, Cursor
from lingpipe.input.batching import (
    BatchingError,
    Budget,
    evaluation_batches,
    plan_batches,
    short_enough,
    training_batches,
)

Lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), max_size=80)


@dataclasses.dataclass(frozen=True)
class Numbers:
    """A window of examples that are nothing but their positions and lengths."""

    positions: np.ndarray
    lengths: np.ndarray

    def collate(self, rows: np.ndarray, length_multiple: int) -> dict[str, Any]:
        return {"positions": self.positions[rows]}


def window_of(number: int, size: int = 200) -> Numbers:
    rng = np.random.default_rng(number)
    return Numbers(np.arange(size) + number * size, rng.integers(1, 40, (size, 2)))


def stream(cursor: Cursor, count: int, **changes: Any) -> list[Batch]:
    options: dict[str, Any] = {
        "budget": Budget(400, 40, 8),
        "seed": 1,
        "report_dropped": lambda positions, lengths: None,
    }
    return list(itertools.islice(training_batches(window_of, cursor, **options | changes), count))


@settings(deadline=None)
@given(Lengths, st.integers(1, 500), st.integers(1, 9))
def test_the_budget_is_never_exceeded_and_every_row_is_in_one_batch(
    pairs: list[tuple[int, int]], tokens: int, multiple: int
) -> None:
    lengths = np.array(pairs, np.int64).reshape(-1, 2)
    budget = Budget(tokens, None, multiple)
    plan = plan_batches(lengths, budget)
    for rows in plan:
        sides = [-(-max(lengths[rows, side]) // multiple) * multiple for side in (0, 1)]
        assert len(rows) * sum(sides) <= tokens or len(rows) == 1
    assert sorted(itertools.chain(*plan)) == list(range(len(pairs)))


def test_no_batch_could_take_the_next_row_too() -> None:
    lengths = window_of(0).lengths
    budget = Budget(400, 40, 1)
    plan = plan_batches(lengths, budget)
    for rows, following in itertools.pairwise(plan):
        grown = np.append(rows, following[0])
        assert len(grown) * lengths[grown].max(axis=0).sum() > 400


def test_a_batch_by_hand() -> None:
    lengths = np.array([[3, 3], [9, 2], [4, 4], [2, 3], [9, 9]])
    # Padded to multiples of 4: 4+4, 12+4, 4+4, 4+4, 12+12. Three short ones make 24 tokens.
    plan = plan_batches(lengths, Budget(24, None, 4))
    assert [sorted(rows.tolist()) for rows in plan] == [[0, 2, 3], [1], [4]]


def test_like_lengths_share_a_batch() -> None:
    batches = stream(Cursor(), 60, budget=Budget(800, 40, 1))
    tokens, padded = (sum(getattr(b, n) for b in batches) for n in ("tokens", "padded_tokens"))
    assert 1 - tokens / padded < 0.3  # In stream order about a half would be padding.


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 70))
def test_going_on_from_any_cursor_equals_going_on(done: int) -> None:
    whole = stream(Cursor(), done + 30)
    cursor = whole[done - 1].next_cursor if done else Cursor()
    again = stream(cursor, 30)
    for first, second in zip(whole[done:], again, strict=True):
        assert (first.cursor, first.next_cursor) == (second.cursor, second.next_cursor)
        assert first.positions.tolist() == second.positions.tolist()
        assert first.dropped == second.dropped


def test_cursors_follow_each_other() -> None:
    batches = stream(Cursor(), 100)
    assert batches[0].cursor == Cursor()
    for earlier, later in itertools.pairwise(batches):
        assert earlier.next_cursor == later.cursor
    assert batches[-1].cursor.window > 2


def test_resuming_far_on_makes_one_window() -> None:
    made = []

    def load(number: int) -> Numbers:
        made.append(number)
        return window_of(number)

    batches = training_batches(
        load, Cursor(10**9, 2), budget=Budget(400, 40, 8), seed=1, report_dropped=print
    )
    assert next(batches).cursor == Cursor(10**9, 2)
    assert made == [10**9]


def test_every_position_comes_once_and_windows_in_order() -> None:
    batches = [b for b in stream(Cursor(), 120) if b.cursor.window < 3]
    positions = np.concatenate([b.positions for b in batches])
    assert sorted(positions) == list(range(600))
    assert positions[:200].max() == 199


def test_the_order_of_batches_is_shuffled_by_seed_and_window() -> None:
    def lengths(window: int, seed: int) -> list[int]:
        batches = stream(Cursor(window), 15, seed=seed)
        return [b.padded_tokens // b.size for b in batches if b.cursor.window == window]

    assert lengths(0, seed=1) != sorted(lengths(0, seed=1))
    assert lengths(0, seed=1) != lengths(0, seed=2)
    assert lengths(0, seed=1) == lengths(0, seed=1)


def test_too_long_examples_are_left_out_counted_and_reported() -> None:
    reported: list[tuple[list[int], int]] = []

    def report(positions: np.ndarray, lengths: np.ndarray) -> None:
        reported.append((positions.tolist(), int(lengths.max(axis=1).min())))

    batches = stream(Cursor(), 60, budget=Budget(400, 30, 8), report_dropped=report)
    first = [b for b in batches if b.cursor.window == 0]
    long = np.flatnonzero(window_of(0).lengths.max(axis=1) > 30).tolist()
    assert reported[0] == (long, 31)
    assert sorted(np.concatenate([b.positions for b in first])) == sorted(
        set(range(200)) - set(long)
    )
    assert sum(b.dropped for b in first) == len(long) > 50
    assert first[0].dropped == len(long)


@pytest.mark.parametrize("cursor", [Cursor(), Cursor(0, 3)])
def test_nothing_but_too_long_examples(cursor: Cursor) -> None:
    with pytest.raises(BatchingError) as caught:
        stream(cursor, 1, budget=Budget(400, 1, 1))
    assert str(caught.value) == (
        "None of 200 examples in a row has at most max_length (1) tokens; the shortest has 3. "
        "Raise max_length."
    )


def test_an_example_is_short_enough_if_both_sides_are() -> None:
    lengths = np.array([[5, 5], [5, 6], [6, 5], [1, 5]])
    assert short_enough(lengths, Budget(20, 5, 1)).tolist() == [True, False, False, True]
    assert short_enough(lengths, Budget(20)).all()


def test_a_cursor_behind_the_end_of_its_window() -> None:
    with pytest.raises(BatchingError, match=r"stands behind the last of \d+ batches. The corpus"):
        stream(Cursor(0, 1000), 1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((100, 60, 8), r"tokens_per_batch \(100\) must hold a source and a target of max_length "),
        ((100, 60, 8), r"\(60\), 128 tokens padded to multiples of 8; raise it or lower max_le"),
        ((0, None, 1), r"tokens_per_batch \(0\) must be at least 1"),
        ((9, 0, 1), r"max_length \(0\) must be at least 1"),
        ((9, None, 0), r"length_multiple \(0\) must be at least 1"),
        ((9, None, 1, True, 0), r"rows_multiple \(0\) must be at least 1"),
    ],
)
def test_impossible_budgets(values: tuple[Any, ...], words: str) -> None:
    with pytest.raises(BatchingError, match=words):
        Budget(*values)


def test_evaluation_leaves_nothing_out_and_never_changes() -> None:
    def load(number: int) -> Numbers | None:
        return window_of(number) if number < 2 else None

    runs = [list(evaluation_batches(load, Budget(64, 2, 8))) for _ in range(2)]
    positions = [np.concatenate([b.positions for b in run]).tolist() for run in runs]
    assert positions[0] == positions[1]
    assert sorted(positions[0]) == list(range(400))


def test_padding_counts_are_those_of_the_batch() -> None:
    (batch,) = evaluation_batches(
        lambda n: None if n else Numbers(np.arange(2), np.array([[3, 5], [4, 9]])), Budget(99, 9, 4)
    )
    assert (batch.tokens, batch.padded_tokens, batch.size) == (21, 2 * (4 + 12), 2)


# -- Static shapes --------------------------------------------------------------------------------

STATIC = Budget(400, 40, 8, static_shapes=True, rows_multiple=4)


@dataclasses.dataclass(frozen=True)
class Ones(Numbers):
    """A window whose arrays show its tokens."""

    def collate(self, rows: np.ndarray, length_multiple: int) -> dict[str, Any]:
        arrays: dict[str, Any] = {"positions": self.positions[rows]}
        for side, lengths in enumerate(self.lengths[rows].T):
            width = -(-lengths.max() // length_multiple) * length_multiple
            arrays[f"side_{side}"] = (np.arange(width) < lengths[:, None]).astype(np.float32)
        return arrays


def ones_of(number: int) -> Ones:
    window = window_of(number)
    return Ones(window.positions, window.lengths)


def test_static_batches_have_no_more_shapes_than_there_are_widths() -> None:
    batches = list(
        itertools.islice(
            training_batches(
                ones_of, Cursor(), budget=STATIC, seed=1, report_dropped=lambda *_: None
            ),
            150,
        )
    )
    assert batches[-1].cursor.window > 2
    shapes = {tuple(batch.arrays[f"side_{s}"].shape for s in (0, 1)) for batch in batches}
    # 400 tokens hold 12 rows of two times 16, 8 of 24, and so on, each a multiple of 4.
    assert shapes <= {
        ((rows, w),) * 2 for rows, w in ((24, 8), (12, 16), (8, 24), (4, 32), (4, 40))
    }
    for batch in batches:
        side = batch.arrays["side_0"]
        assert batch.padded_tokens == 2 * side.size
        assert batch.tokens == sum(batch.arrays[f"side_{s}"].sum() for s in (0, 1))
        assert not side[batch.size :].any() and side[: batch.size].any(axis=1).all()
    first = [b.positions for b in batches if b.cursor.window == 0]
    assert sorted(np.concatenate(first)) == list(range(200))


def test_static_batches_go_on_from_any_cursor() -> None:
    whole = stream(Cursor(), 40, budget=STATIC)
    for first, second in zip(
        whole[17:], stream(whole[16].next_cursor, 23, budget=STATIC), strict=True
    ):
        assert first.cursor == second.cursor
        assert first.positions.tolist() == second.positions.tolist()


def test_static_evaluation_holds_the_longest_too() -> None:
    budget = dataclasses.replace(STATIC, tokens_per_batch=64, max_length=10)
    batches = list(evaluation_batches(lambda n: None if n else ones_of(0), budget))
    assert sorted(np.concatenate([b.positions for b in batches])) == list(range(200))
    shapes = {batch.arrays["side_1"].shape for batch in batches}
    assert shapes <= {(4, 8), (2, 16), (1, 24), (1, 32), (1, 48)}
