"""A batch's arrays, to the last id."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingpipe.input.tokenizer import Tokenizer, TokenizerTrainer
from tasks.mt.examples import Examples, Sentences


def sentences(*rows: list[int]) -> Sentences:
    ids = np.array([token for row in rows for token in row], np.int32)
    return Sentences(ids, np.cumsum([0, *map(len, rows)]))


def examples(sources: list[list[int]], targets: list[list[int]]) -> Examples:
    tags = np.arange(4, 4 + len(sources), dtype=np.int32)
    return Examples(sentences(*sources), sentences(*targets), tags, np.arange(len(sources)))


def test_a_batch_by_hand() -> None:
    made = examples([[11, 12], [], [13]], [[21], [22, 23, 24], []])
    batch = made.collate(np.array([1, 0]), length_multiple=1)
    np.testing.assert_array_equal(batch["source_ids"], [[5, 3, 0, 0], [4, 11, 12, 3]])
    np.testing.assert_array_equal(batch["target_ids"], [[2, 22, 23, 24], [2, 21, 0, 0]])
    np.testing.assert_array_equal(batch["target_labels"], [[22, 23, 24, 3], [21, 3, 0, 0]])
    np.testing.assert_array_equal(batch["target_weights"], [[1, 1, 1, 1], [1, 1, 0, 0]])
    dtypes = [batch[name].dtype for name in sorted(batch)]
    assert dtypes == [np.int32, np.int32, np.int32, np.float32]


def test_an_empty_target_is_its_end() -> None:
    batch = examples([[13]], [[]]).collate(np.array([0]), length_multiple=4)
    np.testing.assert_array_equal(batch["source_ids"], [[4, 13, 3, 0]])
    np.testing.assert_array_equal(batch["target_ids"], [[2, 0, 0, 0]])
    np.testing.assert_array_equal(batch["target_labels"], [[3, 0, 0, 0]])
    np.testing.assert_array_equal(batch["target_weights"], [[1, 0, 0, 0]])


Rows = st.lists(st.tuples(*[st.lists(st.integers(10, 99), max_size=7)] * 2), min_size=1, max_size=6)


@settings(deadline=None, max_examples=50)
@given(Rows, st.integers(1, 8))
def test_every_batch_is_what_a_plain_loop_makes(
    rows: list[tuple[list[int], list[int]]], multiple: int
) -> None:
    made = examples([source for source, _ in rows], [target for _, target in rows])
    batch = made.collate(np.arange(len(rows)), multiple)
    for number, (source, target) in enumerate(rows):
        expected = {
            "source_ids": [4 + number, *source, 3],
            "target_ids": [2, *target],
            "target_labels": [*target, 3],
            "target_weights": [1] * (len(target) + 1),
        }
        assert made.lengths[number].tolist() == [len(source) + 2, len(target) + 1]
        for name, ids in expected.items():
            assert batch[name][number].tolist() == ids + [0] * (batch[name].shape[1] - len(ids))
    for side, name in ((0, "source_ids"), (1, "target_ids")):
        assert batch[name].shape[1] == -(-made.lengths[:, side].max() // multiple) * multiple


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return TokenizerTrainer.Params().build().train(["a b c"], languages=["de"], vocab_size=300)


def test_tokenized_lines_lie_one_after_the_other(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.mt.examples._CHUNK", 2)
    lines = ["a b", "", "c", "x\u2028y", ""]
    made = Sentences.tokenize(lines, tokenizer)
    found = [made.ids[s:e].tolist() for s, e in zip(made.starts, made.starts[1:], strict=False)]
    assert found == tokenizer.encode(lines)
    assert made.ids.dtype == np.int32


def test_no_lines(tokenizer: Tokenizer) -> None:
    assert Sentences.tokenize([], tokenizer).lengths.tolist() == []
