r"""The one reader of text lines, for every verb: training, evaluation, decoding and scoring.

A line ends at `\n`, and one `\r` right before it belongs to the end. Nothing else ends it: not a
lone `\r`, U+0085, U+2028, a vertical tab or a form feed, at which Python's `str.splitlines` would
cut and let two files drift apart. A byte order mark at the start of the text is dropped. Text is
strict UTF-8, plain or (by the name's ending `.gz`) gzipped.

The number of lines is that of `wc -l`, plus one if the last line has no `\n`: `wc -l` does not
count such a line, but it holds words that nobody wants to lose. An empty file has no lines.
"""

import gzip
import zlib
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from lingpipe.errors import UserError
from lingpipe.hyperparams.names import listed, nearest

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TextError(UserError, ValueError):
    """A text that cannot be read, or is not UTF-8: the message names the file and the line."""


def read_lines(path: Path) -> Generator[str, None, None]:
    """The lines of a file, read as they are asked for; it is closed after the last, or by `close`.

    Raises:
        TextError: at once if the file cannot be opened; later, at a line that is not UTF-8.
    """
    return _lines_then_close(open_bytes(path), str(path))


def iterate_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    r"""The lines of a binary stream such as `sys.stdin.buffer`, each as soon as it is complete.

    Args:
        stream: yields bytes up to and including each `\n`, as every binary file object does.
        name: what messages call the stream.

    Raises:
        TextError: at a line that is not UTF-8, or where the stream breaks off.
    """
    for number, line in enumerate(_reading(stream, name), start=1):
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
            if not line:  # Nothing but the mark: an empty text.
                return
        yield decode_line(line, name, number)


def decode_line(line: bytes, name: str, number: int) -> str:
    """The text of one line, given with its end or without.

    Raises:
        TextError: it is not UTF-8; the message has `name` and `number`.
    """
    ends = line.endswith(b"\n")
    if ends:
        line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(error, line, name, number, is_cut=not ends) from error


def open_bytes(path: Path) -> IO[bytes]:
    """A file opened for reading, unpacked if its name ends in `.gz`.

    Raises:
        TextError: it is missing (with the nearest name that exists), a folder, or unreadable.
    """
    try:
        # The file is opened here, or a folder named x.gz would only be noticed when read.
        file = path.open("rb")
    except FileNotFoundError as error:
        raise TextError(_missing(path)) from error
    except IsADirectoryError as error:
        raise TextError(f"{path} is a folder, not a text file; name a file in it.") from error
    except OSError as error:
        raise TextError(f"Cannot read {path}: {error.strerror}.") from error
    return cast(IO[bytes], _Unpacked(file)) if path.suffix == ".gz" else file


def broken_stream(error: Exception, name: str) -> TextError:
    """The letter for an exception that reading raised half-way."""
    if isinstance(error, EOFError):
        return TextError(f"{name} is cut short: its gzip data ends too early. Copy it again.")
    if isinstance(error, gzip.BadGzipFile | zlib.error):
        return TextError(
            f"{name} is not sound gzip data ({error}). Copy it again, or drop the ending .gz if it "
            "is plain text."
        )
    return TextError(f"Cannot read {name}: {getattr(error, 'strerror', None) or error}.")


READ_FAILURES = (EOFError, OSError, zlib.error)  # BadGzipFile is an OSError.


class _Unpacked(gzip.GzipFile):
    """Gzip data of a file, which is closed together with it; GzipFile alone leaves it open."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        super().__init__(fileobj=file, mode="rb")

    def close(self) -> None:
        super().close()
        self._file.close()


def _lines_then_close(file: IO[bytes], name: str) -> Generator[str, None, None]:
    with file:
        yield from iterate_lines(file, name)


def _reading(stream: Iterable[bytes], name: str) -> Iterator[bytes]:
    try:
        yield from stream
    except READ_FAILURES as error:
        raise broken_stream(error, name) from error


def _not_utf8(
    error: UnicodeDecodeError, line: bytes, name: str, number: int, *, is_cut: bool
) -> TextError:
    if is_cut and error.end == len(line) and error.reason == "unexpected end of data":
        what = "ends in the middle of a character"
        advice = "The file was probably cut short; copy it again."
    elif number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff"):
        what = "begins with the byte order mark of UTF-16"
        advice = "Convert the file: iconv -f UTF-16 -t UTF-8."
    else:
        what = f"has byte 0x{line[error.start]:02x} at byte {error.start + 1}"
        advice = "Convert the file to UTF-8, for example with iconv."
    return TextError(f"{name}, line {number} is not UTF-8: it {what}. {advice}")


def _missing(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"{path} does not exist, and neither does its folder {folder}."
    names = sorted(entry.name for entry in folder.iterdir())
    near = nearest(path.name, names)
    hint = f"did you mean {folder / near}?" if near else f"{folder} has: {listed(names)}."
    return f"{path} does not exist; {hint}"
