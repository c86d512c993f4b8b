"""From a corpus folder to batches: order, tags, resumption, evaluation, and refusals."""

import itertools
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingpipe.errors import UserError
from lingpipe.hyperparams import ParamsError
from lingpipe.input.batch import Batch, Cursor
from lingpipe.input.batching import BatchingError
from lingpipe.input.corpus import CorpusError, Pair
from lingpipe.input.folder_corpus import Directions
from lingpipe.input.static_shapes import ladder
from lingpipe.input.tokenizer import Tokenizer
from tasks.mt.input import TranslationInput, corpus_path
from tasks.mt.vocabulary import VocabularyError

SMALL: dict[str, Any] = {
    "vocabulary_size": 2600,
    "tokens_per_batch": 2000,
    "max_length": 128,
    "window_examples": 700,
}


@pytest.fixture(scope="module")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the vocabulary of all of `tiny`, trained once."""
    folder = tmp_path_factory.mktemp("run") / "vocab"
    TranslationInput.Params(**SMALL).build(vocab_dir=folder, seed=1)
    return folder


def tiny(vocab: Path, seed: int = 1, **changes: Any) -> TranslationInput:
    made = TranslationInput.Params(**{**SMALL, **changes}).build(vocab_dir=vocab, seed=seed)
    assert isinstance(made, TranslationInput)
    return made


def take(made: TranslationInput, cursor: Cursor, count: int) -> list[Batch]:
    return list(itertools.islice(made.train_batches(cursor), count))


def small_corpus(folder: Path, lines: int = 30) -> Path:
    pair = folder / "en-de"
    pair.mkdir(parents=True)
    for split, language in itertools.product(("train", "valid"), ("en", "de")):
        text = "".join(f"{language} sentence number {n}\n" for n in range(lines))
        (pair / f"{split}.{language}").write_text(text)
    return folder


def tokenised_lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list to which every line is added that is tokenised from now on."""
    seen: list[str] = []
    encode = Tokenizer.encode

    def count(self: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
        seen.extend(lines)
        return encode(self, lines)

    monkeypatch.setattr(Tokenizer, "encode", count)
    return seen


def test_tiny_is_shipped_with_its_licences() -> None:
    folder = corpus_path("tiny")
    assert folder.is_absolute() and (folder / "README.md").exists()
    assert len(list((folder / "LICENSES").iterdir())) == 2
    assert corpus_path("./tiny") == Path("tiny")


def test_both_directions_of_twelve_languages(vocab: Path) -> None:
    pairs = tiny(vocab).corpus.pairs()
    assert len(pairs) == 24
    assert Pair("en", "zh_Hans") in pairs and Pair("zh_Hans", "en") in pairs


def test_the_same_text_gives_the_same_vocabulary_whatever_the_seed(
    vocab: Path, tmp_path: Path
) -> None:
    tiny(tmp_path, seed=2)
    for name in ("spm.model", "languages.json"):
        assert (tmp_path / name).read_bytes() == (vocab / name).read_bytes()


def test_batches_hold_translations_under_the_right_tag(vocab: Path) -> None:
    made = tiny(vocab)
    tokenizer = made.vocabulary.tokenizer
    for batch in take(made, Cursor(), 3):
        sources = tokenizer.decode(batch.arrays["source_ids"].tolist())
        targets = tokenizer.decode(batch.arrays["target_labels"].tolist())
        for row in range(batch.size):
            name, line = made.name_example(int(batch.positions[row])).split(" train line ")
            source_language, target_language = name.split("-")
            folder = next(corpus_path("tiny").glob(f"*{(set(name.split('-')) - {'en'}).pop()}"))
            index = int(line) - 1
            for language, text in ((source_language, sources), (target_language, targets)):
                lines = (folder / f"train.{language}").read_text().split("\n")
                assert text[row] == lines[index]
            assert batch.arrays["source_ids"][row, 0] == tokenizer.tag_id(target_language)


def test_no_batch_exceeds_its_tokens(vocab: Path) -> None:
    for batch in take(tiny(vocab), Cursor(), 60):
        ids = batch.arrays["source_ids"].size + batch.arrays["target_ids"].size
        assert ids == batch.padded_tokens <= SMALL["tokens_per_batch"]
        real = (batch.arrays["source_ids"] > 0).sum() + batch.arrays["target_weights"].sum()
        assert real == batch.tokens
        assert batch.arrays["source_ids"].shape[1] % 8 == 0


def test_static_shapes_are_few_and_count_real_tokens_only(vocab: Path) -> None:
    made = tiny(vocab, static_shapes=True, rows_multiple=4)
    windows = itertools.takewhile(lambda b: b.cursor.window < 3, made.train_batches(Cursor()))
    batches = [*windows, *made.evaluation_batches("dev", Pair("en", "de"))]
    shapes = {batch.arrays["source_ids"].shape for batch in batches}
    assert len(shapes) <= len(ladder(SMALL["max_length"], 8, SMALL["max_length"]))
    for batch in batches:
        arrays = batch.arrays
        assert {array.shape for array in arrays.values()} == {arrays["source_ids"].shape}
        real = (arrays["source_ids"] > 0).sum() + arrays["target_weights"].sum()
        assert real == batch.tokens
        assert batch.padded_tokens == 2 * arrays["source_ids"].size <= SMALL["tokens_per_batch"]
        assert len(arrays["source_ids"]) % 4 == 0 or len(arrays["source_ids"]) < 8
        for array in arrays.values():
            assert not array[batch.size :].any()
    tokens = [
        sum(batch.tokens for batch in each.evaluation_batches("dev", Pair("en", "de")))
        for each in (made, tiny(vocab))
    ]
    assert tokens[0] == tokens[1]
    assert "is padding" in made.describe(steps=10)


def test_the_first_epoch_has_every_line_once(vocab: Path) -> None:
    made = tiny(vocab, languages=["de"], max_length=900, tokens_per_batch=4000)
    with pytest.raises(VocabularyError):
        take(made, Cursor(), 1)
    made = tiny(vocab.parent / "one", languages=["de"], max_length=900, tokens_per_batch=4000)
    names = [
        made.name_example(int(position))
        for batch in itertools.takewhile(
            lambda b: b.cursor.window < 3, made.train_batches(Cursor())
        )
        for position in batch.positions
    ]
    assert len(names) == 2100
    # Two directions of 900 lines: both are through their first epoch and not through the second.
    assert len(set(names)) == 1800
    counts = [names.count(name) for name in set(names)]
    assert set(counts) == {1, 2}


def test_a_line_that_comes_again_in_a_window_is_tokenised_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = small_corpus(tmp_path / "corpus")
    made = tiny(tmp_path / "vocab", corpus=str(corpus))
    seen = tokenised_lines(monkeypatch)
    batches = take(tiny(tmp_path / "vocab", corpus=str(corpus)), Cursor(), 3)
    assert sum(batch.size for batch in batches) > 60
    # 30 lines in two directions, as sources and as targets; the window has 700 examples.
    assert len(seen) == 2 * 2 * 30
    assert all(seen.count(line) == 2 for line in seen)
    decode = made.vocabulary.tokenizer.decode
    for batch in batches:
        sources = decode(batch.arrays["source_ids"].tolist())
        targets = decode(batch.arrays["target_labels"].tolist())
        for position, *texts in zip(batch.positions, sources, targets, strict=True):
            pair, number = made.name_example(int(position)).split(" train line ")
            assert texts == [
                f"{side} sentence number {int(number) - 1}" for side in pair.split("-")
            ]


def test_going_on_from_a_cursor_equals_never_having_stopped(vocab: Path) -> None:
    whole = take(tiny(vocab), Cursor(), 45)
    resumed = take(tiny(vocab), whole[20].next_cursor, 24)
    for expected, found in zip(whole[21:], resumed, strict=True):
        assert expected.next_cursor == found.next_cursor
        for name, array in expected.arrays.items():
            np.testing.assert_array_equal(array, found.arrays[name])


def test_another_seed_is_another_order(vocab: Path) -> None:
    one, two = (next(tiny(vocab, seed=s).train_batches(Cursor())).positions for s in (1, 2))
    assert one.tolist() != two.tolist()


def test_too_long_examples_are_warned_of_with_their_place(
    vocab: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = take(tiny(vocab, max_length=40), Cursor(), 60)
    dropped = sum(batch.dropped for batch in batches)
    assert dropped > 0
    first = caplog.records[0]
    assert first.levelno == logging.WARNING
    assert "examples with more than max_length (40) tokens on a side: so far " in first.getMessage()
    assert " train line " in first.getMessage()
    assert len(caplog.records) < 8  # Whenever their number doubles.
    for batch in batches:
        assert batch.arrays["source_ids"].shape[1] <= 40


def test_evaluation_sees_every_line_once_in_a_fixed_order(vocab: Path) -> None:
    made = tiny(vocab, max_length=10, tokens_per_batch=64)
    pair = Pair("en", "ru")
    given = made.evaluation_set(pair, "dev")
    runs = [list(made.evaluation_batches("dev", pair)) for _ in range(2)]
    positions = np.concatenate([batch.positions for batch in runs[0]])
    assert sorted(positions) == list(range(60))
    assert positions.tolist() == np.concatenate([b.positions for b in runs[1]]).tolist()
    for batch in runs[0]:
        sources = made.vocabulary.decode(batch.arrays["source_ids"].tolist())
        references = made.vocabulary.decode(batch.arrays["target_labels"].tolist())
        assert sources == [given.sources[i] for i in batch.positions]
        assert references == [given.references[i] for i in batch.positions]
    assert sum(batch.size for batch in made.evaluation_batches("test")) == 24 * 60
    assert made.evaluation_pairs("dev") == list(made.corpus.pairs())


def test_an_unknown_split_is_refused_at_once(vocab: Path) -> None:
    with pytest.raises(CorpusError, match="There is no split 'valid'; did you mean 'dev'"):
        tiny(vocab).evaluation_batches("valid")
    with pytest.raises(CorpusError, match="There is no split 'tests'; did you mean 'test'"):
        tiny(vocab).evaluation_pairs("tests")


def test_a_corpus_without_a_split(tmp_path: Path) -> None:
    corpus = small_corpus(tmp_path / "corpus")
    made = tiny(tmp_path / "vocab", corpus=str(corpus))
    with pytest.raises(CorpusError, match="No pair of the corpus has a test split"):
        made.evaluation_batches("test")


def test_a_run_decodes_without_its_corpus(tmp_path: Path) -> None:
    corpus = small_corpus(tmp_path / "corpus")
    tiny(tmp_path / "vocab", corpus=str(corpus))
    shutil.rmtree(corpus)
    made = tiny(tmp_path / "vocab", corpus=str(corpus))
    assert made.vocabulary.target_languages == ("de", "en")
    assert made.vocabulary.encode_source("sentence", "de")
    with pytest.raises(CorpusError, match="There is no corpus folder"):
        made.train_batches(Cursor())


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda pair: (pair / "train.de").write_text("a\n"), "has 1 lines and"),
        (lambda pair: (pair / "valid.de").write_text(""), "valid.de is empty"),
        (lambda pair: (pair / "valid.en").unlink(), "has no valid.en"),
        (lambda pair: (pair / "train.en").write_bytes(b"a\xc3\n" * 30), "line 1 is not UTF-8"),
        (lambda pair: shutil.rmtree(pair), "has no pair of languages"),
        (lambda pair: shutil.rmtree(pair.parent), "There is no corpus folder"),
    ],
)
def test_nothing_is_written_for_a_bad_corpus(tmp_path: Path, damage: object, words: str) -> None:
    corpus = small_corpus(tmp_path / "corpus")
    damage(corpus / "en-de")  # type: ignore[operator]
    with pytest.raises(UserError, match=words):
        tiny(tmp_path / "vocab", corpus=str(corpus))
    assert not (tmp_path / "vocab").exists()


