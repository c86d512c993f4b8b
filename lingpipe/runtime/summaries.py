"""The figures of a run: one JSON object a line for programs, TensorBoard files for people.

    with MetricsLog(logdir, resume_step=100) as log:
        log.log_training(110, {"loss": 3.2, "learning_rate": 1e-4})
        log.log_evaluation(200, {"split": "dev", "loss": 3.0})

writes to metrics.jsonl, eval.jsonl, tensorboard/train/ and tensorboard/dev/. A run that goes on
from the checkpoint of step 100 first takes back what a killed process wrote after it, so every step
is told once.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tensorflow as tf

from lingpipe.base.output import WriteError
from lingpipe.runtime.json_rows import JsonRows, plain
from lingpipe.runtime.run_directory import RunDirectory

Values = Mapping[str, Any]  # Name -> number, text, boolean or None; scalars of NumPy or TensorFlow.


class MetricsLog:
    """Writes the rows and curves of one run."""

    def __init__(self, logdir: str | Path, resume_step: int | None = None) -> None:
        """Opens the files, and makes them if need be.

        Args:
          logdir: folder of the run.
          resume_step: step from which the run goes on, 0 for a new one: rows of later steps are
            removed. None leaves the files as they are.

        Raises:
          WriteError: a file cannot be read or written.
        """
        run = RunDirectory(logdir)
        self._training = JsonRows(run.metrics_file, resume_step)
        self._evaluation = JsonRows(run.evaluations_file, resume_step)
        self._train_curves = _Curves(run.curves / "train", resume_step)
        self._dev_curves = _Curves(run.curves / "dev", resume_step)

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
            for name, number in ((name, plain(value)) for name, value in values.items())
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
