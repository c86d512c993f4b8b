"""Cross-entropy against NumPy written from the definition, values and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers.losses import cross_entropy, smoothed_cross_entropy, weighted_sum

LABELS = np.array([[1, 0, 4], [2, 2, 3]], np.int32)


def random_logits(scale: float = 3.0) -> np.ndarray:
    """Logits [2, 3, 5]."""
    return scale * np.random.default_rng(1).normal(size=(2, 3, 5))


def plain_losses(logits: np.ndarray, smoothing: float) -> tuple[np.ndarray, np.ndarray]:
    """Smoothed loss and negative log-likelihood, token by token."""
    smoothed, nll = np.zeros(LABELS.shape), np.zeros(LABELS.shape)
    for place in np.ndindex(*LABELS.shape):
        probabilities = np.exp(logits[place]) / np.exp(logits[place]).sum()
        target = np.full(5, smoothing / 5)
        target[LABELS[place]] += 1 - smoothing
        smoothed[place] = -np.sum(target * np.log(probabilities))
        nll[place] = -np.log(probabilities[LABELS[place]])
    return smoothed, nll


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_losses_follow_the_definition(smoothing: float) -> None:
    logits = random_logits()
    losses = smoothed_cross_entropy(tf.constant(logits), LABELS, smoothing)
    smoothed, nll = plain_losses(logits, smoothing)
    np.testing.assert_allclose(losses.smoothed, smoothed, rtol=1e-10)
    np.testing.assert_allclose(losses.negative_log_likelihood, nll, rtol=1e-10)
    np.testing.assert_allclose(cross_entropy(tf.constant(logits), LABELS), nll, rtol=1e-10)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_equal_those_of_one_hot_labels(smoothing: float) -> None:
    logits = tf.constant(random_logits())
    target = tf.one_hot(LABELS, 5, 1 - smoothing + smoothing / 5, smoothing / 5, dtype=tf.float64)
    factors = tf.constant(np.random.default_rng(2).normal(size=(2, 2, 3)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        losses = smoothed_cross_entropy(logits, LABELS, smoothing)
        ours = factors[0] * losses.smoothed + factors[1] * losses.negative_log_likelihood
        log_softmax = tf.nn.log_softmax(logits)
        theirs = -factors[0] * tf.reduce_sum(target * log_softmax, axis=-1)
        theirs -= factors[1] * tf.gather(log_softmax, LABELS, batch_dims=2)
        ours, theirs = tf.reduce_sum(ours), tf.reduce_sum(theirs)
    np.testing.assert_allclose(
        tape.gradient(ours, logits), tape.gradient(theirs, logits), atol=1e-12
    )


def test_huge_logits_give_no_nan() -> None:
    logits = tf.constant([[[1e4, -1e4, 0.0, 0.0, 3e38]]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = cross_entropy(logits, tf.constant([[4]]))
    assert loss.numpy().item() == 0.0
    np.testing.assert_array_equal(tape.gradient(loss, logits), np.zeros([1, 1, 5]))


def test_losses_of_bfloat16_logits_are_float32() -> None:
    logits = tf.cast(random_logits(), tf.bfloat16)
    losses = smoothed_cross_entropy(logits, LABELS, 0.1)
    smoothed, _ = plain_losses(tf.cast(logits, tf.float64).numpy(), 0.1)
    assert losses.smoothed.dtype == tf.float32
    np.testing.assert_allclose(losses.smoothed, smoothed, rtol=1e-5)


def test_no_tensor_of_one_hot_labels_is_made() -> None:
    function = tf.function(lambda x: smoothed_cross_entropy(x, LABELS, 0.1).smoothed)
    graph = function.get_concrete_function(tf.TensorSpec([None, None, 5])).graph
    assert not [op.name for op in graph.get_operations() if op.type == "OneHot"]


def test_a_sum_over_micro_batches_equals_the_whole() -> None:
    losses = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    weights = tf.constant([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    whole = weighted_sum(losses, weights)
    parts = [weighted_sum(losses[i : i + 1], weights[i : i + 1]) for i in range(2)]
    assert (float(whole.total), float(whole.weight)) == (7.0, 3.0)
    assert sum(float(part.total) for part in parts) == 7.0
    assert sum(float(part.weight) for part in parts) == 3.0


def test_an_id_outside_of_the_vocabulary_is_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices"):
        cross_entropy(tf.zeros([1, 2, 5]), tf.constant([[0, 5]]))
