"""Writing a file so that a reader, or a crash, never sees half of it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from lingpipe.errors import UserError


class WriteError(UserError, OSError):
    """A file that cannot be written."""


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file beside its final place, syncs it and moves it there; makes its folder.

    Raises:
      WriteError: the folder cannot be made or written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        # Where the folder cannot be read, the temporary file cannot be there either.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise WriteError(f"Cannot write {path}: {error.strerror}.") from error
