"""Writing for a user: a file or standard output whose errors say which one cannot be written.

Python reports a full disk as "No space left on device", without a name when the file is open
already. What is written through an `Output` fails with a `WriteError` that names it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lingpipe.errors import UserError


class WriteError(UserError, OSError):
    """A file or stream that cannot be written."""


@contextlib.contextmanager
def naming_write_errors(name: str | Path) -> Iterator[None]:
    """Turns errors of the operating system inside into a `WriteError` that names the file.

    A reader that has gone is no error of the file: `BrokenPipeError` passes.
    """
    try:
        yield
    except (UserError, BrokenPipeError):
        raise
    except OSError as error:
        raise WriteError(f"Cannot write {name}: {error.strerror or error}.") from error


@dataclasses.dataclass(frozen=True)
class Output:
    """A file or stream open for writing, and what users call it."""

    name: str | Path
    file: IO[bytes]

    def write(self, data: bytes) -> None:
        """Writes all of `data`, perhaps only to the buffer.

        Raises:
          WriteError: it cannot be written.
        """
        with naming_write_errors(self.name):
            self.file.write(data)

    def flush(self) -> None:
        """Hands what is in the buffer to the operating system.

        Raises:
          WriteError: it cannot be written.
        """
        with naming_write_errors(self.name):
            self.file.flush()


@contextlib.contextmanager
def output_to(path: Path, name: Path | None = None) -> Iterator[Output]:
    """A file opened for writing.

    Args:
      path: the file.
      name: what to call it in errors; None for its path.

    Raises:
      WriteError: it cannot be opened, or what was left in the buffer cannot be written.
    """
    name = name or path
    with naming_write_errors(name):
        file = path.open("wb")
    try:
        yield Output(name, file)
    finally:
        with naming_write_errors(name):
            file.close()


def standard_output() -> Output:
    """Standard output, for results that programs read."""
    return Output("standard output", sys.stdout.buffer)


def write_result(text: str) -> None:
    """Writes a result to standard output at once.

    Raises:
      WriteError: standard output is closed, or its disk is full.
    """
    output = standard_output()
    output.write(text.encode("utf-8"))
    output.flush()
