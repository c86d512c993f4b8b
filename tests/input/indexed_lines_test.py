"""Lines by number are the same lines, in bounded memory."""

import gzip
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingpipe.input import indexed_lines
from lingpipe.input.indexed_lines import IndexedLines
from lingpipe.input.lines import TextError, iterate_lines, read_lines


@pytest.mark.parametrize("name", ["text.en", "text.en.gz"])
def test_every_line_is_found_by_its_number(tmp_path: Path, name: str) -> None:
    lines = [f"line {n}\u2028{'x' * (n % 7)}" if n % 5 else "" for n in range(100)]
    data = "".join(f"{line}\n" for line in lines).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    indexed = IndexedLines(path)
    assert len(indexed) == 100
    assert list(indexed) == lines
    assert indexed.take([99, 0, 17, 17, 16, 15]) == [lines[i] for i in (99, 0, 17, 17, 16, 15)]
    assert indexed[-1] == lines[99]
    assert indexed[20:60:7] == lines[20:60:7]
    with pytest.raises(IndexError, match="has 100 lines; there is none at 100"):
        indexed[100]


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.sampled_from("ab\n\r\u2028é\ufeff"), max_size=60), st.booleans(), st.integers(1, 9)
)
def test_it_agrees_with_the_streaming_reader(
    tmp_path_factory: pytest.TempPathFactory, text: str, mark: bool, chunk: int
) -> None:
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes(b"\xef\xbb\xbf" * mark + text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexed_lines, "_CHUNK_BYTES", chunk)
        indexed = IndexedLines(path)
    assert list(indexed) == list(read_lines(path))


def test_a_wrong_byte_at_the_end_of_a_line_is_no_cut_file(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("un café\nok\n".encode("latin-1"))
    with pytest.raises(TextError, match="line 1 is not UTF-8: it has byte 0xe9 at byte 7"):
        IndexedLines(path)


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_lines(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "text").write_bytes(data)
    indexed = IndexedLines(tmp_path / "text")
    assert len(indexed) == 0
    assert list(indexed) == []


def test_a_wrong_byte_anywhere_is_found_at_once(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"fine\n" * 500_000 + b"b\xffd\n")
    with pytest.raises(TextError, match="line 500001 is not UTF-8: it has byte 0xff at byte 2"):
        IndexedLines(path)


def test_a_gz_file_cut_short_is_found_at_once(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"fine\n" * 1000)[:-9])
    with pytest.raises(TextError, match=r"text.gz is cut short: its gzip data ends too early"):
        IndexedLines(path)


def test_a_file_that_changes_in_use_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one\ntwo\n")
    indexed = IndexedLines(path)
    path.write_bytes(b"one\ntwo\nthree\n")
    with pytest.raises(TextError, match=r"text changed while it was in use. Start the run again"):
        indexed.take([0])


def test_a_million_lines_take_half_a_byte_each(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"a short line of text\n" * 1_000_000)
    tracemalloc.start()
    indexed = IndexedLines(path)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(indexed) == 1_000_000
    assert kept < 1_000_000
    assert peak < 40_000_000  # A few copies of one chunk and its line ends, whatever the file.


def test_no_file_stays_open(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"one\n")
    before = len(list(Path("/proc/self/fd").iterdir()))
    every = [IndexedLines(tmp_path / "text") for _ in range(50)]
    assert [lines[0] for lines in every] == ["one"] * 50
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_wc_does_not_count_an_unfinished_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"one\ntwo")
    assert not IndexedLines(tmp_path / "text").ends_with_newline
    assert list(iterate_lines([b"one\n", b"two"], "text")) == ["one", "two"]
