"""Initial values follow their formula, and depend on seed and path alone."""

import math

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.initializers import (
    Distribution,
    Initializer,
    constant,
    initial_value,
    normal,
    xavier_uniform,
)

SHAPE = (400, 500)
COUNT = 400 * 500


def draw(initializer: Initializer, seed: int = 1, path: str = "a/kernel") -> np.ndarray:
    value = initial_value(initializer, SHAPE, seed, path)
    assert value.dtype == tf.float32
    return value.numpy().astype(np.float64)


def test_a_constant_is_constant() -> None:
    assert set(draw(constant(0.25)).ravel()) == {0.25}


@pytest.mark.parametrize(
    ("initializer", "stddev"),
    [
        (normal(0.3), 0.3),
        (xavier_uniform(400, 500), math.sqrt(2 / 900)),
        (xavier_uniform(400, 500, gain=3.0), 3 * math.sqrt(2 / 900)),
        (Initializer(Distribution.uniform, 0.5), 0.5 / math.sqrt(3)),
        # A normal cut at two standard deviations keeps 0.8796 of its width.
        (Initializer(Distribution.truncated_normal, 0.2), 0.2 * 0.87963),
    ],
)
def test_mean_and_width_are_those_of_the_formula(initializer: Initializer, stddev: float) -> None:
    values = draw(initializer)
    assert abs(values.mean()) < 5 * stddev / math.sqrt(COUNT)
    assert values.std() == pytest.approx(stddev, rel=0.01)


def test_bounds_hold() -> None:
    assert np.abs(draw(Initializer(Distribution.uniform, 0.5))).max() <= 0.5
    assert np.abs(draw(Initializer(Distribution.truncated_normal, 0.2))).max() <= 0.4
    assert np.abs(draw(normal(0.2))).max() > 0.4


def test_a_normal_has_its_share_beyond_every_width() -> None:
    values = draw(normal(1.0)).ravel()
    for width, share in ((1, 0.3173), (2, 0.0455), (3, 0.0027)):
        assert np.mean(np.abs(values) > width) == pytest.approx(share, abs=0.003)


def test_values_depend_on_seed_and_path_and_nothing_else() -> None:
    first = draw(normal(1.0))
    np.testing.assert_array_equal(draw(normal(1.0)), first)
    with tf.device("/CPU:2"):
        np.testing.assert_array_equal(draw(normal(1.0)), first)
    for other in (draw(normal(1.0), seed=2), draw(normal(1.0), path="b/kernel")):
        assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.02


def test_a_wider_distribution_is_the_same_draw_scaled() -> None:
    np.testing.assert_allclose(draw(normal(3.0)), 3 * draw(normal(1.0)), rtol=1e-6)
