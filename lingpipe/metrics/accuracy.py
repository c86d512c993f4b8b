"""The share of predictions that are right."""

import numpy as np
import numpy.typing as npt

from lingpipe.metrics.errors import MetricsError
from lingpipe.metrics.mean import WeightedMean


def accuracy(
    predictions: npt.ArrayLike, labels: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> WeightedMean:
    """Returns the weighted share of predictions that equal their label.

    Args:
      predictions: Ints of any shape, the class or token held most probable.
      labels: Ints of the same shape.
      weights: Numbers of the same shape, 0 for padding; None counts all alike.

    Raises:
      MetricsError: When the shapes differ.
    """
    return top_k_accuracy(np.asarray(predictions)[..., None], labels, weights)


def top_k_accuracy(
    predictions: npt.ArrayLike, labels: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> WeightedMean:
    """Returns the weighted share of labels that are among k predictions.

    Args:
      predictions: Ints [..., k], the k classes held most probable, in any order.
      labels: Ints [...].
      weights: Numbers [...], 0 for padding; None counts all alike.

    Raises:
      MetricsError: When the shapes do not fit.
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    weights = np.ones(labels.shape) if weights is None else np.asarray(weights, np.float64)
    if predictions.shape[:-1] != labels.shape or weights.shape != labels.shape:
        raise MetricsError(
            f"Predictions of shape {predictions.shape[:-1]}, labels of shape {labels.shape} and "
            f"weights of shape {weights.shape} must have the same shape."
        )
    hits = np.any(predictions == labels[..., None], axis=-1)  # [...]
    return WeightedMean(float(np.sum(hits * weights)), float(np.sum(weights)))
