"""Files of JSON lines: one object a row, which grow by whole rows and are valid after any crash.

JSON knows no NaN: a number that is not finite becomes null, and its name is listed in the row under
"non_finite". A run that goes on from an earlier step takes back the rows written after it.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lingpipe.base.atomic_file import write_atomically
from lingpipe.base.output import WriteError, naming_write_errors

_logger = logging.getLogger(__name__)


class JsonRows:
    """A file of rows, each with its step, open for appending."""

    def __init__(self, path: Path, resume_step: int | None = None) -> None:
        """Opens the file, and makes it and its folder if need be.

        Args:
          path: the file.
          resume_step: step from which a run goes on. Rows of later steps are removed, and, with a
            warning, lines that are no rows, as a stray hand leaves them. None leaves the file as it
            is, for a process beside the one that trains.

        Raises:
          WriteError: it cannot be read or written.
        """
        self._path = path
        with naming_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if resume_step is not None and path.exists():
                self._take_back(resume_step)
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - Closed by close().
            if resume_step is None and _is_cut(path):
                self._file.write(b"\n")  # Half a line of a killed process stays a line of its own.

    def append(self, step: int, values: Mapping[str, Any]) -> None:
        """Writes one row with one call, so that no reader sees half of one.

        Args:
          step: the step it tells of.
          values: name -> number (also a scalar of NumPy or TensorFlow), text, boolean, None, or a
            list or mapping of such.

        Raises:
          WriteError: it cannot be written, for example because the disk is full.
          TypeError: a value is something else.
        """
        line = (json.dumps(_row(step, values), allow_nan=False) + "\n").encode()
        with naming_write_errors(self._path):
            before = self._file.seek(0, os.SEEK_END)
            written = self._file.write(line)
        if written < len(line):
            self._file.truncate(before)
            raise WriteError(f"Cannot write {self._path}: no space is left for a line.")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        """The rows themselves."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the file."""
        self.close()

    def _take_back(self, resume_step: int) -> None:
        """Removes rows after the step, lines that are none, and an unfinished last one."""
        text = self._path.read_text(encoding="utf-8", errors="replace")
        *lines, unfinished = text.split("\n")
        steps = [_step(line) for line in lines]
        if damaged := [number for number, step in enumerate(steps, 1) if step is None]:
            _logger.warning(
                "%s: removed %d lines that are no rows of JSON with a step, such as line %d. Every "
                "other row stays.",
                self._path,
                len(damaged),
                damaged[0],
            )
        kept = [
            line
            for line, step in zip(lines, steps, strict=True)
            if step is not None and step <= resume_step
        ]
        if unfinished or len(kept) < len(lines):
            write_atomically(self._path, "".join(f"{line}\n" for line in kept).encode())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, in order; none if there is no file. Lines that are no rows are left out.

    Raises:
      WriteError: it cannot be read.
    """
    with naming_write_errors(path):
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return [json.loads(line) for line in text.split("\n") if _step(line) is not None]


def plain(value: Any) -> Any:
    """A value as Python's own; scalars of NumPy and TensorFlow become numbers.

    Raises:
      TypeError: it is neither a number, a text, a boolean nor None.
    """
    if hasattr(value, "numpy"):
        value = value.numpy()
    if getattr(value, "size", 1) == 1 and hasattr(value, "item"):
        value = value.item()
    if value is not None and not isinstance(value, bool | int | float | str):
        raise TypeError(f"A metric must be a number, a text, a boolean or None, not {value!r}.")
    return value


def _row(step: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """A row that is valid JSON."""
    row = {"step": int(step), **{name: _tree(value) for name, value in values.items()}}
    if bad := [path for name, value in row.items() for path in _non_finite(value, name)]:
        row = {**_with_nulls(row), "non_finite": bad}
    return row


def _tree(value: Any) -> Any:
    """A value and all inside it as Python's own."""
    if isinstance(value, Mapping):
        return {str(name): _tree(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_tree(inner) for inner in value]
    return plain(value)


def _non_finite(value: Any, path: str) -> Iterator[str]:
    """Paths of the numbers that JSON cannot hold: "pairs.en-de.perplexity"."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _non_finite(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _non_finite(inner, f"{path}.{index}")
    elif isinstance(value, float) and not math.isfinite(value):
        yield path


def _with_nulls(value: Any) -> Any:
    """The value, None in the place of every number that is not finite."""
    if isinstance(value, dict):
        return {name: _with_nulls(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_nulls(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_cut(path: Path) -> bool:
    """Whether the last line of a file has no end."""
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _step(line: str) -> float | None:
    """The step of a row; None if the line is none."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return step if isinstance(step, int | float) and not isinstance(step, bool) else None