def test_nothing_is_written_if_every_example_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(BatchingError, match=r"None of 700 examples in a row has at most max_len"):
        tiny(tmp_path / "vocab", corpus=str(small_corpus(tmp_path / "corpus")), max_length=2)
    assert not (tmp_path / "vocab").exists()


def test_a_start_tokenises_its_first_window_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tokenised_lines(monkeypatch)
    made = tiny(tmp_path / "vocab", corpus=str(small_corpus(tmp_path / "corpus")))
    assert len(seen) == 2 * 2 * 30
    made.describe(steps=10)
    windows = [batch.cursor.window for batch in take(made, Cursor(), 30)]
    assert len(seen) == (1 + max(windows)) * 2 * 2 * 30
    assert max(windows) >= 1


def test_a_vocabulary_too_small_for_the_corpus_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"vocabulary_size \(500\) is too small: 4 special ids, language"
    ):
        tiny(tmp_path / "vocab", vocabulary_size=500)
    assert not (tmp_path / "vocab").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "vocab").touch()
    corpus = small_corpus(tmp_path / "corpus")
    with pytest.raises(UserError, match=r"^Cannot write .*/vocab/spm.model: "):
        tiny(tmp_path / "vocab", corpus=str(corpus))


def test_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    corpus = small_corpus(tmp_path / "corpus")
    monkeypatch.setattr(Path, "mkdir", refuse)  # Root, as which CI runs, may write anywhere.
    with pytest.raises(UserError, match=r"^Cannot write .*/vocab/spm.model: Permission denied\.$"):
        tiny(tmp_path / "vocab", corpus=str(corpus))


