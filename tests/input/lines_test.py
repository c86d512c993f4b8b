"""Lines end at a newline only, and a text that cannot be read is named with its line."""

import gzip
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingpipe.input.lines import TextError, iterate_lines, open_bytes, read_lines

# Case T1: each is one line, as it stands, except that one \r before \n belongs to the line's end.
AWKWARD = [
    "",
    " ",
    "\t",
    "next\x85line",
    "line\u2028separator",
    "paragraph\u2029separator",
    "vertical\x0btab",
    "form\x0cfeed",
    "file\x1cgroup\x1drecord\x1e",
    "nul\x00inside",
    "\xa0no-break space\xa0",
    "\u3000ideographic space",
    "lone\rreturn",
    "mark\ufeffinside",
    "word " * 5000,
    "",
]


def written(folder: Path, data: bytes, name: str = "text.en") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["text.en", "text.en.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_a_newline_ends_a_line(tmp_path: Path, name: str, end: str) -> None:
    path = written(tmp_path, "".join(line + end for line in AWKWARD).encode(), name)
    assert list(read_lines(path)) == AWKWARD


def test_a_stream_gives_the_same_lines_as_a_file() -> None:
    stream = io.BytesIO("\n".join([*AWKWARD, ""]).encode())
    assert list(iterate_lines(stream, "standard input")) == AWKWARD


def test_a_stream_gives_a_line_before_the_next_is_there() -> None:
    seen = []

    def typed() -> Iterator[bytes]:
        for line in (b"one\n", b"two\n"):
            seen.append(line)
            yield line

    assert next(iterate_lines(typed(), "standard input")) == "one"
    assert seen == [b"one\n"]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"\r\n", [""]),
        (b"a\r\r\n", ["a\r"]),
        (b"a\nb", ["a", "b"]),
        (b"a\nb\r", ["a", "b\r"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    ],
)
def test_ends_of_files_and_byte_order_marks(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    assert list(read_lines(written(tmp_path, data))) == lines


def test_a_wrong_byte_is_named_with_file_line_and_place(tmp_path: Path) -> None:
    path = written(tmp_path, b"good\nna\xefve\n")
    lines = read_lines(path)
    assert next(lines) == "good"
    with pytest.raises(TextError) as caught:
        next(lines)
    assert str(caught.value) == (
        f"{path}, line 2 is not UTF-8: it has byte 0xef at byte 3. Convert the file to UTF-8, for "
        "example with iconv."
    )


@pytest.mark.parametrize("name", ["text.en", "text.en.gz"])
def test_a_file_cut_in_the_middle_of_a_character(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, "eins\nschön".encode()[:-2], name)
    with pytest.raises(TextError) as caught:
        list(read_lines(path))
    assert str(caught.value) == (
        f"{path}, line 2 is not UTF-8: it ends in the middle of a character. The file was probably "
        "cut short; copy it again."
    )


def test_a_wrong_byte_at_the_end_of_a_line_is_no_cut_file(tmp_path: Path) -> None:
    path = written(tmp_path, "un café\nok\n".encode("latin-1"))
    with pytest.raises(TextError, match="line 1 is not UTF-8: it has byte 0xe9 at byte 7"):
        list(read_lines(path))


def test_utf_16_is_recognised(tmp_path: Path) -> None:
    path = written(tmp_path, "hello\n".encode("utf-16"))
    with pytest.raises(TextError, match="line 1 is not UTF-8: it begins with the byte order mark"):
        list(read_lines(path))


def test_a_gz_file_cut_short(tmp_path: Path) -> None:
    path = written(tmp_path, b"some text\n" * 1000, "text.en.gz")
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(TextError) as caught:
        list(read_lines(path))
    assert str(caught.value) == (
        f"{path} is cut short: its gzip data ends too early. Copy it again."
    )


def test_plain_text_called_gz(tmp_path: Path) -> None:
    path = tmp_path / "text.en.gz"
    path.write_bytes(b"plain\n")
    with pytest.raises(TextError, match=r"text.en.gz is not sound gzip data .*drop the ending .gz"):
        list(read_lines(path))


@pytest.mark.parametrize("name", ["folder", "folder.gz"])
def test_a_folder_given_for_a_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(TextError) as caught:
        read_lines(tmp_path / name)
    assert str(caught.value) == (
        f"{tmp_path / name} is a folder, not a text file; name a file in it."
    )


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "train.en").touch()
    (tmp_path / "other.de").touch()
    with pytest.raises(TextError) as caught:
        read_lines(tmp_path / "trian.en")
    assert str(caught.value) == (
        f"{tmp_path / 'trian.en'} does not exist; did you mean {tmp_path / 'train.en'}?"
    )
    with pytest.raises(TextError, match=r"does not exist; .* has: other.de, train.en\."):
        read_lines(tmp_path / "zzz")
    with pytest.raises(TextError, match=r"does not exist, and neither does its folder"):
        read_lines(tmp_path / "nowhere" / "train.en")


def test_an_unreadable_file_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, b"a\n")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(TextError, match=r"^Cannot read .*text.en: Permission denied\.$"):
        read_lines(path)


def test_closing_an_unpacked_file_closes_the_packed_one(tmp_path: Path) -> None:
    with open_bytes(written(tmp_path, b"a\n", "a.gz")) as file:
        packed = file.fileobj  # type: ignore[attr-defined]
    assert packed.closed
