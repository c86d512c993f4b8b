"""LayerNorm against NumPy, and its hand-written derivative against TensorFlow's."""

import numpy as np
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.layers.normalization import LayerNorm


def plain_layer_norm(
    inputs: np.ndarray, scale: np.ndarray, bias: np.ndarray, epsilon: float
) -> np.ndarray:
    """The definition, position by position."""
    outputs = np.zeros_like(inputs, dtype=np.float64)
    for place in np.ndindex(*inputs.shape[:-1]):
        row = inputs[place].astype(np.float64)
        outputs[place] = (row - row.mean()) / np.sqrt(row.var() + epsilon) * scale + bias
    return outputs


def random_norm() -> tuple[LayerNorm, tf.Tensor]:
    """A layer with random weights, and inputs far from mean 0 and variance 1."""
    layer = LayerNorm.Params(model_dim=8, epsilon=1e-3).build(Scope())
    layer.scale.assign(tf.random.stateless_normal([8], [1, 1]))
    layer.bias.assign(tf.random.stateless_normal([8], [1, 2]))
    return layer, 3.0 + 2.0 * tf.random.stateless_normal([2, 3, 8], [1, 3])


def test_each_position_is_normalised_by_itself() -> None:
    layer, inputs = random_norm()
    expected = plain_layer_norm(inputs.numpy(), layer.scale.numpy(), layer.bias.numpy(), 1e-3)
    np.testing.assert_allclose(layer(inputs, Context()), expected, atol=1e-5)


def test_the_derivative_equals_that_of_the_composed_operations() -> None:
    layer, inputs = random_norm()
    factors = tf.random.stateless_normal([2, 3, 8], [1, 4])
    sources = [inputs, layer.scale, layer.bias]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        ours = tf.reduce_sum(factors * layer(inputs, Context()))
        mean, variance = tf.nn.moments(inputs, axes=-1, keepdims=True)
        theirs = tf.reduce_sum(
            factors
            * tf.nn.batch_normalization(inputs, mean, variance, layer.bias, layer.scale, 1e-3)
        )
    for a, b in zip(tape.gradient(ours, sources), tape.gradient(theirs, sources), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_bfloat16_is_normalised_in_float32() -> None:
    layer, inputs = random_norm()
    short = tf.cast(inputs, tf.bfloat16)
    outputs = layer(short, Context(compute_dtype=tf.bfloat16))
    wide = layer(tf.cast(short, tf.float32), Context())
    assert outputs.dtype == tf.bfloat16
    np.testing.assert_array_equal(outputs, tf.cast(wide, tf.bfloat16))


def test_a_constant_position_gives_the_bias() -> None:
    layer, _ = random_norm()
    outputs = layer(tf.fill([1, 1, 8], 5.0), Context())
    np.testing.assert_allclose(outputs[0, 0], layer.bias, atol=1e-6)
