"""Cells from elsewhere train in a pipeline as they would without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe.errors import UserError
from lingpipe.layers.linear import Linear
from lingpipe.learner.learner import Learner
from lingpipe.learner.optimizers import Momentum
from lingpipe.learner.schedules import Constant
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.foreign_cells import FunctionCell, ModuleCell
from lingpipe.pipeline.from_cells import pipeline_from_cells
from lingpipe.pipeline.keeping import Rematerialisation

Batch = dict[str, np.ndarray]
RATE = 0.1
SGD = Learner.Params(optimizer=Momentum.Params(momentum=0.0), schedule=Constant.Params(value=RATE))


class Residual(tf.Module):
    """x [B, 6] -> x + tanh(x @ kernel + bias)."""

    def __init__(self) -> None:
        super().__init__()
        numbers = np.random.default_rng(5)
        self.kernel = tf.Variable(numbers.normal(size=(6, 6)).astype(np.float32), name="kernel")
        self.bias = tf.Variable(tf.zeros([6]), name="bias")
        self.frozen = tf.Variable(0.5, trainable=False, name="kernel")

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs + tf.tanh(inputs @ self.kernel + self.bias) * self.frozen


def batch_of(size: int = 10) -> Batch:
    numbers = np.random.default_rng(2)
    return {
        "inputs": numbers.normal(size=(size, 6)).astype(np.float32),
        "labels": numbers.integers(0, 3, size),
    }


def cross_entropy(logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["labels"], logits)
    return tf.reduce_sum(losses), tf.size(losses)


def dense_layers() -> list[keras.layers.Layer]:
    """Layers that have been built, so that their weights are known."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(6, "relu"), keras.layers.Dense(5), keras.layers.Dense(3)]
    keras.Sequential([keras.Input([6]), *layers])
    return layers


def pipeline_of(cells: Any, **params: Any) -> Pipeline:
    devices = [f"/CPU:{index}" for index in range(4)]
    return pipeline_from_cells(
        cells, cross_entropy, batch_of(), learner=SGD, devices=devices, **params
    )


def losses_of(pipeline: Pipeline, steps: int = 4) -> list[float]:
    losses = [pipeline.train_step(batch_of()).loss for _ in range(steps)]
    pipeline.close()
    return losses


