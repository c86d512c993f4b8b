"""Writing a file so that a reader, or a crash, never sees half of it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from lingpipe.base.output import Output, naming_write_errors, output_to


@contextlib.contextmanager
def atomic_output(path: Path) -> Iterator[Output]:
    """A file that takes its place only when all of it is on the disk; none if the body fails.

    Raises:
      WriteError: the file cannot be written.
    """
    temporary = _temporary(path)
    try:
        with output_to(temporary, name=path) as output:
            yield output
            output.flush()
            with naming_write_errors(path):
                os.fsync(output.file.fileno())
        with naming_write_errors(path):
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):  # Its folder is not there, or is no folder.
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a whole file by `atomic_output`; makes its folder.

    Raises:
      WriteError: the folder cannot be made or written.
    """
    with naming_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_output(path) as output:
        output.write(data)


def check_can_be_written(path: Path) -> None:
    """Finds out that a file cannot be written before there is anything to write.

    Raises:
      WriteError: its folder is not there or takes no file, or the path is a folder.
    """
    temporary = _temporary(path)
    with naming_write_errors(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary.touch()
        temporary.unlink()


def _temporary(path: Path) -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")
