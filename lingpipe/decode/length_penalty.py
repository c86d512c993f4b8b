"""How scores of short and long hypotheses are made comparable.

The log-probability of a sentence is a sum over its tokens and so falls with every token; a search
that ranks by it alone prefers sentences that stop too soon. Dividing by a penalty that grows with
the length takes that preference away (Wu et al. 2016, arXiv 1609.08144, equation 14).
"""

import tensorflow as tf


def length_penalty(lengths: tf.Tensor | int, alpha: float) -> tf.Tensor:
    """Returns ((5 + n) / 6) ^ alpha for each length n, the penalty of GNMT.

    Args:
      lengths: Numbers of tokens of any shape and number type, the end of sentence counted.
      alpha: 0 ranks by log-probability alone, positive values favour longer sentences, negative
        ones shorter sentences. Any finite number is allowed.

    Returns:
      float32, shape of `lengths`; above 0, equal to 1 for a single token.
    """
    return tf.pow((5.0 + tf.cast(lengths, tf.float32)) / 6.0, tf.cast(alpha, tf.float32))


def normalised_score(
    log_probabilities: tf.Tensor | float, lengths: tf.Tensor | int, alpha: float
) -> tf.Tensor:
    """Returns the number by which hypotheses are ranked: log-probability over length penalty.

    Scoring a given translation with the same `alpha` gives the score with which a search would
    have returned it.

    Args:
      log_probabilities: float32 of any shape, sums over each sentence's tokens.
      lengths: Numbers of tokens, of the same shape.
      alpha: As in `length_penalty`.

    Returns:
      float32 of the same shape; -inf stays -inf.
    """
    return tf.cast(log_probabilities, tf.float32) / length_penalty(lengths, alpha)
