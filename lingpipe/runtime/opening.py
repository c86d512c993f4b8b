"""Opening a finished, or running, training for evaluation and decoding."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from lingpipe.runtime.checkpoint import CheckpointStore
from lingpipe.runtime.parts import build_task
from lingpipe.runtime.run_directory import RunDirectory
from lingpipe.task.task import Run, Task


def open_run(logdir: str | Path, checkpoint: str) -> tuple[Task, Run]:
    """The task of a run directory, and the run at one of its checkpoints.

    Args:
      logdir: the run directory.
      checkpoint: "last", "best" or a step.

    Raises:
      RunDirectoryError: this is no run directory, or a part of it is missing.
      CheckpointError: there is no such checkpoint, or it is damaged.
    """
    run = RunDirectory(logdir)
    experiment = run.read_params()
    run.check_vocabulary(experiment)
    store = CheckpointStore(run.checkpoints)
    step = store.read_state(checkpoint).step
    task = build_task(experiment)
    data = experiment.input.build(vocab_dir=run.vocabulary, seed=experiment.train.seed)

    def restore(weights: Mapping[str, tf.Variable]) -> None:
        store.restore_into(step, {f"weights/{path}": w for path, w in weights.items()})

    return task, Run(data, restore, step, experiment.train.dtype.tensorflow)
