"""What every search returns."""

from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class BeamOutput:
    """The best hypotheses of each sentence, best first. N is the number asked for (`nbest`).

    It is a nested structure to TensorFlow: a `tf.function` may return it, `tf.nest` maps over it.
    Where a sentence has fewer than N hypotheses (a tiny vocabulary, one token at most), the
    missing ones have log-probability and score -inf, length 0 and only zeros as ids.

    Attributes:
      ids: int32 [B, N, T], T the longest maximum length of the batch. A target prefix is part of
        them, the begin of sentence is not. The end of sentence is the last id, unless the
        hypothesis was cut at its sentence's maximum length; then come zeros.
      lengths: int32 [B, N], number of ids before the zeros, the end of sentence counted.
      log_probabilities: float32 [B, N], natural logarithms of the model's own probabilities,
        summed over the `lengths` ids; never renormalised for ids that were forbidden or forced,
        so that they equal the log-probabilities of teacher forcing.
      scores: float32 [B, N], `log_probabilities` over the length penalty: the order of N.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    log_probabilities: tf.Tensor
    scores: tf.Tensor

    def __tf_flatten__(self) -> tuple[tuple[()], tuple[tf.Tensor, ...]]:
        """Tells `tf.nest` which tensors are inside."""
        return (), (self.ids, self.lengths, self.log_probabilities, self.scores)

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[()], leaves: tuple[tf.Tensor, ...]) -> "BeamOutput":
        """Puts together what `__tf_flatten__` took apart."""
        return cls(*leaves)
