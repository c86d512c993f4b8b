"""Feeds a text of any length to a search: in chunks, each cut into batches of similar lengths.

    lines 1 ... chunk_lines   -> blank lines put aside, the others encoded
                              -> sorted by length, cut into batches of at most max_tokens
                              -> decoded, put back in their order, handed out
    the next chunk_lines ...

Sorting spares padding, chunks bound the memory, and one result comes out for each line that goes
in, in order. Everything here is plain Python: encoding and decoding are functions of the caller.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from lingpipe.decode.errors import DecodeError

Result = TypeVar("Result")

# White space, line and paragraph separators, control and format characters: nothing to translate.
_BLANK_CATEGORIES = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf"})


@dataclass(frozen=True)
class BatchLimits:
    """How much is decoded at once.

    Attributes:
      max_rows: Greatest number of lines in a batch.
      max_tokens: Greatest number of source tokens in a batch, padding counted: lines x longest
        line. A line that alone is longer makes a batch of its own.
      chunk_lines: Lines read ahead and sorted together, and so the bound on memory. A result is
        handed out when its chunk is done; 1 answers each line before the next is read.

    Raises:
      DecodeError: When one of them is less than 1.
    """

    max_rows: int = 64
    max_tokens: int = 4096
    chunk_lines: int = 2048

    def __post_init__(self) -> None:
        """Checks each limit."""
        for name in ("max_rows", "max_tokens", "chunk_lines"):
            value = getattr(self, name)
            if value < 1:
                raise DecodeError(f"{name} ({value}) must be 1 or more.")


@dataclass(frozen=True)
class LongLine:
    """A line that a warning is due for. It is decoded whole all the same.

    Attributes:
      line_number: Its place in the text, the first line is 1.
      tokens: Its length once encoded.
      limit: The length above which lines are warned of.
    """

    line_number: int
    tokens: int
    limit: int

    def __str__(self) -> str:
        """Returns the warning in words."""
        return (
            f"Line {self.line_number} has {self.tokens} tokens, more than {self.limit}: it is "
            "decoded whole, but the translation of a line this long is rarely good. Consider "
            "splitting it into sentences."
        )


def is_blank(line: str) -> bool:
    """Says whether a line holds nothing to translate: white space and control characters only."""
    return all(unicodedata.category(character) in _BLANK_CATEGORIES for character in line)


def group_by_length(lengths: Sequence[int], limits: BatchLimits) -> list[list[int]]:
    """Cuts lines into batches of similar lengths.

    Args:
      lengths: Number of tokens of each line.
      limits: Bounds of a batch; `chunk_lines` plays no part.

    Returns:
      Batches of indices into `lengths`; each index is in exactly one. The longest lines come
      first, so that a batch too large for the memory shows at once; equal lengths keep their
      order.
    """
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        rows = len(batches[-1]) + 1 if batches else 0
        if not batches or rows > limits.max_rows or rows * longest > limits.max_tokens:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    return batches


def decode_stream(
    lines: Iterable[str],
    encode: Callable[[str], Sequence[int]],
    decode_batch: Callable[[list[Sequence[int]]], Sequence[Result]],
    *,
    blank: Result,
    limits: BatchLimits,
    warn: Callable[[LongLine], None] | None = None,
    warn_beyond_tokens: int = 1024,
) -> Iterator[Result]:
    """Yields one result a line, in order, holding at most `limits.chunk_lines` lines at a time.

    Args:
      lines: Source lines without their line ends; read lazily.
      encode: Turns a line into source ids.
      decode_batch: Turns the ids of some lines into one result each, in the same order.
      blank: Result of a line for which `is_blank` is true. No model sees such a line: it would
        invent a sentence.
      limits: How much is read and decoded at once. They change no result, if `decode_batch`
        gives each line the same result in any company.
      warn: Called with each line longer than `warn_beyond_tokens`.
      warn_beyond_tokens: Length above which `warn` is called.

    Yields:
      The results of `decode_batch` and `blank`.

    Raises:
      ValueError: When `decode_batch` returns more or fewer results than it was given lines.
    """
    stream = iter(lines)
    first_line_number = 1
    while chunk := list(islice(stream, limits.chunk_lines)):
        encoded: dict[int, Sequence[int]] = {}
        for offset, line in enumerate(chunk):
            if is_blank(line):
                continue
            encoded[offset] = encode(line)
            tokens = len(encoded[offset])
            if warn is not None and tokens > warn_beyond_tokens:
                warn(LongLine(first_line_number + offset, tokens, warn_beyond_tokens))
        results = _decode_chunk(encoded, decode_batch, limits)
        for offset in range(len(chunk)):
            yield results.get(offset, blank)
        first_line_number += len(chunk)


def _decode_chunk(
    encoded: dict[int, Sequence[int]],
    decode_batch: Callable[[list[Sequence[int]]], Sequence[Result]],
    limits: BatchLimits,
) -> dict[int, Result]:
    """Returns the result of each encoded line, under the same key."""
    offsets = list(encoded)
    results: dict[int, Result] = {}
    for batch in group_by_length([len(ids) for ids in encoded.values()], limits):
        keys = [offsets[index] for index in batch]
        decoded = decode_batch([encoded[key] for key in keys])
        if len(decoded) != len(keys):
            raise ValueError(
                f"decode_batch returned {len(decoded)} results for {len(keys)} lines; it must "
                "return one a line, in order."
            )
        results.update(zip(keys, decoded, strict=True))
    return results
