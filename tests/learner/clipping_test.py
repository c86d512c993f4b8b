"""The global norm of several stages and the factor that brings it to its limit."""

import math

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.learner.clipping import clip_factor, squared_norm


def test_squared_norm_adds_up_the_squares_of_all_tensors() -> None:
    tensors = [tf.constant([[1.0, -2.0]]), tf.constant(3.0), tf.Variable([[[4.0]]])]
    result = squared_norm(tensors)
    assert result.dtype == tf.float32
    assert result.shape == ()
    assert float(result) == 30.0


def test_squared_norm_of_a_million_elements_keeps_float32_accuracy() -> None:
    values = np.random.default_rng(1).normal(size=[1000, 1000]).astype(np.float32)
    expected = np.sum(np.square(values.astype(np.float64)))
    assert float(squared_norm([values])) == pytest.approx(expected, rel=1e-6)


def test_no_tensors_have_norm_zero() -> None:
    assert float(squared_norm([])) == 0.0
    assert float(squared_norm([tf.zeros([0, 3])])) == 0.0


def test_bfloat16_is_squared_in_float32() -> None:
    tensor = tf.fill([4096], tf.constant(1.0078125, tf.bfloat16))
    assert float(squared_norm([tensor])) == pytest.approx(4096 * 1.0078125**2, rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
def test_a_bad_element_shows_in_the_norm(bad: float) -> None:
    result = float(squared_norm([tf.constant([1.0, bad]), tf.constant(1.0)]))
    assert not math.isfinite(result)


def test_norm_over_stages_is_the_norm_of_all_gradients() -> None:
    generator = np.random.default_rng(2)
    stages = [[generator.normal(size=[3, 2]), generator.normal(size=[5])] for _ in range(3)]
    norm = math.sqrt(sum(float(squared_norm(gradients)) for gradients in stages))
    every = np.concatenate([g.ravel() for gradients in stages for g in gradients])
    assert norm == pytest.approx(np.linalg.norm(every), rel=1e-6)
    clipped = every * clip_factor(norm, limit=0.5)
    assert np.linalg.norm(clipped) == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("norm", "limit", "factor"),
    [
        (10.0, None, 1.0),
        (10.0, 5.0, 0.5),
        (5.0, 5.0, 1.0),
        (1.0, 5.0, 1.0),
        (0.0, 5.0, 1.0),
        (math.inf, None, 1.0),
        (math.inf, 5.0, 0.0),
    ],
)
def test_factor_follows_the_table(norm: float, limit: float | None, factor: float) -> None:
    assert clip_factor(norm, limit) == factor


def test_factor_of_a_norm_that_is_no_number_is_none_either() -> None:
    assert math.isnan(clip_factor(math.nan, 1.0))
