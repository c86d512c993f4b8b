"""Checkpoints of three small tensors whose values tell the step, for the tests of the store."""

import numpy as np
import tensorflow as tf

from lingpipe.runtime.checkpoint import CheckpointStore

STATE = {"cursor": 12, "loss_scale": 1024.0, "early_stopping": {"best": None, "since": [3, 4]}}


def tensors(step: int) -> dict[str, np.ndarray]:
    return {
        "weights/a/kernel": np.full([3, 4], step, np.float32),
        "weights/a/bias": np.full([4], -step, np.float32),
        "slots/a/kernel/m": np.full([3, 4], 0.5 * step, np.float32),
    }


def variables(*names: str) -> dict[str, tf.Variable]:
    return {name: tf.Variable(tf.zeros(tensors(0)[name].shape)) for name in names or tensors(0)}


def save(store: CheckpointStore, *steps: int) -> None:
    for step in steps:
        store.save(step, tensors(step), STATE)


def hidden(store: CheckpointStore, step: int) -> list[str]:
    """Names beside a checkpoint that are no finished checkpoint."""
    return [path.name for path in store.path(step).parent.iterdir() if path.name[0] == "."]
