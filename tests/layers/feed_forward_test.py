"""FeedForward against two plain products."""

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.base.spec import Spec
from lingpipe.layers.activation import Activation
from lingpipe.layers.feed_forward import FeedForward

PARAMS = FeedForward.Params(model_dim=4, hidden_dim=6)


def test_two_products_with_relu_in_between() -> None:
    layer = PARAMS.build(Scope(seed=1))
    layer.hidden.bias.assign(tf.random.stateless_normal([6], [1, 1]))
    layer.output.bias.assign(tf.random.stateless_normal([4], [1, 2]))
    inputs = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    hidden = np.maximum(inputs @ layer.hidden.kernel.numpy() + layer.hidden.bias.numpy(), 0)
    expected = hidden @ layer.output.kernel.numpy() + layer.output.bias.numpy()
    np.testing.assert_allclose(layer(tf.constant(inputs), Context()), expected, atol=1e-5)


def test_another_activation_gives_other_outputs() -> None:
    inputs = tf.ones([1, 1, 4])
    outputs = {
        activation: PARAMS.copy(activation=activation).build(Scope(seed=1))(inputs, Context())
        for activation in Activation
    }
    assert len({output.numpy().tobytes() for output in outputs.values()}) == 3


def test_hidden_units_are_dropped_in_training_only() -> None:
    layer = PARAMS.copy(dropout=0.5).build(Scope(seed=1))
    inputs = tf.ones([1, 8, 4])
    train = layer(inputs, Context(training=True))
    test = layer(inputs, Context())
    assert len(np.unique(test.numpy().round(6), axis=1)[0]) == 1, "equal positions, no dropout"
    assert len(np.unique(train.numpy().round(6), axis=1)[0]) > 1


def test_depth_scale_makes_both_initial_kernels_smaller() -> None:
    plain = PARAMS.build(Scope(seed=1))
    deep = PARAMS.copy(depth_scale=1 / 64).build(Scope(seed=1))
    np.testing.assert_allclose(deep.hidden.kernel, plain.hidden.kernel / 64, rtol=1e-6)
    np.testing.assert_allclose(deep.output.kernel, plain.output.kernel / 64, rtol=1e-6)


def test_the_cost_counts_two_products() -> None:
    cost = FeedForward.Params(model_dim=512, hidden_dim=2048).cost(Spec((4, 128, 512)))
    assert cost.flops == pytest.approx(2 * 2 * 4 * 128 * 512 * 2048, rel=0.01)
