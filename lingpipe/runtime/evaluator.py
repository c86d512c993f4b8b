"""Evaluates a checkpoint of a run and notes the scores in the run directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

from lingpipe.base.atomic_file import WriteError
from lingpipe.runtime.opening import open_run
from lingpipe.task.task import Evaluation


def evaluate(logdir: str | Path, split: str, checkpoint: str) -> Evaluation:
    """Scores a checkpoint on a split and adds a line to the run's eval.jsonl.

    Raises:
      UserError: the run, its checkpoint or its corpus cannot be used.
    """
    task, run = open_run(logdir, checkpoint)
    evaluation = task.evaluate(run, split)
    row = {"step": run.step, "split": split, **evaluation.record}
    try:
        with open(Path(logdir) / "eval.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise WriteError(f"Cannot write {error.filename}: {error.strerror}.") from error
    return evaluation
