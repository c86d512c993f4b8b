"""Sinusoids against the formula of the paper."""

import math

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.hyperparams import ParamsError
from lingpipe.layers.position import SinusoidalPosition, sinusoids


def test_sines_and_cosines_follow_the_formula() -> None:
    expected = np.zeros([50, 6])
    for position in range(50):
        for pair in range(3):
            angle = position / 10_000 ** (2 * pair / 6)
            expected[position, 2 * pair] = math.sin(angle)
            expected[position, 2 * pair + 1] = math.cos(angle)
    np.testing.assert_allclose(sinusoids(tf.range(50), 6), expected, atol=1e-5)


def test_an_offset_continues_where_the_positions_before_ended() -> None:
    layer = SinusoidalPosition.Params(model_dim=8).build(Scope())
    inputs = tf.random.stateless_normal([2, 7, 8], [1, 2])
    whole = layer(inputs, Context())
    first = layer(inputs[:, :4], Context())
    rest = layer(inputs[:, 4:], Context(), offset=tf.constant(4))
    np.testing.assert_array_equal(tf.concat([first, rest], axis=1), whole)


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ParamsError, match=r"model_dim \(7\) must be even.*use 6 or 8"):
        SinusoidalPosition.Params(model_dim=7).build(Scope())
