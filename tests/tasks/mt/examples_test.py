"""A batch's arrays, to the last id."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingpipe.input.tokenizer import Tokenizer, TokenizerTrainer
from tasks.mt.examples import Examples, Sentences


def sentences(*rows: list[int]) -> Sentences:
    ids = np.array([token for row in rows for token in row], np.int32)
    lengths = np.array([*map(len, rows)], np.int64)
    return Sentences(ids, np.cumsum(lengths) - lengths, lengths)


def rows_of(made: Sentences) -> list[list[int]]:
    places = zip(made.starts, made.lengths, strict=True)
    return [made.ids[start : start + length].tolist() for start, length in places]


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
    return TokenizerTrainer.Params().build().train(["a b c"], languages=["de"], vocabulary_size=300)


def test_tokenized_lines_lie_one_after_the_other(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.mt.examples._CHUNK_CHARACTERS", 4)
    lines = ["", "a b", "", "c", "c", "x\u2028y a b c a b c", "", "a"]
    made = Sentences.tokenize(lines, tokenizer)
    assert rows_of(made) == tokenizer.encode(lines)
    assert made.starts.tolist() == [0, *np.cumsum(made.lengths)[:-1]]
    assert made.ids.dtype == np.int32


def test_text_is_tokenised_in_pieces_that_do_not_grow_with_it(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.mt.examples._CHUNK_CHARACTERS", 8)
    sizes: list[int] = []

    def encode(lines: list[str]) -> list[list[int]]:
        sizes.append(sum(map(len, lines)))
        return [[5]] * len(lines)

    monkeypatch.setattr(tokenizer, "encode", encode)
    Sentences.tokenize(["abc"] * 10, tokenizer)
    assert sum(sizes) == 30
    assert max(sizes) <= 8 + 3


def test_sentences_that_are_taken_twice_share_their_ids() -> None:
    made = sentences([11, 12], [], [13])
    taken = made.take(np.array([2, 0, 2, 1]))
    assert rows_of(taken) == [[13], [11, 12], [13], []]
    assert taken.ids is made.ids
    np.testing.assert_array_equal(taken.padded(np.array([2, 1]), 2), [[13, 0], [11, 12]])


def test_no_lines(tokenizer: Tokenizer) -> None:
    assert Sentences.tokenize([], tokenizer).lengths.tolist() == []
