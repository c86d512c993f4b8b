"""The figures of a run: one JSON object a line for programs, TensorBoard files for people.

    with MetricsLog(logdir, resume_step=100) as log:
        log.log_training(110, {"loss": 3.2, "learning_rate": 1e-4})
        log.log_evaluation(200, {"split": "dev", "loss": 3.0})

writes to metrics.jsonl, eval.jsonl, tensorboard/train/ and tensorboard/dev/. A run that goes on
from the checkpoint of step 100 first takes back the rows that a killed process wrote after it, so
every step is told once. JSON knows no NaN: a number that is not finite becomes null, and its name
is listed under "non_finite".
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tensorflow as tf
from absl import logging

from lingpipe.base.atomic_file import WriteError, write_atomically

Values = Mapping[str, Any]  # Name -> number, text, boolean or None; scalars of NumPy or TensorFlow.


class MetricsLog:
    """Writes the rows and curves of one run."""

    def __init__(self, logdir: str | Path, resume_step: int | None = None) -> None:
        """Opens the files, and makes them if need be.

        Args:
          logdir: folder of the run.
          resume_step: step from which the run goes on, 0 for a new one: rows of later steps are
            removed. None keeps all rows.

        Raises:
          WriteError: a file cannot be read or written.
        """
        logdir = Path(logdir)
        self._training = _Rows(logdir / "metrics.jsonl", resume_step)
        self._evaluation = _Rows(logdir / "eval.jsonl", resume_step)
        self._train_curves = _Curves(logdir / "tensorboard" / "train", resume_step)
        self._dev_curves = _Curves(logdir / "tensorboard" / "dev", resume_step)

    def log_training(self, step: int, values: Values) -> None:
        """Adds a row to metrics.jsonl and a point to every training curve.

        Raises:
          WriteError: it cannot be written, for example because the disk is full.
          TypeError: a value is neither a number, a text, a boolean nor None.
        """
        self._training.append(step, values)
        self._train_curves.append(step, values)

    def log_evaluation(self, step: int, values: Values) -> None:
        """Adds a row to eval.jsonl and a point to every curve of the evaluation.

        Raises:
          WriteError, TypeError: as in `log_training`.
        """
        self._evaluation.append(step, values)
        self._dev_curves.append(step, values)

    def close(self) -> None:
        """Brings everything to the files; nothing can be logged afterwards."""
        for part in (self._training, self._evaluation, self._train_curves, self._dev_curves):
            part.close()

    def __enter__(self) -> Self:
        """The log itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the log."""
        self.close()


class _Rows:
    """A file of JSON lines that grows by whole lines."""

    def __init__(self, path: Path, resume_step: int | None) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._take_back(resume_step)
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - Closed by close().
        except OSError as error:
            raise WriteError(f"Cannot write {path}: {error.strerror}.") from error

    def append(self, step: int, values: Values) -> None:
        """Writes one row with one call, so that no reader sees half of one."""
        line = (json.dumps(_row(step, values), allow_nan=False) + "\n").encode()
        try:
            written = self._file.write(line)
        except OSError as error:
            raise WriteError(f"Cannot write {self._path}: {error.strerror}.") from error
        if written < len(line):
            raise WriteError(f"Cannot write {self._path}: no space is left for a line.")

    def close(self) -> None:
        self._file.close()

    def _take_back(self, resume_step: int | None) -> None:
        """Removes rows after the step, and lines that a killed process left unfinished."""
        if not self._path.exists():
            return
        text = self._path.read_text(encoding="utf-8", errors="replace")
        *lines, unfinished = text.split("\n")
        kept = [line for line in lines if _is_kept(line, resume_step)]
        if unfinished or len(kept) < len(lines):
            removed = len(lines) - len(kept) + bool(unfinished)
            logging.info("%s: %d rows taken back.", self._path, removed)
            write_atomically(self._path, "".join(f"{line}\n" for line in kept).encode())


class _Curves:
    """An event file of TensorBoard's with scalars.

    It is written as the records it consists of. `tf.summary.scalar` would need the tensorboard
    package, and has no way to say where a resumed run starts; TensorBoard drops the points after
    that, which a killed process wrote and this one will write again.
    """

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        self._folder = folder
        self._resume_step = resume_step
        self._writer: tf.io.TFRecordWriter | None = None

    def append(self, step: int, values: Values) -> None:
        """Adds a point to the curve of every value that is a number."""
        points = [
            tf.compat.v1.Summary.Value(tag=name, simple_value=number)
            for name, number in ((name, _plain(value)) for name, value in values.items())
            if isinstance(number, int | float) and not isinstance(number, bool)
        ]
        summary = tf.compat.v1.Summary(value=points)
        try:
            if self._writer is None:  # Opened by the first point, so that none means no file.
                self._writer = self._open()
            self._writer.write(_event(step=step, summary=summary))
            self._writer.flush()
        except (OSError, tf.errors.OpError) as error:
            raise WriteError(f"Cannot write to {self._folder}: {error}") from error

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _open(self) -> tf.io.TFRecordWriter:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        writer = tf.io.TFRecordWriter(str(self._folder / name))
        writer.write(_event(file_version="brain.Event:2"))
        if self._resume_step is not None:
            start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
            writer.write(_event(step=self._resume_step + 1, session_log=start))
        return writer


def _event(**fields: Any) -> bytes:
    """One record of an event file."""
    return tf.compat.v1.Event(wall_time=time.time(), **fields).SerializeToString()


def _row(step: int, values: Values) -> dict[str, Any]:
    """A row that is valid JSON."""
    row = {"step": int(step), **{name: _plain(value) for name, value in values.items()}}
    bad = [
        name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)
    ]
    if bad:
        row.update(dict.fromkeys(bad), non_finite=bad)
    return row


def _plain(value: Any) -> Any:
    """A value as Python's own; scalars of NumPy and TensorFlow become numbers."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if hasattr(value, "item"):
        value = value.item()
    if value is not None and not isinstance(value, bool | int | float | str):
        raise TypeError(f"A metric must be a number, a text, a boolean or None, not {value!r}.")
    return value


def _is_kept(line: str, resume_step: int | None) -> bool:
    """Whether a line is a row, of a step that is not taken back."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, TypeError, KeyError):
        return False
    return resume_step is None or step <= resume_step
