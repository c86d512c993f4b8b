"""Shares of right predictions, padding left out."""

import numpy as np
import pytest

from lingpipe.metrics.accuracy import accuracy, top_k_accuracy
from lingpipe.metrics.errors import MetricsError
from lingpipe.metrics.mean import WeightedMean


def test_padding_counts_neither_as_right_nor_as_wrong() -> None:
    predictions = [[1, 2, 0], [3, 9, 0]]
    labels = [[1, 2, 0], [3, 4, 0]]
    weights = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]
    assert accuracy(predictions, labels, weights) == WeightedMean(3.0, 4.0)
    assert accuracy(predictions, labels) == WeightedMean(5.0, 6.0)


def test_uneven_batches_add_up_to_the_whole() -> None:
    random = np.random.default_rng(0)
    predictions, labels = random.integers(4, size=[2, 50])
    parts = [accuracy(predictions[rows], labels[rows]) for rows in (slice(0, 7), slice(7, 50))]
    assert sum(parts) == accuracy(predictions, labels)
    assert accuracy(predictions, labels).value == np.mean(predictions == labels)


def test_a_label_may_be_any_of_the_k_predictions() -> None:
    predictions = [[5, 1, 2], [3, 4, 0], [7, 8, 9]]
    assert top_k_accuracy(predictions, [2, 3, 6]) == WeightedMean(2.0, 3.0)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MetricsError, match=r"\(2,\), labels of shape \(3,\)"):
        accuracy([1, 2], [1, 2, 3])
    with pytest.raises(MetricsError, match=r"weights of shape \(1,\)"):
        accuracy([1, 2], [1, 2], [1.0])