@pytest.mark.parametrize(
    ("num_stages", "num_micro_batches", "schedule", "remat"),
    [(1, 1, "gpipe", "none"), (2, 4, "1f1b", "layer"), (4, 3, "zb_h1", "stage")],
)
def test_a_stack_of_keras_layers_trains_as_it_does_in_keras(
    num_stages: int, num_micro_batches: int, schedule: str, remat: str
) -> None:
    layers = dense_layers()
    pipeline = pipeline_of(
        layers,
        num_stages=num_stages,
        num_micro_batches=num_micro_batches,
        schedule=schedule,
        remat=remat,
    )
    model = keras.Sequential([keras.Input([6]), *layers])
    model.compile(
        keras.optimizers.SGD(RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    batch = batch_of()
    expected = [model.train_on_batch(batch["inputs"], batch["labels"]) for _ in range(4)]
    np.testing.assert_allclose(losses_of(pipeline), expected, rtol=1e-5)


def test_functions_and_modules_train_as_with_a_plain_tape() -> None:
    module, head = Residual(), Residual()
    variables = [module.kernel, module.bias, head.kernel, head.bias]
    batch = batch_of()
    expected = []
    for _ in range(4):
        with tf.GradientTape() as tape:
            outputs = head(2.0 * module(tf.constant(batch["inputs"])))[:, :3]
            total, weight = cross_entropy(outputs, batch)
            loss = total / tf.cast(weight, tf.float32)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(RATE * gradient)
        expected.append(float(loss))
    cells = {
        "block": ModuleCell(Residual),
        "double": FunctionCell(lambda inputs: 2.0 * inputs),
        "head": ModuleCell(Residual),
        "logits": lambda inputs: inputs[:, :3],
    }
    pipeline = pipeline_of(cells, num_stages=3, num_micro_batches=4, partition=[2, 2, 2])
    assert set(pipeline.weights) == {
        f"{cell}/{name}" for cell in ("block", "head") for name in ("kernel", "bias", "kernel_1")
    }
    assert pipeline.weights["head/kernel"].device.endswith("CPU:1")
    np.testing.assert_allclose(losses_of(pipeline), expected, rtol=1e-5)


def test_predictions_are_those_of_one_device_and_need_no_labels() -> None:
    layers = dense_layers()
    pipeline = pipeline_of(layers, num_stages=3, num_micro_batches=4, schedule="1f1b")
    inputs = batch_of(11)["inputs"]
    expected = keras.Sequential([keras.Input([6]), *layers])(inputs)
    for _ in range(2):
        np.testing.assert_allclose(pipeline(inputs), expected, rtol=1e-5, atol=1e-6)
    before = pipeline(inputs)
    pipeline.train_step(batch_of())
    assert np.abs(pipeline(inputs) - before).max() > 1e-3
    np.testing.assert_array_equal(pipeline.predict({"inputs": inputs}), pipeline(inputs))
    pipeline.close()


def test_predictions_keep_their_structure_and_leave_dropout_out() -> None:
    cells = [
        keras.layers.Dropout(0.5),
        lambda inputs: {"twice": 2 * inputs, "count": tf.ones(tf.shape(inputs)[:1], tf.int32)},
        lambda state: state,
    ]

    def total(state: Any, batch: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.reduce_sum(state["twice"]), tf.size(batch["labels"])

    batch = batch_of(5)
    pipeline = pipeline_from_cells(
        cells, total, batch, devices=["/CPU:0", "/CPU:1"], num_stages=2, num_micro_batches=2
    )
    found = pipeline(batch["inputs"])
    pipeline.close()
    np.testing.assert_array_equal(found["twice"], 2 * batch["inputs"])
    np.testing.assert_array_equal(found["count"], np.ones(5, np.int32))


def test_a_prediction_without_examples_is_refused() -> None:
    def total(value: tf.Tensor, batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return value, tf.ones([])

    pipeline = pipeline_from_cells(
        [tf.reduce_sum], total, {"inputs": np.ones(3, np.float32)}, devices=["/CPU:0"]
    )
    with pytest.raises(
        UserError, match=r"along dimension 0; a micro-batch of 3 gives float32 of shape \(\)"
    ):
        pipeline(np.ones(3, np.float32))
    pipeline.close()


def test_the_layers_of_the_user_stay_as_they_are() -> None:
    layers = dense_layers()
    before = [layer.get_weights() for layer in layers]
    losses_of(pipeline_of(layers, num_stages=2), steps=1)
    for layer, weights in zip(layers, before, strict=True):
        for now, then in zip(layer.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("schedule", ["gpipe", "zb_h1"])
def test_a_recomputation_draws_the_random_numbers_of_the_first_pass(schedule: str) -> None:
    """Keras's Dropout counts a state of its own up, which a recomputation would count further."""
    first, *others = dense_layers()
    layers = [first, keras.layers.Dropout(0.5), *others]
    found = [
        losses_of(
            pipeline_of(layers, num_stages=2, num_micro_batches=2, remat=remat, schedule=schedule)
        )
        for remat in (Rematerialisation.none, Rematerialisation.layer, Rematerialisation.stage)
    ]
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 4


def test_masks_differ_between_steps_micro_batches_and_cells() -> None:
    drop = keras.layers.Dropout(0.5)
    kept: list[np.ndarray] = []

    def record(values: tf.Tensor) -> tf.Tensor:
        tf.py_function(lambda v: kept.append(v.numpy() > 0), [values], [])
        return values

    def total(outputs: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.reduce_sum(outputs), tf.size(outputs)

    ones = {"inputs": np.ones((4, 64), np.float32)}
    cells = [drop, record, lambda values: tf.ones_like(values), drop, record]
    pipeline = pipeline_from_cells(cells, total, ones, devices=["/CPU:0"], num_micro_batches=2)
    for _ in range(2):
        pipeline.train_step(ones)
    pipeline.close()
    masks = {mask.tobytes() for mask in kept}
    assert len(kept) == len(masks) == 8
    assert 0.4 < np.mean(kept) < 0.6


class Lazy(tf.Module):
    """Makes its variable too late."""

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        self.kernel = tf.Variable(tf.ones([6, 3]))
        return inputs @ self.kernel


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (lambda: [3], "3 can be no cell. A cell is a layer's params, a Keras layer, a function"),
        (lambda: [Residual], "can be no cell"),
        (
            lambda: [Residual()],
            r"lies on a device already.*ModuleCell\(lambda: Residual\(\.\.\.\)\)",
        ),
        (
            lambda: [ModuleCell(Lazy)],
            "Lazy makes variables when it is first called.*in its __init__",
        ),
        (lambda: {"loss": Residual}, "The name 'loss' is taken"),
        (
            lambda: [keras.layers.BatchNormalization()],
            "BatchNormalization updates .*moving_mean.*in its forward pass",
        ),
    ],
)
def test_what_can_be_no_cell_is_refused_in_words(cells: Callable[[], Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        pipeline_of(cells())


def test_a_loss_without_its_weight_is_refused() -> None:
    with pytest.raises(UserError, match="must return a sum and its weight, not"):
        pipeline_from_cells(
            [lambda inputs: inputs], lambda *_: tf.zeros([]), batch_of(), devices=["/CPU:0"]
        )


def test_a_batch_without_inputs_is_refused() -> None:
    with pytest.raises(UserError, match="no entry 'inputs', .* it has 'x'"):
        pipeline_from_cells([], cross_entropy, {"x": np.zeros(3)}, devices=["/CPU:0"])


def test_a_misspelt_field_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="num_stages"):
        pipeline_of(dense_layers(), num_stage=2)


@pytest.mark.parametrize("dtype", (tf.bfloat16, tf.float16))
def test_the_loss_is_given_float32_whatever_the_cells_compute_in(dtype: tf.DType) -> None:
    seen = set()

    def loss(logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        seen.update((logits.dtype, batch["more"].dtype, batch["labels"].dtype))
        return cross_entropy(logits, batch)

    batch = {**batch_of(), "more": np.ones((10, 2), dtype.as_numpy_dtype)}
    own = Linear.Params(input_dim=6, output_dim=3)
    cells = [lambda x: tf.cast(x, dtype), keras.layers.Dense(6, dtype=f"mixed_{dtype.name}"), own]
    devices = ["/CPU:0", "/CPU:1"]
    pipeline = pipeline_from_cells(
        cells, loss, batch, learner=SGD, devices=devices, num_stages=2, compute_dtype=dtype
    )
    losses = [pipeline.train_step(batch).loss for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert pipeline(batch["inputs"]).dtype == dtype.as_numpy_dtype
    assert seen == {tf.float32, tf.int64}
    assert (pipeline.loss_scale is not None) == (dtype == tf.float16)
    pipeline.close()
