"""Writing files so that a reader, or a crash, never sees half of one."""

from __future__ import annotations

import os
from pathlib import Path

from lingpipe.errors import UserError


class RunDirectoryError(UserError):
    """A run directory that cannot be read or written, or does not hold what was asked for."""


def write_atomically(path: Path, text: str) -> None:
    """Writes a UTF-8 file beside its final place, syncs it and moves it there.

    Raises:
      RunDirectoryError: the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunDirectoryError(f"Cannot write {path}: {error.strerror}.") from error