def test_other_pairs_than_the_vocabularys_are_refused(vocab: Path) -> None:
    made = tiny(vocab, directions=Directions.from_english, languages=["de"])
    with pytest.raises(VocabularyError, match=r"it adds none and lacks ar-en, de-en, en-ar, en-es"):
        made.train_batches(Cursor())


def test_a_vocabulary_larger_than_the_model(vocab: Path) -> None:
    with pytest.raises(VocabularyError, match=r"2600 ids, more than vocabulary_size \(2000\); set"):
        tiny(vocab, vocabulary_size=2000)


def test_impossible_params_are_all_listed() -> None:
    params = TranslationInput.Params(
        temperature=0.0, vocabulary_size=0, window_examples=0, tokens_per_batch=100
    )
    with pytest.raises(ParamsError) as caught:
        params.validate()
    for words in (
        "temperature (0.0) must be greater than 0.",
        "vocabulary_size (0) must be greater than 0.",
        "window_examples (0) must be greater than 0.",
        "tokens_per_batch (100) must hold a source and a target of max_length (256)",
    ):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("vocabulary_size", "16_777_216"),
        ("window_examples", "4_194_304"),
        ("tokens_per_batch", "16_777_216"),
        ("max_length", "16_777_216"),
        ("length_multiple", "16_777_216"),
        ("rows_multiple", "16_777_216"),
    ],
)
@pytest.mark.parametrize("beyond", [1, 10**30])
def test_numbers_beyond_all_reason_are_refused_with_their_bound(
    field: str, most: str, beyond: int
) -> None:
    value = int(most) + beyond
    with pytest.raises(ParamsError, match=rf"{field} \({value}\) must be at most {most}\."):
        TranslationInput.Params(**{field: value}).validate()


