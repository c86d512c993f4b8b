"""Writing a file so that a reader, or a crash, never sees half of it."""

from __future__ import annotations

import contextlib
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
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
