"""The synthetic languages are what their table says, and test lines are never trained on."""

from pathlib import Path

import pytest

from lingpipe.hyperparams import ParamsError
from lingpipe.input.batch import Cursor
from lingpipe.input.corpus import CorpusError, Pair
from tasks.mt.synthetic import SyntheticCorpus, TagsInput

COUNTS = {"train": 500, "dev": 60, "test": 60}


@pytest.fixture(scope="module")
def corpus() -> SyntheticCorpus:
    return SyntheticCorpus(COUNTS, seed=1, num_letters=26)


def test_three_tasks_of_the_same_sources(corpus: SyntheticCorpus) -> None:
    assert list(map(str, corpus.pairs())) == ["text-cipher", "text-copy", "text-reverse"]
    cipher, copy, reverse = (corpus.text(pair, "test") for pair in corpus.pairs())
    lines = range(len(copy))
    sources = copy.sources.take(lines)
    assert cipher.sources.take(lines) == reverse.sources.take(lines) == sources
    assert copy.targets.take(lines) == sources
    assert reverse.targets.take(lines) == [line[::-1] for line in sources]
    moved = dict(zip("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm", strict=True))
    assert cipher.targets.take(lines) == [
        " ".join(moved[letter] for letter in line.split(" ")) for line in sources
    ]


def test_lines_are_4_to_12_letters_with_spaces_between(corpus: SyntheticCorpus) -> None:
    lines = corpus.text(Pair("text", "copy"), "train").sources.take(range(500))
    lengths = {len(line.split(" ")) for line in lines}
    assert lengths == set(range(4, 13))
    assert {letter for line in lines for letter in line.split(" ")} == set(
        "abcdefghijklmnopqrstuvwxyz"
    )


def test_a_line_depends_on_seed_split_and_index_alone(corpus: SyntheticCorpus) -> None:
    text = corpus.text(Pair("text", "copy"), "train").sources
    again = SyntheticCorpus({**COUNTS, "train": 10**9}, seed=1, num_letters=26)
    longer = again.text(Pair("text", "copy"), "train").sources
    assert longer.take([499, 3]) == text.take([499, 3])
    assert len(longer.take([10**9 - 1])[0]) >= 7
    other = SyntheticCorpus(COUNTS, seed=2, num_letters=26).text(Pair("text", "copy"), "train")
    assert other.sources.take(range(20)) != text.take(range(20))


def test_splits_share_no_line_even_where_few_are_possible() -> None:
    corpus = SyntheticCorpus(dict.fromkeys(COUNTS, 1000), seed=1, num_letters=2)
    train, dev, test = (
        set(corpus.text(Pair("text", "copy"), split).sources.take(range(1000))) for split in COUNTS
    )
    assert not train & dev and not train & test and not dev & test


def test_unknown_pairs_and_empty_splits() -> None:
    corpus = SyntheticCorpus({**COUNTS, "dev": 0}, seed=1, num_letters=26)
    with pytest.raises(CorpusError, match=r"no train lines of copy-text; there is text-cipher, te"):
        corpus.text(Pair("copy", "text"), "train")
    with pytest.raises(CorpusError, match="There are no dev lines of text-copy"):
        corpus.text(Pair("text", "copy"), "dev")
    with pytest.raises(CorpusError, match="There is no split 'validation'; did you mean 'dev'"):
        corpus.text(Pair("text", "copy"), "validation")


def test_its_batches_have_a_tag_for_each_task_and_a_piece_for_each_letter(tmp_path: Path) -> None:
    made = TagsInput.Params(train_lines=300, window_examples=300).build(vocab_dir=tmp_path, seed=1)
    vocabulary = made.vocabulary
    assert vocabulary.size <= 100
    assert vocabulary.target_languages == ("cipher", "copy", "reverse")
    assert [len(vocabulary.encode_source("q z a", task)) for task in ("copy", "reverse")] == [5, 5]
    batch = next(made.train_batches(Cursor()))
    tags = {vocabulary.tokenizer.tag_id(task): task for task in vocabulary.target_languages}
    seen = set()
    labels = vocabulary.decode(batch.arrays["target_labels"].tolist())
    sources = vocabulary.decode(batch.arrays["source_ids"].tolist())
    for ids, source, target in zip(batch.arrays["source_ids"], sources, labels, strict=True):
        task = tags[int(ids[0])]
        seen.add(task)
        if task != "cipher":
            assert target == (source if task == "copy" else source[::-1])
    assert seen == {"cipher", "copy", "reverse"}


def test_impossible_params_are_all_listed() -> None:
    with pytest.raises(ParamsError) as caught:
        TagsInput.Params(train_lines=0, dev_lines=-1, num_letters=27).validate()
    for words in (
        "train_lines (0) must be greater than 0.",
        "dev_lines (-1) must be in [0, 100_000].",
        "num_letters (27) must be in [2, 26].",
    ):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ({"train_lines": 10**12}, r"train_lines \(1000000000000\) must be at most 1_000_000_000\."),
        ({"test_lines": 10**12}, r"test_lines \(1000000000000\) must be in \[0, 100_000\]\."),
    ],
)
def test_more_lines_than_could_be_read_are_refused(lines: dict[str, int], words: str) -> None:
    with pytest.raises(ParamsError, match=words):
        TagsInput.Params(**lines).validate()
