"""Keras layers in a pipeline: of many kinds, frozen, and those that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe.errors import UserError
from lingpipe.learner.learner import Learner
from lingpipe.learner.optimizers import Momentum
from lingpipe.learner.schedules import Constant
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.from_cells import pipeline_from_cells

RATE = 0.05
SGD = Learner.Params(optimizer=Momentum.Params(momentum=0.0), schedule=Constant.Params(value=RATE))
LAYERS = keras.layers


def square(outputs: tf.Tensor, batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
    size = tf.shape(outputs)[0]
    flat = tf.reshape(tf.cast(outputs, tf.float32), [size, -1])
    return tf.reduce_sum((flat - batch["y"][:, None]) ** 2), size


def batch_for(inputs: np.ndarray) -> dict[str, np.ndarray]:
    return {"inputs": inputs, "y": np.linspace(0, 1, len(inputs)).astype(np.float32)}


def images(size: int = 6) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(size, 4, 4, 2)).astype(np.float32)


def pipeline_of(layers: Any, inputs: np.ndarray, num_stages: int = 2, seed: int = 0) -> Pipeline:
    return pipeline_from_cells(
        layers,
        square,
        batch_for(inputs),
        learner=SGD,
        devices=["/CPU:0", "/CPU:1"],
        seed=seed,
        num_stages=num_stages,
        num_micro_batches=3,
        remat="layer",
    )


def trained(pipeline: Pipeline, inputs: np.ndarray) -> list[float]:
    losses = [pipeline.train_step(batch_for(inputs)).loss for _ in range(3)]
    pipeline.close()
    return losses


def trained_by_keras(layers: list[Any], inputs: np.ndarray) -> list[float]:
    """Losses of the same layers under a plain tape."""
    batch, losses = batch_for(inputs), []
    for _ in range(3):
        with tf.GradientTape() as tape:
            outputs: Any = inputs
            for layer in layers:
                outputs = layer(outputs, training=True)
            total, weight = square(outputs, batch)
            loss = total / tf.cast(weight, tf.float32)
        weights = [variable for layer in layers for variable in layer.trainable_variables]
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(RATE * tf.convert_to_tensor(gradient))
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize(
    "make",
    [
        lambda: [LAYERS.Flatten(), LAYERS.Dense(3), LAYERS.Activation("tanh")],
        lambda: [LAYERS.Conv2D(3, 3), LAYERS.ReLU(), LAYERS.GlobalAveragePooling2D()],
        lambda: [LAYERS.MaxPooling2D(), LAYERS.Rescaling(2.0), LAYERS.Reshape((8,))],
        lambda: [LAYERS.LayerNormalization(), LAYERS.SeparableConv2D(2, 2), LAYERS.Flatten()],
        lambda: [keras.Sequential([LAYERS.Flatten(), LAYERS.Dense(4)]), LAYERS.Dense(2)],
        lambda: [LAYERS.Dense(3, dtype="mixed_bfloat16"), LAYERS.Flatten(), LAYERS.Dense(2)],
    ],
)
def test_layers_of_many_kinds_train_as_in_keras(make: Callable[[], list[Any]]) -> None:
    layers, inputs = make(), images()
    outputs: Any = inputs
    for layer in layers:
        outputs = layer(outputs)
    pipeline = pipeline_of(layers, inputs)
    # bfloat16 has 8 bits, and sums over micro-batches come in another order.
    rtol = 0.03 if layers[0].compute_dtype == "bfloat16" else 1e-4
    np.testing.assert_allclose(trained(pipeline, inputs), trained_by_keras(layers, inputs), rtol)


def test_a_layer_s_own_dtype_is_honoured() -> None:
    """As Keras computes, to the bit; in float32 the outputs would differ by a hundredth."""
    layer, inputs = LAYERS.Dense(3, dtype="mixed_bfloat16"), images(6).reshape(6, -1)
    expected = layer(inputs)
    pipeline = pipeline_of([layer], inputs, num_stages=1)
    found = pipeline(inputs)
    pipeline.close()
    assert found.dtype == expected.dtype.as_numpy_dtype
    np.testing.assert_array_equal(found, expected.numpy())


def test_an_embedding_reads_ids() -> None:
    ids = np.arange(6, dtype=np.int32).reshape(3, 2)
    layers = [LAYERS.Embedding(7, 4), LAYERS.GlobalAveragePooling1D(), LAYERS.Dense(2)]
    keras.Sequential([keras.Input([2], dtype="int32"), *layers])
    pipeline = pipeline_of(layers, ids)
    np.testing.assert_allclose(trained(pipeline, ids), trained_by_keras(layers, ids), 1e-5)


@pytest.mark.parametrize("when", ["at construction", "after building", "half of a stack"])
def test_what_is_frozen_in_keras_stays_as_it_is(when: str) -> None:
    inputs = np.random.default_rng(3).normal(size=(6, 4)).astype(np.float32)
    frozen = LAYERS.Dense(4, trainable=when != "at construction")
    stack = keras.Sequential([keras.Input([4]), frozen, LAYERS.Dense(4)])
    if when != "at construction":
        frozen.trainable = False
    layers = [stack if when == "half of a stack" else frozen, LAYERS.Dense(2)]
    keras.Sequential([keras.Input([4]), *layers])
    before = frozen.get_weights()[0]
    pipeline = pipeline_of(layers, inputs)
    found = trained(pipeline, inputs)
    np.testing.assert_allclose(found, trained_by_keras(layers, inputs), 1e-5)
    kernels = [v.numpy() for path, v in pipeline.weights.items() if path.endswith("kernel")]
    assert sum(kernel.shape == before.shape and np.all(kernel == before) for kernel in kernels) == 1


def test_a_frozen_batch_normalisation_may_be_used() -> None:
    norm = LAYERS.BatchNormalization()
    norm.build((None, 4))
    norm.set_weights([np.full(4, value, np.float32) for value in (2.0, 1.0, 0.5, 4.0)])
    norm.trainable = False
    inputs = np.random.default_rng(3).normal(size=(6, 4)).astype(np.float32)
    pipeline = pipeline_of([norm, LAYERS.Dense(2)], inputs)
    trained_before = {path: v.numpy() for path, v in pipeline.weights.items() if "cell_0" in path}
    expected = 2.0 * (inputs - 0.5) / np.sqrt(4.0 + 1e-3) + 1.0
    kernel, bias = (pipeline.weights[f"cell_1/{name}"].numpy() for name in ("kernel", "bias"))
    np.testing.assert_allclose(pipeline(inputs), expected @ kernel + bias, rtol=1e-5, atol=1e-6)
    trained(pipeline, inputs)
    for path, value in trained_before.items():
        np.testing.assert_array_equal(pipeline.weights[path], value)


def test_initial_weights_follow_from_the_seed_and_not_from_the_number_of_stages() -> None:
    inputs = np.random.default_rng(3).normal(size=(6, 4)).astype(np.float32)

    def losses(num_stages: int, seed: int) -> list[float]:
        layers = [LAYERS.Dense(4), LAYERS.Dense(4)]
        return trained(pipeline_of(layers, inputs, num_stages, seed), inputs)

    np.testing.assert_allclose(losses(1, 7), losses(2, 7), rtol=1e-5)
    assert abs(losses(2, 7)[0] - losses(2, 8)[0]) > 1e-3


def shared() -> list[Any]:
    layer = LAYERS.Dense(4)
    return [layer, layer]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: [LAYERS.Dense(4, kernel_regularizer="l2")], "has a regulariser"),
        (lambda: [LAYERS.Dense(4, activity_regularizer="l2")], "has a regulariser"),
        (lambda: [LAYERS.Dense(4, kernel_constraint="non_neg")], "has a constraint"),
        (lambda: [LAYERS.Masking()], "Masking hands on a mask, which does not travel"),
        (lambda: [LAYERS.Lambda(lambda x: 2 * x)], "Lambda cannot be copied.*function itself"),
        (lambda: [LAYERS.BatchNormalization()], "BatchNormalization updates .*moving_mean"),
        (shared, "Cells 'cell_0' and 'cell_1' are one Keras layer"),
    ],
)
def test_what_a_pipeline_does_not_do_is_refused(make: Callable[[], Any], words: str) -> None:
    inputs = np.zeros((6, 3, 4), np.float32)
    with pytest.raises(UserError, match=words):
        pipeline_of(make(), inputs, num_stages=1)
