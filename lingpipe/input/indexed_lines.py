"""Any line of a large text by its number, in little memory.

The file is read through once: it is checked to be UTF-8 to its last byte, and the place of every
16th line is noted, so that 100 million lines take 50 MB. A line is then found by reading the few
lines from the last noted place on. No file stays open, or a thousand pairs would use up the file
handles that a process may have; only gzipped files do, unpacked into an unnamed temporary file.
"""

import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, overload

import numpy as np

from lingpipe.input.lines import (
    BYTE_ORDER_MARK,
    READ_FAILURES,
    TextError,
    broken_stream,
    decode_line,
    open_bytes,
)

_STRIDE = 16  # Lines from one noted place to the next.
_CHUNK_BYTES = 2**21


class IndexedLines(Sequence[str]):
    """The lines of a file as a sequence; see lines.py for what a line is.

    Attributes:
        path: the file.
        ends_with_newline: whether `wc -l` counts the last line.
    """

    def __init__(self, path: Path) -> None:
        """Reads the whole file once.

        Raises:
            TextError: it cannot be opened or read, or is not UTF-8.
        """
        self.path = path
        self.ends_with_newline = True
        self._unpacked: IO[bytes] | None = None
        self._count = 0
        self._size = 0
        with open_bytes(path) as file:
            if path.suffix == ".gz":
                self._unpacked = tempfile.TemporaryFile()  # noqa: SIM115 - Lives as long as self.
            try:
                self._places = self._scan(file)
            except TextError:
                if self._unpacked is not None:
                    self._unpacked.close()
                raise

    def __len__(self) -> int:
        """How many lines there are."""
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """One line, or a list of some."""
        if isinstance(index, slice):
            return self.take(range(*index.indices(self._count)))
        number = index + self._count if index < 0 else index
        if not 0 <= number < self._count:
            raise IndexError(f"{self.path} has {self._count} lines; there is none at {index}.")
        return self.take([number])[0]

    def __iter__(self) -> Iterator[str]:
        """All lines in order."""
        for start in range(0, self._count, 1024):
            yield from self.take(range(start, min(start + 1024, self._count)))

    def take(self, indices: Sequence[int]) -> list[str]:
        """The lines at `indices`, each in [0, len), in the order asked for.

        Raises:
            TextError: the file has changed since it was read through.
        """
        result = []
        known_block, lines = -1, [b""]
        with self._opened() as handle:
            for index in indices:
                block = index // _STRIDE
                if block != known_block:
                    known_block, lines = block, self._read_block(handle, block)
                line = lines[index % _STRIDE]
                if line.endswith(b"\r") and (self.ends_with_newline or index + 1 < self._count):
                    line = line[:-1]
                result.append(self._decoded(line, index))
        return result

    def _decoded(self, line: bytes, index: int) -> str:
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._changed() from error

    def _read_block(self, handle: int, block: int) -> list[bytes]:
        start, end = int(self._places[block]), int(self._places[block + 1])
        lines = os.pread(handle, end - start, start).split(b"\n")
        if len(lines) < min(_STRIDE, self._count - block * _STRIDE):
            raise self._changed()
        return lines

    @contextmanager
    def _opened(self) -> Iterator[int]:
        if self._unpacked is not None:
            yield self._unpacked.fileno()
            return
        with open_bytes(self.path) as file:
            if os.fstat(file.fileno()).st_size != self._size:
                raise self._changed()
            yield file.fileno()

    def _changed(self) -> TextError:
        return TextError(
            f"{self.path} changed while it was in use. Start the run again, and write new data to "
            "a new file."
        )

    def _scan(self, file: IO[bytes]) -> np.ndarray:
        """Checks the text, counts its lines and returns the places of blocks, int64 [blocks + 1].

        A chunk always ends with a line, so that a character cut in two is one that the file cut.
        """
        places: list[np.ndarray] = []
        while chunk := self._read_chunk(file):
            start = self._size
            text = chunk.removeprefix(BYTE_ORDER_MARK) if start == 0 else chunk
            self._size += len(chunk)
            self._check(text)
            if not text:  # A byte order mark and nothing else.
                break
            ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
            starts = np.concatenate(([0], ends + 1))
            self.ends_with_newline = text.endswith(b"\n")
            if self.ends_with_newline:
                starts = starts[:-1]
            first = -self._count % _STRIDE
            places.append(starts[first::_STRIDE] + self._size - len(text))
            self._count += len(starts)
        return np.concatenate([*places, np.array([self._size])]).astype(np.int64)

    def _read_chunk(self, file: IO[bytes]) -> bytes:
        try:
            chunk = file.read(_CHUNK_BYTES) + file.readline()
        except READ_FAILURES as error:
            raise broken_stream(error, str(self.path)) from error
        if self._unpacked is not None:
            self._unpacked.write(chunk)
            self._unpacked.flush()
        return chunk

    def _check(self, text: bytes) -> None:
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            for number, line in enumerate(io.BytesIO(text), start=self._count + 1):
                decode_line(line, str(self.path), number)  # Raises at the line that is wrong.
            raise
