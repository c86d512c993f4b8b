"""Cross-entropy of logits against ids, as pure functions from tokens to tokens.

No tensor of one-hot labels is ever made. With z the logits, y the label, V the vocabulary and e the
smoothing, the target distribution is (1 - e) on y plus e / V on every id, y included (Szegedy et
al. 2016, section 7), and the loss

    log sum exp(z) - (1 - e) * z[y] - e * mean(z)

whose derivative is softmax(z) minus that distribution. Writing both by hand keeps one tensor
[tokens, V] between forward and backward, exp(z - max z), and takes half the time of TensorFlow's
fused operation on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from lingpipe.layers.precision import at_least_float32


class TokenLosses(NamedTuple):
    """Losses of every token, float32 at least, in the shape of the labels.

    Attributes:
      smoothed: cross-entropy against the smoothed labels, at least the entropy of those.
      negative_log_likelihood: of the label alone, what perplexity is made of.
    """

    smoothed: tf.Tensor
    negative_log_likelihood: tf.Tensor


class WeightedSum(NamedTuple):
    """Sums of weighted losses and of the weights, both scalars: their ratio is the mean.

    Sums may be added up over micro-batches and replicas; means may not.
    """

    total: tf.Tensor
    weight: tf.Tensor


def smoothed_cross_entropy(
    logits: tf.Tensor, labels: tf.Tensor, smoothing: float = 0.0
) -> TokenLosses:
    """Cross-entropy of every token, with and without label smoothing.

    Args:
      logits: floats [..., V].
      labels: int ids [...], each in [0, V).
      smoothing: share of the target distribution that is spread evenly over all V ids.

    Returns:
      Two tensors [...], both differentiable in the logits.
    """
    rows = at_least_float32(tf.reshape(logits, [-1, tf.shape(logits)[-1]]))
    # Position of each label's logit: [n, 2].
    places = tf.stack([tf.range(tf.shape(rows)[0]), tf.reshape(labels, [-1])], axis=-1)
    losses = _token_losses(rows, places, smoothing)
    return TokenLosses(*(tf.reshape(loss, tf.shape(labels)) for loss in losses))


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Negative log-likelihood of int labels [...] under logits [..., V]: [...]."""
    return smoothed_cross_entropy(logits, labels).negative_log_likelihood


def weighted_sum(losses: tf.Tensor, weights: tf.Tensor) -> WeightedSum:
    """Adds up losses [...] times weights [...]; a token of weight 0 counts for nothing."""
    weights = tf.cast(weights, losses.dtype)
    return WeightedSum(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))


def _token_losses(
    logits: tf.Tensor, places: tf.Tensor, smoothing: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Smoothed loss and negative log-likelihood [n] of logits [n, V] at `places` [n, 2]."""

    @tf.custom_gradient
    def function(
        logits: tf.Tensor,
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., tf.Tensor]]:
        largest = tf.reduce_max(logits, axis=-1, keepdims=True)  # [n, 1]
        exponentials = tf.exp(logits - largest)  # [n, V]
        sums = tf.reduce_sum(exponentials, axis=-1, keepdims=True)  # [n, 1]
        log_sum = (largest + tf.math.log(sums))[:, 0]
        nll = log_sum - tf.gather_nd(logits, places)
        if not smoothing:
            smoothed = nll
        else:
            smoothed = (1 - smoothing) * nll + smoothing * (
                log_sum - tf.reduce_mean(logits, axis=-1)
            )

        def gradient(of_smoothed: tf.Tensor, of_nll: tf.Tensor) -> tf.Tensor:
            of_softmax = (of_smoothed + of_nll)[:, None]  # [n, 1]
            slopes = exponentials * (of_softmax / sums)  # [n, V]
            if smoothing:
                size = tf.cast(tf.shape(logits)[-1], logits.dtype)
                slopes -= (smoothing / size) * of_smoothed[:, None]
            of_label = (1 - smoothing) * of_smoothed + of_nll
            return tf.tensor_scatter_nd_sub(slopes, places, of_label)

        return (smoothed, nll), gradient

    smoothed, nll = function(logits)
    return smoothed, nll
