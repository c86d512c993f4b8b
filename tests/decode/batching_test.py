"""Lines in, results out: one each, in order, whatever the batches."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingpipe.decode.batching import (
    BatchLimits,
    LongLine,
    decode_stream,
    group_by_length,
    is_blank,
)
from lingpipe.decode.errors import DecodeError

# Lines that other readers split, join or drop; every one is one line of a text.
AWKWARD = [
    "",
    "a",
    " ",
    "two words",
    "\t",
    "line end\r",
    "next\x85line",
    "line\u2028separator",
    "vertical\x0btab",
    "form\x0cfeed",
    "\ufeffbyte order mark",
    "nul\x00inside",
    "no\u00a0break",
    "\u3000",
    "",
    "word " * 5000,
    "last",
]


def _encode(line: str) -> list[int]:
    return [ord(character) for character in line]


def _decode(batch: list[Sequence[int]]) -> list[str]:
    return ["".join(chr(token) for token in ids).upper() for ids in batch]


@pytest.mark.parametrize("chunk_lines", [1, 3, 7, 1000])
@pytest.mark.parametrize("max_rows", [1, 3, 7, 1000])
def test_one_result_comes_out_for_each_line_in_order(chunk_lines: int, max_rows: int) -> None:
    limits = BatchLimits(max_rows=max_rows, max_tokens=100, chunk_lines=chunk_lines)
    results = list(decode_stream(AWKWARD, _encode, _decode, blank="", limits=limits))
    assert results == [line.upper() if line.strip() else "" for line in AWKWARD]


@pytest.mark.parametrize(
    "line",
    ["", " ", "\t", "\r", "\x85", "\u2028", "\x0b\x0c", "\ufeff", "\x00", "\u00a0", "\u3000"],
)
def test_a_line_of_white_space_or_control_characters_never_reaches_the_model(line: str) -> None:
    encoded: list[str] = []

    def encode(text: str) -> list[int]:
        encoded.append(text)
        return _encode(text)

    lines = [line, "a", line]
    results = decode_stream(lines, encode, _decode, blank="nothing", limits=BatchLimits())
    assert is_blank(line)
    assert list(results) == ["nothing", "A", "nothing"]
    assert encoded == ["a"]


@pytest.mark.parametrize("line", ["a", " . ", "\u00ad-", "\U0001f600", "\ue000", "\ufeffx"])
def test_a_line_with_one_visible_character_is_not_blank(line: str) -> None:
    assert not is_blank(line)


def test_no_more_than_a_chunk_is_read_ahead() -> None:
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for number in range(100):
            read += 1
            yield str(number)

    limits = BatchLimits(max_rows=4, max_tokens=64, chunk_lines=10)
    stream = decode_stream(lines(), _encode, _decode, blank="", limits=limits)
    assert read == 0
    for number in range(100):
        assert next(stream) == str(number)
        assert read == 10 * (number // 10 + 1)


@given(
    lengths=st.lists(st.integers(1, 50), max_size=60),
    max_rows=st.integers(1, 9),
    max_tokens=st.integers(1, 120),
)
@settings(max_examples=60, deadline=None)
def test_batches_keep_their_limits_and_lose_no_line(
    lengths: list[int], max_rows: int, max_tokens: int
) -> None:
    batches = group_by_length(lengths, BatchLimits(max_rows=max_rows, max_tokens=max_tokens))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    in_order = [lengths[index] for batch in batches for index in batch]
    assert in_order == sorted(lengths, reverse=True)
    for batch in batches:
        padded = len(batch) * max(lengths[index] for index in batch)
        assert len(batch) <= max_rows
        assert padded <= max_tokens or len(batch) == 1


def test_lines_of_similar_length_share_a_batch() -> None:
    batches = group_by_length([2, 9, 2, 10, 1, 30], BatchLimits(max_rows=4, max_tokens=20))
    assert batches == [[5], [3, 1], [0, 2, 4]]


def test_long_lines_are_warned_of_by_number_and_decoded_whole() -> None:
    lines = ["", "short", "x" * 30, " ", "short", "y" * 11, "z" * 10]
    warned: list[LongLine] = []
    limits = BatchLimits(max_rows=2, max_tokens=20, chunk_lines=2)
    results = list(
        decode_stream(
            lines,
            _encode,
            _decode,
            blank="",
            limits=limits,
            warn=warned.append,
            warn_beyond_tokens=10,
        )
    )
    assert results == ["", "SHORT", "X" * 30, "", "SHORT", "Y" * 11, "Z" * 10]
    assert warned == [LongLine(3, 30, 10), LongLine(6, 11, 10)]
    assert str(warned[0]).startswith("Line 3 has 30 tokens, more than 10: it is decoded whole")


def test_a_model_that_loses_lines_is_found_out() -> None:
    stream = decode_stream(
        ["a", "b", "c"], _encode, lambda batch: ["A"], blank="", limits=BatchLimits()
    )
    with pytest.raises(ValueError, match="returned 1 results for 3 lines"):
        list(stream)


@pytest.mark.parametrize("name", ["max_rows", "max_tokens", "chunk_lines"])
def test_limits_below_one_are_refused(name: str) -> None:
    with pytest.raises(DecodeError, match=rf"{name} \(0\) must be 1 or more"):
        BatchLimits(**{name: 0})
