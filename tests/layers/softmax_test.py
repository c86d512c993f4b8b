"""Softmax: logits against a plain product, and both ways of clipping."""

import numpy as np
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.layers.softmax import LogitClipping, Softmax, clip_logits

PARAMS = Softmax.Params(model_dim=4, vocabulary_size=7)


def test_logits_are_products_with_the_rows_of_the_table() -> None:
    layer = PARAMS.build(Scope())
    inputs = tf.random.stateless_normal([2, 3, 4], [1, 1])
    expected = np.einsum("btd,vd->btv", inputs, layer.table)
    np.testing.assert_allclose(layer(inputs, Context()), expected, atol=1e-6)


def test_logits_are_float32_where_activations_are_shorter() -> None:
    layer = PARAMS.build(Scope())
    inputs = tf.ones([2, 3, 4], tf.bfloat16)
    assert layer(inputs, Context(compute_dtype=tf.bfloat16)).dtype == tf.float32


def test_hard_clipping_cuts_off_values_and_gradients() -> None:
    logits = tf.constant([-40.0, -29.0, 0.0, 30.5, 1e9])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        clipped = clip_logits(logits, LogitClipping.hard, 30.0)
    np.testing.assert_array_equal(clipped, [-30.0, -29.0, 0.0, 30.0, 30.0])
    np.testing.assert_array_equal(tape.gradient(clipped, logits), [0.0, 1.0, 1.0, 0.0, 0.0])


def test_smooth_clipping_stays_below_the_limit_and_keeps_the_order() -> None:
    logits = tf.constant([-60.0, -1.0, 0.0, 1.0, 29.0, 60.0])
    clipped = clip_logits(logits, LogitClipping.smooth, 30.0).numpy()
    np.testing.assert_allclose(clipped, 30 * np.tanh(logits / 30), rtol=1e-6)
    assert np.all(np.diff(clipped) > 0)
    assert np.all(np.abs(clipped) < 30.0)


def test_the_layer_clips_as_its_params_say() -> None:
    inputs = 1000.0 * tf.ones([1, 1, 4])
    free = PARAMS.build(Scope())(inputs, Context()).numpy()
    assert np.abs(free).max() > 100
    for clipping in (LogitClipping.hard, LogitClipping.smooth):
        layer = PARAMS.copy(logit_clipping=clipping, logit_limit=5.0).build(Scope())
        expected = clip_logits(tf.constant(free), clipping, 5.0)
        np.testing.assert_allclose(layer(inputs, Context()), expected, rtol=1e-5)
