"""The length penalty against numbers worked out by hand."""

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.decode.length_penalty import length_penalty, normalised_score


@pytest.mark.parametrize(
    ("alpha", "penalties"),
    [
        (0.0, [1.0, 1.0, 1.0]),
        (1.0, [1.0, 2.0, 2.5]),
        (2.0, [1.0, 4.0, 6.25]),
        (-1.0, [1.0, 0.5, 0.4]),
        (0.6, [1.0, 2.0**0.6, 2.5**0.6]),
    ],
)
def test_penalty_is_that_of_gnmt(alpha: float, penalties: list[float]) -> None:
    computed = length_penalty(tf.constant([1, 7, 10]), alpha)
    assert computed.dtype == tf.float32
    np.testing.assert_allclose(computed, penalties, rtol=1e-6)


def test_an_empty_sentence_has_a_penalty() -> None:
    np.testing.assert_allclose(length_penalty(0, 1.0), 5 / 6, rtol=1e-6)


def test_score_is_log_probability_over_penalty() -> None:
    scores = normalised_score(tf.constant([-6.0, -float("inf")]), tf.constant([7, 7]), 1.0)
    np.testing.assert_allclose(scores, [-3.0, -float("inf")])
