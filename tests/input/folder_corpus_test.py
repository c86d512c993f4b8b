"""A corpus folder is understood whole, or refused with a letter before anything is made of it."""

import gzip
from pathlib import Path

import pytest

from lingpipe.input.corpus import CorpusError, Pair
from lingpipe.input.folder_corpus import Directions, FolderCorpus
from lingpipe.input.lines import TextError


def fill(folder: Path, **files: int) -> Path:
    """Writes `train_de=3` as train.de with three lines."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in files.items():
        text = "".join(f"{name} {n}\n" for n in range(count))
        (folder / name.replace("_", ".", 1)).write_text(text)
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus"
    fill(path / "en-de", train_en=3, train_de=3, valid_en=2, valid_de=2, test_en=1, test_de=1)
    fill(path / "en-fr", train_en=4, train_fr=4)
    fill(path / "LICENSES", terms=1)
    fill(path / "read-me", notes=1)
    (path / "README.md").touch()
    return path


def test_pairs_are_found_in_both_directions_and_sorted(corpus: Path) -> None:
    pairs = FolderCorpus(corpus).pairs()
    assert list(map(str, pairs)) == ["de-en", "en-de", "en-fr", "fr-en"]


@pytest.mark.parametrize(
    ("directions", "names"),
    [(Directions.from_english, ["en-de", "en-fr"]), (Directions.to_english, ["de-en", "fr-en"])],
)
def test_one_direction(corpus: Path, directions: Directions, names: list[str]) -> None:
    assert list(map(str, FolderCorpus(corpus, directions=directions).pairs())) == names


def test_some_languages(corpus: Path) -> None:
    assert list(map(str, FolderCorpus(corpus, languages=["fr"]).pairs())) == ["en-fr", "fr-en"]


def test_a_direction_swaps_the_sides(corpus: Path) -> None:
    found = FolderCorpus(corpus)
    there = found.text(Pair("en", "de"), "train")
    back = found.text(Pair("de", "en"), "train")
    assert (there.sources.take([2]), there.targets.take([2])) == (["train_en 2"], ["train_de 2"])
    assert back.sources is there.targets
    assert len(found.text(Pair("en", "de"), "dev")) == 2


def test_languages_with_a_hyphen_are_cut_where_the_files_are(tmp_path: Path) -> None:
    folder = tmp_path / "en-pt-BR"
    fill(folder)
    for name in ("train.en", "train.pt-BR"):
        (folder / name).write_text("x\n")
    assert FolderCorpus(tmp_path).pairs() == (Pair("en", "pt-BR"), Pair("pt-BR", "en"))


def test_packed_files_serve_as_well(tmp_path: Path) -> None:
    folder = fill(tmp_path / "en-de", train_en=2)
    (folder / "train.de.gz").write_bytes(gzip.compress(b"eins\nzwei\n"))
    text = FolderCorpus(tmp_path).text(Pair("en", "de"), "train")
    assert text.targets.take([1, 0]) == ["zwei", "eins"]


def test_a_missing_folder_names_its_nearest_sibling(tmp_path: Path) -> None:
    (tmp_path / "wmt2020").mkdir()
    with pytest.raises(CorpusError) as caught:
        FolderCorpus(tmp_path / "wmt202")
    assert str(caught.value) == (
        f"There is no corpus folder {tmp_path / 'wmt202'}; did you mean {tmp_path / 'wmt2020'}?"
    )
    with pytest.raises(CorpusError, match=r"There is no corpus folder .*/x; .* has: wmt2020\."):
        FolderCorpus(tmp_path / "x")
    with pytest.raises(CorpusError, match=r"and neither is there a folder .*/no\."):
        FolderCorpus(tmp_path / "no" / "where")


def test_a_file_given_for_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "text").touch()
    with pytest.raises(CorpusError, match=r"text is a file; a corpus is a folder of pairs such as"):
        FolderCorpus(tmp_path / "text")


def test_a_folder_without_pairs(tmp_path: Path) -> None:
    fill(tmp_path / "de", train_de=1)
    with pytest.raises(CorpusError) as caught:
        FolderCorpus(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} has no pair of languages: no folder such as en-de with files train.en and "
        "train.de. It has: de."
    )


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"train_en": 1}, "has no train.de (or .gz of it); it has: train.en. Both sides"),
        ({"train_en": 1, "train_de": 1, "test_de": 1}, "has no test.en (or .gz of it)"),
        ({"valid_en": 1, "valid_de": 1}, "has no train.en and no train.de (or .gz of it)"),
    ],
)
def test_a_missing_side(tmp_path: Path, files: dict[str, int], words: str) -> None:
    folder = fill(tmp_path / "en-de", **files)
    with pytest.raises(CorpusError) as caught:
        FolderCorpus(tmp_path)
    assert f"{folder} {words}" in str(caught.value)


def test_100_lines_against_101_are_refused_with_both_counts(tmp_path: Path) -> None:
    folder = fill(tmp_path / "en-de", train_en=100, train_de=101)
    with pytest.raises(CorpusError) as caught:
        FolderCorpus(tmp_path).check()
    assert str(caught.value) == (
        f"{folder / 'train.de'} has 101 lines and {folder / 'train.en'} has 100; line n of one "
        "must translate line n of the other."
    )


def test_a_count_that_wc_would_not_give_is_explained(tmp_path: Path) -> None:
    folder = fill(tmp_path / "en-de", train_en=2)
    (folder / "train.de").write_text("eins\nzwei\ndrei")
    with pytest.raises(CorpusError, match=r"has 2 \(the last line of train.de has no newline\)"):
        FolderCorpus(tmp_path).text(Pair("de", "en"), "train")


def test_an_unfinished_last_line_counts_as_a_line(tmp_path: Path) -> None:
    folder = fill(tmp_path / "en-de", train_en=2)
    (folder / "train.de").write_text("eins\nzwei")
    assert len(FolderCorpus(tmp_path).text(Pair("en", "de"), "train")) == 2


def test_an_empty_file(tmp_path: Path) -> None:
    folder = fill(tmp_path / "en-de", train_en=1, train_de=1, test_en=0, test_de=0)
    with pytest.raises(CorpusError) as caught:
        FolderCorpus(tmp_path).check()
    assert str(caught.value) == (
        f"{folder / 'test.de'} is empty; fill it, or remove both sides of this split."
    )


def test_a_damaged_file_is_found_by_the_check(corpus: Path) -> None:
    (corpus / "en-fr" / "train.fr").write_bytes("un\ndeux\ntrois\nquatre é".encode()[:-1])
    with pytest.raises(TextError, match=r"train.fr, line 4 is not UTF-8: it ends in the middle"):
        FolderCorpus(corpus).check()


def test_an_unknown_language_names_the_nearest(corpus: Path) -> None:
    with pytest.raises(CorpusError, match=r"has no language 'fra'; did you mean 'fr'\?"):
        FolderCorpus(corpus, languages=["de", "fra"])
    with pytest.raises(CorpusError, match=r"has no language 'xx'; it has: de, en, fr\."):
        FolderCorpus(corpus, languages=["xx"])


def test_languages_without_a_pair(corpus: Path) -> None:
    with pytest.raises(CorpusError, match=r"has no pair of en in directions both; its pairs are: "):
        FolderCorpus(corpus, languages=["en"])


def test_a_pair_twice(corpus: Path) -> None:
    fill(corpus / "de-en", train_en=1, train_de=1)
    with pytest.raises(CorpusError, match=r"holds one pair twice, in en-de and de-en; merge them"):
        FolderCorpus(corpus)


def test_an_unknown_pair_or_split(corpus: Path) -> None:
    found = FolderCorpus(corpus)
    with pytest.raises(CorpusError, match=r"has no pair en-dee; did you mean en-de\?"):
        found.text(Pair("en", "dee"), "train")
    with pytest.raises(CorpusError, match=r"There is no split 'valid'; did you mean 'dev'\?"):
        found.text(Pair("en", "de"), "valid")
    with pytest.raises(CorpusError, match=r"has no valid.en, so pair en-fr has no dev split"):
        found.text(Pair("en", "fr"), "dev")
    assert not found.has(Pair("en", "fr"), "dev")
