"""Parallel text: what a corpus offers, whether it lies in a folder or is made up on the spot.

A corpus has pairs, each a direction of translation (en -> de and de -> en are two), and for each
pair and split a sequence of examples found by their index. The training order, the tokenizer and
the evaluation see nothing but this, so a new kind of corpus needs to provide nothing else.
"""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from lingpipe.errors import UserError
from lingpipe.hyperparams.names import nearest

# What the command line calls a split -> how its files are called.
SPLITS = {"train": "train", "dev": "valid", "test": "test"}


class CorpusError(UserError, ValueError):
    """A corpus that is missing, incomplete, or does not hold what was asked for."""


@dataclasses.dataclass(frozen=True, order=True)
class Pair:
    """A direction of translation, from one language to another."""

    source_language: str
    target_language: str

    def __str__(self) -> str:
        return f"{self.source_language}-{self.target_language}"


class Lines(Protocol):
    """Lines found by their index: `IndexedLines` of a file, or computed ones."""

    def __len__(self) -> int:
        """How many there are."""

    def take(self, indices: Sequence[int]) -> list[str]:
        """The lines at `indices`, in the order asked for."""


@dataclasses.dataclass(frozen=True)
class ParallelText:
    """Two texts, line by line translations of each other.

    Attributes:
        sources: the lines in the source language.
        targets: as many lines in the target language.
    """

    sources: Lines
    targets: Lines

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.sources)


class Corpus(Protocol):
    """Where examples come from."""

    def pairs(self) -> Sequence[Pair]:
        """The directions that it offers, in a fixed order."""

    def has(self, pair: Pair, split: str) -> bool:
        """Whether the pair has examples in one of SPLITS."""

    def check(self) -> None:
        """Reads everything once.

        Raises:
            UserError: something cannot be read, or does not match.
        """

    def text(self, pair: Pair, split: str) -> ParallelText:
        """The examples of one pair and one of SPLITS.

        Raises:
            CorpusError: there are none, or sources and targets do not match.
        """


def check_split(split: str) -> None:
    """Refuses a split that is none of SPLITS.

    Raises:
        CorpusError: with the nearest name.
    """
    if split not in SPLITS:
        near = "dev" if split.startswith("val") else nearest(split, SPLITS)
        hint = f"did you mean '{near}'?" if near else f"there are {', '.join(SPLITS)}."
        raise CorpusError(f"There is no split '{split}'; {hint}")
