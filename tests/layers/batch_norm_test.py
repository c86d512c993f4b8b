"""BatchNorm against NumPy, and its hand-written derivative against TensorFlow's."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.base.state import update_state
from lingpipe.hyperparams import ParamsError
from lingpipe.layers.batch_norm import BatchNorm

EPSILON = 1e-3


def plain_batch_norm(inputs: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The definition, feature by feature."""
    outputs = np.zeros_like(inputs, dtype=np.float64)
    for feature in range(inputs.shape[-1]):
        values = inputs[..., feature].astype(np.float64)
        normalised = (values - values.mean()) / np.sqrt(values.var() + EPSILON)
        outputs[..., feature] = normalised * scale[feature] + bias[feature]
    return outputs


def random_norm(**values: float) -> BatchNorm:
    """A layer with random weights."""
    layer = BatchNorm.Params(model_dim=4, **values).build(Scope().child("norm"))
    for key, variable in enumerate((layer.scale, layer.bias, layer.moving_mean)):
        variable.assign(tf.random.stateless_normal([4], [1, key]))
    layer.moving_variance.assign([0.5, 1.0, 2.0, 4.0])
    return layer


def random_inputs(*shape: int) -> np.ndarray:
    """Features far from mean 0 and variance 1, float32."""
    return (3 + 2 * np.random.default_rng(1).normal(size=shape)).astype(np.float32)


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (2, 3, 5, 4)])
def test_in_training_each_feature_is_normalised_over_all_rows(shape: tuple[int, ...]) -> None:
    layer, inputs = random_norm(), random_inputs(*shape)
    outputs = layer(tf.constant(inputs), Context(training=True))
    expected = plain_batch_norm(inputs, layer.scale.numpy(), layer.bias.numpy())
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


def test_in_evaluation_the_moving_averages_stand_in_and_examples_do_not_meet() -> None:
    layer, inputs, context = random_norm(), random_inputs(5, 4), Context()
    mean, variance = layer.moving_mean.numpy(), layer.moving_variance.numpy()
    expected = (inputs - mean) / np.sqrt(variance + EPSILON) * layer.scale + layer.bias
    whole = layer(tf.constant(inputs), context)
    np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(layer(tf.constant(inputs[2:3]), context), whole[2:3])
    assert context.statistics == {}


@pytest.mark.parametrize("training", (False, True))
def test_the_derivative_equals_that_of_the_composed_operations(training: bool) -> None:
    layer, inputs = random_norm(), tf.constant(random_inputs(2, 3, 4))
    factors = tf.random.stateless_normal([2, 3, 4], [1, 4])
    sources = [inputs, layer.scale, layer.bias]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        ours = tf.reduce_sum(factors * layer(inputs, Context(training=training)))
        moments = tf.nn.moments(inputs, axes=[0, 1])
        mean, variance = moments if training else (layer.moving_mean, layer.moving_variance)
        theirs = tf.reduce_sum(
            factors
            * tf.nn.batch_normalization(inputs, mean, variance, layer.bias, layer.scale, EPSILON)
        )
    for a, b in zip(tape.gradient(ours, sources), tape.gradient(theirs, sources), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("sizes", [(7,), (3, 3, 1), (1,) * 7])
def test_moving_averages_follow_the_whole_mini_batch_however_it_is_split(
    sizes: tuple[int, ...],
) -> None:
    layer, inputs = random_norm(momentum=0.75), random_inputs(7, 3, 4)
    mean, variance = layer.moving_mean.numpy(), layer.moving_variance.numpy()
    context = Context(training=True)
    for part in np.split(inputs, np.cumsum(sizes)[:-1]):
        layer(tf.constant(part), context)
    update_state(layer, context.statistics["norm"])
    rows = inputs.reshape(-1, 4).astype(np.float64)
    expected = 0.75 * mean + 0.25 * rows.mean(axis=0)
    np.testing.assert_allclose(layer.moving_mean, expected, rtol=1e-5, atol=1e-6)
    expected = 0.75 * variance + 0.25 * rows.var(axis=0)
    np.testing.assert_allclose(layer.moving_variance, expected, rtol=1e-5)


def test_the_variance_keeps_its_digits_where_features_lie_far_from_0() -> None:
    layer = random_norm(momentum=0.0)
    inputs = (10_000 + np.random.default_rng(0).normal(size=(64, 4))).astype(np.float32)
    for _ in range(2):  # The first step brings the moving mean near.
        context = Context(training=True)
        for part in np.split(inputs, 4):
            layer(tf.constant(part), context)
        update_state(layer, context.statistics["norm"])
    expected = inputs.astype(np.float64).var(axis=0)
    np.testing.assert_allclose(layer.moving_variance, expected, rtol=1e-3)


def test_bfloat16_is_normalised_in_float32() -> None:
    layer, inputs = random_norm(), tf.cast(random_inputs(5, 4), tf.bfloat16)
    short, wide = Context(training=True, compute_dtype=tf.bfloat16), Context(training=True)
    outputs = layer(inputs, short)
    assert outputs.dtype == tf.bfloat16
    expected = layer(tf.cast(inputs, tf.float32), wide)
    np.testing.assert_array_equal(outputs, tf.cast(expected, tf.bfloat16))
    for name, total in short.statistics["norm"].items():
        assert total.dtype == tf.float32
        np.testing.assert_array_equal(total, wide.statistics["norm"][name])


def test_a_single_row_gives_the_bias() -> None:
    layer = random_norm()
    outputs = layer(tf.constant(random_inputs(1, 4)), Context(training=True))
    np.testing.assert_allclose(outputs[0], layer.bias, atol=1e-6)


def test_a_frozen_layer_in_training_is_one_in_evaluation() -> None:
    layer, inputs = random_norm(), tf.constant(random_inputs(5, 4))
    context = Context(training=True)
    outputs = layer(inputs, dataclasses.replace(context, training=False))
    np.testing.assert_array_equal(outputs, layer(inputs, Context()))
    assert context.statistics == {}


def test_scale_and_bias_may_be_left_out() -> None:
    scope = Scope()
    layer = BatchNorm.Params(model_dim=4, use_scale=False, use_bias=False).build(scope)
    assert set(scope.variables) == {"moving_mean", "moving_variance"}
    inputs = random_inputs(5, 4)
    outputs = layer(tf.constant(inputs), Context(training=True))
    np.testing.assert_allclose(
        outputs, plain_batch_norm(inputs, np.ones(4), np.zeros(4)), atol=1e-5
    )


def test_the_moving_averages_are_not_trained() -> None:
    assert {variable.name for variable in random_norm().trainable_variables} == {
        "norm/scale:0",
        "norm/bias:0",
    }


@pytest.mark.parametrize("momentum", (-0.1, 1.0))
def test_a_momentum_beyond_its_bounds_is_refused(momentum: float) -> None:
    words = rf"momentum \({momentum}\) must be at least 0 and less than 1; at 0.99"
    with pytest.raises(ParamsError, match=words):
        BatchNorm.Params(model_dim=4, momentum=momentum).validate()