def test_rows_that_would_not_be_minded_are_refused() -> None:
    with pytest.raises(ParamsError, match=r"rows_multiple \(4\) has no effect without static_sh"):
        TranslationInput.Params(rows_multiple=4).validate()
    TranslationInput.Params(rows_multiple=4, static_shapes=True).validate()


def test_windows_grow_with_the_batch(vocab: Path) -> None:
    assert tiny(vocab, window_examples=None).window_examples == 16_384
    made = tiny(vocab, window_examples=None, tokens_per_batch=1_000_000)
    assert made.window_examples == 250_000


def test_the_description_has_every_pair_and_its_epochs(vocab: Path) -> None:
    table = tiny(vocab, temperature=5.0).describe(steps=1000).splitlines()
    assert table[0].split() == ["pair", "lines", "share", "probability", "epochs"]
    assert table[1].split()[:4] == ["ar-en", "900", "4.17%", "4.17%"]
    assert len(table) == 1 + 24 + 1 + 1
    assert "A vocabulary of 2600 ids. A batch of 2000 tokens holds about" in table[-1]
    epochs = float(table[-2].split()[-1])
    seen = sum(b.size for b in take(tiny(vocab, temperature=5.0), Cursor(), 100)) * 10
    assert epochs == pytest.approx(seen / (24 * 900), rel=0.2)
