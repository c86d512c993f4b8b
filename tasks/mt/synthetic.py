"""A language without files, to see whether a model learns at all and minds its tag.

Sources are 4 to 12 letters with spaces between; there are three "languages" to translate into:

    text -> copy     a b z     a b z
    text -> reverse  a b z     z b a
    text -> cipher   a b z     n o m      (each letter moved on by half the alphabet)

Line n of a split is computed from (text_seed, split, n). A hash of the letters says which split a
line may be in, so no line of dev or test is ever trained on. The same sources serve all three, so
that only the tag tells a model which one is asked for.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from lingpipe.input.corpus import SPLITS, CorpusError, Pair, ParallelText, check_split
from lingpipe.input.permutation import key
from lingpipe.input.tokenizer import TokenizerTrainer
from lingpipe.layers.checks import check_size
from tasks.mt.parallel_input import ParallelInput

_SOURCE = "text"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_MAX_TRAIN_LINES = 10**9
_MAX_EVALUATION_LINES = 10**5  # An evaluation reads all of them.
_PARTS = {"train": range(8), "dev": range(8, 9), "test": range(9, 10)}  # Tenths of all lines.


def _copy(letters: str, _: str) -> str:
    return letters


def _reverse(letters: str, _: str) -> str:
    return letters[::-1]


def _cipher(letters: str, alphabet: str) -> str:
    half = len(alphabet) // 2
    return letters.translate(str.maketrans(alphabet, alphabet[half:] + alphabet[:half]))


TASKS: dict[str, Callable[[str, str], str]] = {
    "copy": _copy,
    "reverse": _reverse,
    "cipher": _cipher,
}


@dataclasses.dataclass(frozen=True)
class SyntheticLines:
    """Lines of letters found by their index.

    Attributes:
        split: train, dev or test.
        count: how many there are.
        seed: selects them.
        alphabet: the letters.
        change: what is done to the letters, given the alphabet too.
    """

    split: str
    count: int
    seed: int
    alphabet: str
    change: Callable[[str, str], str] = _copy

    def __len__(self) -> int:
        """How many there are."""
        return self.count

    def take(self, indices: Sequence[int]) -> list[str]:
        """The lines at `indices`."""
        return [" ".join(self.change(self._letters(i), self.alphabet)) for i in indices]

    def _letters(self, index: int) -> str:
        """The first string of a sequence of random ones that belongs to the split."""
        part = _PARTS[self.split]
        attempt = 0
        while True:
            letters = self._random_letters(key(self.seed, self.split, index, attempt))
            if key("split", letters) % 10 in part:
                return letters
            attempt += 1

    def _random_letters(self, number: int) -> str:
        number, extra = divmod(number, 9)
        letters = []
        for _ in range(4 + extra):
            number, letter = divmod(number, len(self.alphabet))
            letters.append(self.alphabet[letter])
        return "".join(letters)


class SyntheticCorpus:
    """The corpus of the table above."""

    def __init__(self, counts: dict[str, int], *, seed: int, num_letters: int) -> None:
        """Notes how much there is to be.

        Args:
            counts: lines of each of train, dev and test.
            seed: selects the lines.
            num_letters: size of the alphabet, 2 to 26.
        """
        self._counts = counts
        self._seed = seed
        self._alphabet = _ALPHABET[:num_letters]

    def pairs(self) -> tuple[Pair, ...]:
        """From text into each task."""
        return tuple(Pair(_SOURCE, task) for task in sorted(TASKS))

    def has(self, pair: Pair, split: str) -> bool:
        """Whether there are lines."""
        return self._counts[split] > 0

    def check(self) -> None:
        """Nothing can be amiss."""

    def text(self, pair: Pair, split: str) -> ParallelText:
        """The examples of one task and split.

        Raises:
            CorpusError: there is no such pair or split.
        """
        check_split(split)
        if pair not in self.pairs() or not self.has(pair, split):
            pairs = ", ".join(map(str, self.pairs()))
            raise CorpusError(f"There are no {split} lines of {pair}; there is {pairs}.")
        sources = SyntheticLines(split, self._counts[split], self._seed, self._alphabet)
        change = TASKS[pair.target_language]
        return ParallelText(sources, dataclasses.replace(sources, change=change))


class TagsInput(ParallelInput):
    """Batches of the synthetic corpus."""

    class Params(ParallelInput.Params):
        """How much of it."""

        vocabulary_size = 100
        # The text has no other characters than the alphabet's, and a small softmax is fast. A line
        # of a user's that has others loses them.
        tokenizer = TokenizerTrainer.Params(byte_fallback=False)
        train_lines: int = 100_000  # Lines to train on, each in all three tasks.
        dev_lines: int = 200  # Lines of the dev split.
        test_lines: int = 200  # Lines of the test split.
        num_letters: int = 26  # Size of the alphabet.
        text_seed: int = 1  # Selects the lines; the run's seed selects their order.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            """Values that cannot work."""
            yield from super().inconsistencies()
            yield from check_size(self, "train_lines", most=_MAX_TRAIN_LINES)
            for field in ("dev_lines", "test_lines"):
                if not 0 <= getattr(self, field) <= _MAX_EVALUATION_LINES:
                    value, most = getattr(self, field), _MAX_EVALUATION_LINES
                    yield field, f"{field} ({value}) must be in [0, {most:_}]."
            if not 2 <= self.num_letters <= len(_ALPHABET):
                yield "num_letters", f"num_letters ({self.num_letters}) must be in [2, 26]."

    params: Params

    def open_corpus(self) -> SyntheticCorpus:
        """The corpus of the params."""
        counts = {split: getattr(self.params, f"{split}_lines") for split in SPLITS}
        return SyntheticCorpus(
            counts, seed=self.params.text_seed, num_letters=self.params.num_letters
        )
