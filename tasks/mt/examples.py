"""Tokenised sentence pairs, and how they become the arrays of a batch.

    source_ids      <2de>  pieces ...  </s>   0   0       int32 [B, S]
    target_ids      <s>    pieces ...         0   0       int32 [B, T]
    target_labels   pieces ...         </s>   0   0       int32 [B, T]
    target_weights  1      1  ...      1      0   0       float32 [B, T]

Ids lie one after the other in a flat array with the place of each sentence beside it: lists of
Python integers would take ten times the memory, and a sentence that comes again costs two numbers.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from lingpipe.input.permutation import Int64s
from lingpipe.input.tokenizer import BEGIN_ID, END_ID, PAD_ID, Tokenizer

Int32s = npt.NDArray[np.int32]
_CHUNK_CHARACTERS = 2**18  # Text tokenised at once, as lists of Python integers.


@dataclasses.dataclass(frozen=True)
class Sentences:
    """The ids of some sentences.

    Attributes:
        ids: int32, the ids of all, each sentence's side by side.
        starts: int64 [n], where each sentence begins in `ids`; several may share a place.
        lengths: int64 [n], pieces of each.
    """

    ids: Int32s
    starts: Int64s
    lengths: Int64s

    @classmethod
    def tokenize(cls, lines: Sequence[str], tokenizer: Tokenizer) -> "Sentences":
        """The pieces of each line, one line after the other."""
        parts = [np.zeros(0, np.int32)]
        counts: list[int] = []
        for chunk in _chunks(lines):
            encoded = tokenizer.encode(chunk)
            counts.extend(map(len, encoded))
            parts.append(np.fromiter(itertools.chain.from_iterable(encoded), np.int32))
        lengths = np.array(counts, np.int64)
        return cls(np.concatenate(parts), np.cumsum(lengths) - lengths, lengths)

    def take(self, rows: Int64s) -> "Sentences":
        """Some of the sentences, in any order and number; the ids are shared, not copied."""
        return Sentences(self.ids, self.starts[rows], self.lengths[rows])

    def padded(self, rows: Int64s, width: int) -> Int32s:
        """Some sentences side by side, int32 [B, width], PAD_ID behind each."""
        columns = np.arange(width)
        inside = columns < self.lengths[rows][:, None]  # [B, width]
        result = np.full(inside.shape, PAD_ID, np.int32)
        result[inside] = self.ids[(self.starts[rows][:, None] + columns)[inside]]
        return result


def _chunks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Cuts lines where their characters pass a multiple of _CHUNK_CHARACTERS."""
    ends = itertools.accumulate(map(len, lines))
    numbered = zip((end // _CHUNK_CHARACTERS for end in ends), lines, strict=True)
    for _, chunk in itertools.groupby(numbered, key=lambda pair: pair[0]):
        yield [line for _, line in chunk]


@dataclasses.dataclass(frozen=True)
class Examples:
    """Sentence pairs with the language that is asked for; a `Window` of batching.py.

    Attributes:
        sources: pieces of the source sentences.
        targets: pieces of their translations.
        tags: int32 [n], id of the tag of each target language.
        positions: int64 [n], where each example stands.
    """

    sources: Sentences
    targets: Sentences
    tags: Int32s
    positions: Int64s

    @property
    def lengths(self) -> Int64s:
        """Tokens of each side, int64 [n, 2]: a tag and an end are added, or a begin or end."""
        return np.stack([self.sources.lengths + 2, self.targets.lengths + 1], axis=1)

    def collate(self, rows: Int64s, length_multiple: int = 1) -> dict[str, npt.NDArray[np.generic]]:
        """The batch of some examples, as drawn at the top of this file."""
        lengths = self.lengths[rows]
        widths = -(-lengths.max(axis=0) // length_multiple) * length_multiple
        target_ends = lengths[:, 1] - 1
        targets = self.targets.padded(rows, int(widths[1]))
        labels = targets.copy()
        labels[np.arange(len(rows)), target_ends] = END_ID
        inputs = np.roll(targets, 1, axis=1)  # The last column is free: the end goes there.
        inputs[:, 0] = BEGIN_ID
        return {
            "source_ids": self._source_ids(rows, int(widths[0])),
            "target_ids": inputs,
            "target_labels": labels,
            "target_weights": (np.arange(widths[1]) <= target_ends[:, None]).astype(np.float32),
        }

    def _source_ids(self, rows: Int64s, width: int) -> Int32s:
        pieces = self.sources.padded(rows, width - 1)
        result = np.concatenate([self.tags[rows][:, None], pieces], axis=1)  # [B, S]
        result[np.arange(len(rows)), 1 + self.sources.lengths[rows]] = END_ID
        return result
