"""Evaluates a checkpoint of a run and notes the scores in the run directory."""

from __future__ import annotations

from pathlib import Path

from lingpipe.runtime.json_rows import JsonRows
from lingpipe.runtime.opening import open_run
from lingpipe.runtime.run_directory import RunDirectory
from lingpipe.task.task import Evaluation


def evaluate(logdir: str | Path, split: str, checkpoint: str) -> Evaluation:
    """Scores a checkpoint on a split and adds a row to the run's eval.jsonl.

    Raises:
      UserError: the run, its checkpoint or its corpus cannot be used, or the row not be written.
    """
    task, run = open_run(logdir, checkpoint)
    path = RunDirectory(logdir).evaluations_file
    JsonRows(path).close()  # That it cannot be written is not found out after minutes of work.
    evaluation = task.evaluate(run, split)
    with JsonRows(path) as rows:  # A trainer that goes on may have replaced the file meanwhile.
        rows.append(run.step, {"split": split, **evaluation.record})
    return evaluation
