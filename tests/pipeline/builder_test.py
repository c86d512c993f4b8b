"""The promise: whatever K, M, schedule and rematerialisation are, a pipeline is one device.

Losses, gradients and weights are held against the same model without a pipeline, with dropout,
padding, tied weights and clipping on.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer, Scope
from lingpipe.errors import UserError
from lingpipe.hyperparams import ParamsError
from lingpipe.learner.optimizers import Adam
from lingpipe.layers.dropout import Dropout
from lingpipe.pipeline.builder import DeviceError, NonFiniteError, Pipeline
from lingpipe.pipeline.partitioner import PartitionError
from tests.pipeline.small_models import (
    SEED,
    TRANSLATION_MICRO_BATCH,
    Cell,
    Source,
    assert_equal_arrays,
    dense_batch,
    dense_cells,
    gradients_of,
    make_learner,
    make_pipeline,
    make_recorder,
    reference_step,
    transformer,
    translation_batch,
    translation_signature,
    weights_of,
)

# (num_stages, num_micro_batches, schedule, remat)
Setting = tuple[int, int, str, str]

SETTINGS: list[Setting] = [
    (2, 4, "gpipe", "stage"),
    (2, 3, "1f1b", "none"),
    (4, 8, "gpipe", "layer"),
    (3, 5, "1f1b", "stage"),
]

# ------------------------------------------------------------------ the promise

CLIP = 0.5
BETA_1 = 0.9
BATCHES = [translation_batch(size, seed) for seed, size in enumerate([8, 5, 9, 3, 8] * 4)]


@dataclasses.dataclass(frozen=True)
class History:
    """Twenty steps: what each reported, and what was left."""

    losses: list[float]
    grad_norms: list[float]
    first_gradients: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]


def train(setting: Setting) -> History:
    """Twenty steps of the small Transformer with Adam, clipping and dropout.

    Adam divides a gradient by its own size, and so turns the noise of a sum that should be zero
    (the bias of attention keys has such a gradient) into steps of full length. With this epsilon,
    larger than that noise and smaller than real gradients, it does not.
    """
    optimizer = Adam.Params(beta_1=BETA_1, epsilon=1e-3)
    learner = make_learner(optimizer, rate=3e-3, clip_global_norm=CLIP)
    pipeline = make_pipeline(
        transformer().cells(),
        *setting,
        learner=learner,
        micro_batch=TRANSLATION_MICRO_BATCH,
        signature=translation_signature(),
    )
    first = pipeline.train_step(BATCHES[0])
    # The first mean of gradients is (1 - beta_1) times the first gradient, clipped.
    clipping = min(1.0, CLIP / first.grad_norm)
    gradients = {
        name.removesuffix("/m"): slot.numpy() / (1 - BETA_1) / clipping
        for name, slot in pipeline.slots.items()
        if name.endswith("/m")
    }
    results = [first, *(pipeline.train_step(batch) for batch in BATCHES[1:])]
    weights = weights_of(pipeline)
    pipeline.close()
    return History(
        [result.loss for result in results],
        [result.grad_norm for result in results],
        gradients,
        weights,
    )


@functools.cache
def one_device() -> History:
    return train((1, 1, "gpipe", "none"))


@functools.cache
def plain_tape() -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of the first step without any pipeline: the model as one layer."""
    scope = Scope(seed=SEED)
    model = transformer().build(scope)
    batch = {name: tf.constant(array) for name, array in BATCHES[0].items()}
    with tf.GradientTape() as tape:
        sums = model(None, Context(training=True, step=1, seed=SEED, batch=batch))
        loss = sums["loss"] / sums["weight"]
    gradients = tape.gradient(loss, dict(scope.variables))
    dense = {path: tf.convert_to_tensor(gradient).numpy() for path, gradient in gradients.items()}
    return float(loss), dense


def test_one_stage_and_one_micro_batch_is_a_plain_gradient_tape() -> None:
    loss, gradients = plain_tape()
    assert one_device().losses[0] == pytest.approx(loss, rel=1e-5)
    assert_equal_arrays(one_device().first_gradients, gradients)
    # Clipping is at work, in some steps and not in all.
    norms = one_device().grad_norms
    assert min(norms) < CLIP < max(norms)
    assert one_device().losses[-1] < one_device().losses[0]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_twenty_steps_are_the_same_for_every_setting(setting: Setting) -> None:
    history, expected = train(setting), one_device()
    loss, gradients = plain_tape()
    assert history.losses[0] == pytest.approx(loss, rel=1e-5)
    assert_equal_arrays(history.first_gradients, gradients)
    np.testing.assert_allclose(history.losses, expected.losses, rtol=1e-5)
    np.testing.assert_allclose(history.grad_norms, expected.grad_norms, rtol=1e-5)
    assert_equal_arrays(history.weights, expected.weights)
