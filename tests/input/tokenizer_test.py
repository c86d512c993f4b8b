"""Text comes back as it went in, tags never come from text, and failures give their numbers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingpipe.hyperparams import ParamsError
from lingpipe.input.lines import TextError
from lingpipe.input.tokenizer import (
    BEGIN_ID,
    END_ID,
    PAD_ID,
    UNKNOWN_ID,
    Algorithm,
    Tokenizer,
    TokenizerError,
    TokenizerTrainer,
)

TEXT = [
    "The quick brown fox jumps over the lazy dog.",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "素早い茶色の狐が怠け者の犬を飛び越える。",
    "Быстрая коричневая лиса прыгает через ленивую собаку.",
] * 3
AWKWARD = [
    "", " ", "  ", "\t", "\x85", "\u2028", "\x0b", "\x0c", "\ufeff", "a\x00b", "\xa0", "\u3000",
    "a\rb", " leading", "trailing ", "two  spaces", "x<2de>y", "<2de>", "</s><pad><unk><s>",
    "<0x41>", "😀 e\u0301", "\U0010ffff",
]  # fmt: skip


def trained(lines: list[str] = TEXT, vocabulary_size: int = 420, **params: Any) -> Tokenizer:
    trainer = TokenizerTrainer.Params(**params).build()
    return trainer.train(lines, languages=["de", "en", "zh_Hans"], vocabulary_size=vocabulary_size)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return trained()


@pytest.mark.parametrize("line", [*AWKWARD, *TEXT])
def test_text_comes_back(tokenizer: Tokenizer, line: str) -> None:
    assert tokenizer.decode(tokenizer.encode([line])) == [line]


@settings(deadline=None)
@given(st.text(st.characters(exclude_characters="\u2581\n", exclude_categories=["Cs"])))
def test_any_text_comes_back(tokenizer: Tokenizer, line: str) -> None:
    (ids,) = tokenizer.encode([line])
    assert tokenizer.decode([ids]) == [line]
    assert min(ids, default=9) > tokenizer.tag_id("zh_Hans")  # No special id, no tag.


def test_what_does_not_come_back_is_as_documented(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode(["a\u2581b", "a\nb"])) == ["a b", "a b"]


def test_a_tag_in_the_text_stays_text(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode(["x<2de>y"])
    assert tokenizer.tag_id("de") not in ids
    assert tokenizer.decode([[tokenizer.tag_id("de"), *ids, END_ID]]) == ["x<2de>y"]


def test_a_typed_tag_does_not_become_one_even_if_the_training_text_has_it() -> None:
    tokenizer = trained([f"{line} <2de> x<2de>y" for line in TEXT])
    (ids,) = tokenizer.encode(["x<2de>y <2de>"])
    assert tokenizer.tag_id("de") not in ids
    assert tokenizer.decode([ids]) == ["x<2de>y <2de>"]


def test_special_ids_have_no_text(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode(["fox"])
    tag = tokenizer.tag_id("en")
    assert tokenizer.decode([[tag, BEGIN_ID, *ids, UNKNOWN_ID, END_ID, PAD_ID], []]) == ["fox", ""]


def test_ids_beyond_the_vocabulary(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match=rf"Ids must be in \[0, {tokenizer.size}\); got 5 to 9999"):
        tokenizer.decode([[5, 9999]])
    with pytest.raises(ValueError, match="got -1 to 5"):
        tokenizer.decode([[5, -1]])


def test_tags_follow_the_special_ids(tokenizer: Tokenizer) -> None:
    assert tokenizer.languages == ("de", "en", "zh_Hans")
    assert [tokenizer.tag_id(language) for language in tokenizer.languages] == [4, 5, 6]


def test_an_unknown_language_names_the_nearest(tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError) as caught:
        tokenizer.tag_id("zh_hant")
    assert str(caught.value) == (
        "The model does not translate into 'zh_hant': its vocabulary has no tag for it; did you "
        "mean 'zh_Hans'?"
    )
    with pytest.raises(TokenizerError, match=r"no tag for it; it has: de, en, zh_Hans\."):
        tokenizer.tag_id("xx")


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_the_same_text_gives_the_same_bytes(algorithm: Algorithm) -> None:
    first, second = (trained(algorithm=algorithm) for _ in range(2))
    assert first.model == second.model
    assert first.decode(first.encode(AWKWARD)) == AWKWARD


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_too_little_text_makes_a_smaller_vocabulary(algorithm: Algorithm) -> None:
    tokenizer = trained(["tiny text"], vocabulary_size=50_000, algorithm=algorithm)
    assert 263 < tokenizer.size < 300


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_a_vocabulary_smaller_than_its_characters(algorithm: Algorithm) -> None:
    with pytest.raises(TokenizerError) as caught:
        trained(vocabulary_size=300, algorithm=algorithm)
    needed = 263 + len(set("".join(TEXT))) - 1 + 1  # A space is written as U+2581.
    assert str(caught.value) == (
        "vocabulary_size (300) is too small: 4 special ids, language tags (3), 256 bytes and the "
        f"text's characters make {needed}. Set vocabulary_size to more than that, or lower "
        "character_coverage (0.9995)."
    )


def test_a_vocabulary_smaller_than_its_special_ids() -> None:
    with pytest.raises(TokenizerError) as caught:
        trained(vocabulary_size=3, byte_fallback=False)
    assert str(caught.value) == (
        "vocabulary_size (3) is too small: 4 special ids, language tags (3) alone make 7. Set "
        "vocabulary_size to at least a few hundred more."
    )


@pytest.mark.parametrize("lines", [[], ["", ""]])
def test_no_text(lines: list[str]) -> None:
    with pytest.raises(TokenizerError, match="no text to train a vocabulary on: every line is em"):
        trained(lines)


def test_an_error_in_the_text_arrives_as_it_is() -> None:
    def lines() -> Iterator[str]:
        yield "fine"
        raise TextError("train.en, line 2 is not UTF-8")

    with pytest.raises(TextError, match=r"^train.en, line 2 is not UTF-8$"):
        TokenizerTrainer.Params().build().train(lines(), languages=[], vocabulary_size=300)


def test_a_line_longer_than_sentencepieces_default_is_learnt_from() -> None:
    tokenizer = trained(["word " * 2000 + "zebra"], vocabulary_size=300, character_coverage=1.0)
    assert all(token > 262 for token in tokenizer.encode(["zebra"])[0])  # Letters, not bytes.


def test_training_reads_no_more_than_max_lines() -> None:
    tokenizer = trained(["abc", "xyz"], vocabulary_size=300, max_lines=1)
    assert trained(["abc"], vocabulary_size=300).model == tokenizer.model


def test_saving_and_loading(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "spm.model"
    tokenizer.save(path)
    assert Tokenizer.load(path).encode(TEXT) == tokenizer.encode(TEXT)
    assert [entry.name for entry in path.parent.iterdir()] == ["spm.model"]


@pytest.mark.parametrize("data", [b"xx", b"not a model at all\n"])
def test_a_damaged_model(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "spm.model").write_bytes(data)
    with pytest.raises(TokenizerError, match=r"spm.model is not a SentencePiece model \(\d+ bytes"):
        Tokenizer.load(tmp_path / "spm.model")


def test_an_empty_model_and_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "spm.model").touch()
    with pytest.raises(TokenizerError, match=r"lingpipe needs 0, 1, 2, 3. Train it with lingpipe"):
        Tokenizer.load(tmp_path / "spm.model")
    with pytest.raises(TextError, match=r"spm.modle does not exist; did you mean .*spm.model\?"):
        Tokenizer.load(tmp_path / "spm.modle")


def test_impossible_params_are_listed() -> None:
    with pytest.raises(ParamsError, match=r"character_coverage \(0.5\) must be in \[0.98, 1\]"):
        TokenizerTrainer.Params(character_coverage=0.5).build()
    for value in (0, 10**30):
        with pytest.raises(
            ParamsError, match=rf"max_lines \({value}\) must be in \[1, 1_000_000_000\]"
        ):
            TokenizerTrainer.Params(max_lines=value).build()


def test_training_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    trained()
    with pytest.raises(TokenizerError):
        trained(vocabulary_size=300)
    assert capfd.readouterr() == ("", "")
