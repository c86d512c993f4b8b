"""A vocabulary folder is all that decoding needs; lines go in and come out one by one."""

import json
from pathlib import Path

import numpy as np
import pytest

from lingpipe.input.corpus import Pair
from lingpipe.input.lines import TextError
from lingpipe.input.tokenizer import END_ID, TokenizerError, TokenizerTrainer
from tasks.mt.vocabulary import TranslationVocabulary, VocabularyError

PAIRS = [Pair("en", "de"), Pair("en", "zh_Hans"), Pair("fr", "de")]


@pytest.fixture(scope="module")
def vocabulary() -> TranslationVocabulary:
    trainer = TokenizerTrainer.Params().build()
    text = ["some words to learn from", "einige Worte zum Lernen"]
    tokenizer = trainer.train(text, languages=["de", "zh_Hans"], vocabulary_size=330)
    return TranslationVocabulary(tokenizer, PAIRS)


def test_it_comes_back_from_its_folder(vocabulary: TranslationVocabulary, tmp_path: Path) -> None:
    folder = tmp_path / "vocab"
    assert not TranslationVocabulary.exists(folder)
    vocabulary.save(folder)
    assert TranslationVocabulary.exists(folder)
    loaded = TranslationVocabulary.load(folder)
    assert loaded.pairs == tuple(PAIRS)
    assert loaded.tokenizer.model == vocabulary.tokenizer.model
    assert sorted(path.name for path in folder.iterdir()) == ["languages.json", "spm.model"]


def test_the_list_of_languages_is_written_last(
    vocabulary: TranslationVocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed in between trains its vocabulary again, instead of finding half."""
    monkeypatch.setattr("tasks.mt.vocabulary.write_atomically", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        vocabulary.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["spm.model"]
    assert not TranslationVocabulary.exists(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "pairs": [["a"]]}']
)
def test_a_damaged_list_of_languages(
    vocabulary: TranslationVocabulary, tmp_path: Path, text: str
) -> None:
    vocabulary.save(tmp_path)
    (tmp_path / "languages.json").write_text(text)
    with pytest.raises(
        VocabularyError, match=r"languages.json is damaged \(.*restore it from a co"
    ):
        TranslationVocabulary.load(tmp_path)


def test_a_list_of_another_version(vocabulary: TranslationVocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path)
    (tmp_path / "languages.json").write_text(json.dumps({"format": 2, "pairs": []}))
    with pytest.raises(VocabularyError, match="has format 2; this version of lingpipe reads 1"):
        TranslationVocabulary.load(tmp_path)


def test_a_lost_model(vocabulary: TranslationVocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path)
    (tmp_path / "spm.model").unlink()
    with pytest.raises(TextError, match=r"spm.model does not exist"):
        TranslationVocabulary.load(tmp_path)


def test_a_pair_without_a_tag(vocabulary: TranslationVocabulary) -> None:
    with pytest.raises(TokenizerError, match="does not translate into 'fr'"):
        TranslationVocabulary(vocabulary.tokenizer, [Pair("de", "fr")])


def test_the_tag_says_which_language(vocabulary: TranslationVocabulary) -> None:
    german, chinese = (vocabulary.encode_source("some words", to) for to in ("de", "zh_Hans"))
    assert german[0] == vocabulary.tokenizer.tag_id("de") != chinese[0]
    assert german[1:] == chinese[1:]
    assert german[-1] == END_ID


def test_a_typed_tag_stays_text(vocabulary: TranslationVocabulary) -> None:
    ids = vocabulary.encode_source("x<2zh_Hans>y", "de")
    assert vocabulary.tokenizer.tag_id("zh_Hans") not in ids
    assert vocabulary.decode([ids]) == ["x<2zh_Hans>y"]


def test_an_unknown_language_names_the_nearest(vocabulary: TranslationVocabulary) -> None:
    with pytest.raises(TokenizerError, match=r"not translate into 'zh_Han'.* mean 'zh_Hans'\?"):
        vocabulary.encode_source("a", "zh_Han")
    with pytest.raises(VocabularyError, match=r"not translate from 'fra'; did you mean 'fr'\?"):
        vocabulary.check_source("fra")
    with pytest.raises(VocabularyError, match=r"translate from 'de'; it translates from: en, fr\."):
        vocabulary.check_source("de")
    vocabulary.check_source("en")


LINES = ["", " ", "\t", "\x85", "\u2028", "\x0b\x0c", "\x00", "\xa0", "\u3000", "w " * 5000, "end"]


def test_every_line_is_encoded_whole_and_comes_back(vocabulary: TranslationVocabulary) -> None:
    encoded = [vocabulary.encode_source(line, "de") for line in LINES]
    assert vocabulary.decode(encoded) == LINES
    for ids in encoded:
        assert (ids[0], ids[-1]) == (vocabulary.tokenizer.tag_id("de"), END_ID)


def test_given_translations_become_examples(vocabulary: TranslationVocabulary) -> None:
    made = vocabulary.encode_pairs(["some words", ""], ["einige Worte", "x"], "de")
    batch = made.collate(np.array([0, 1]))
    assert batch["source_ids"][0].tolist() == vocabulary.encode_source("some words", "de")
    assert vocabulary.decode(batch["target_labels"].tolist()) == ["einige Worte", "x"]
    with pytest.raises(
        VocabularyError, match="There are 2 source lines and 1 target lines; line n"
    ):
        vocabulary.encode_pairs(["a", "b"], ["c"], "de")
