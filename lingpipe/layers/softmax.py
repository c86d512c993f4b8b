"""Softmax: scores of every id of the vocabulary, and what keeps them from running away.

The table has the shape [V, D] and the name `table`, as in `Embedding`, so that one
`share_weights` ties the two.

Clipping: GPipe (Huang et al. 2019, section 5) clips the logits of its deep translation models where
they grow too large, and names this one of two cures for their instability. Its limit was never
published. Both kinds here and the default limit are this project's own choice.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.layer import Layer, Weight
from lingpipe.base.spec import Spec
from lingpipe.hyperparams import REQUIRED
from lingpipe.layers.checks import MAX_VOCABULARY, check_positive, check_size
from lingpipe.layers.embedding import table_weight
from lingpipe.layers.precision import at_least_float32


class LogitClipping(enum.Enum):
    """How logits are kept within the limit."""

    none = "none"  # Not at all.
    hard = "hard"  # Cut off at the limit; a logit beyond it gets no gradient.
    smooth = "smooth"  # limit * tanh(logit / limit): some gradient everywhere.


class Softmax(Layer):
    """Floats [..., model_dim] -> logits [..., vocabulary_size] in float32 at least."""

    class Params(Layer.Params):
        """Size of the table, and clipping."""

        model_dim: int = REQUIRED  # D: width of the inputs; the parent sets it.
        vocabulary_size: int = REQUIRED  # V: number of ids.
        logit_clipping: LogitClipping = LogitClipping.none  # How logits are kept within the limit.
        logit_limit: float = 30.0  # Greatest magnitude of a logit; our choice, none is published.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_size(self, "model_dim")
            yield from check_size(self, "vocabulary_size", most=MAX_VOCABULARY)
            yield from check_positive(self, "logit_limit")

        def weights(self) -> dict[str, Weight]:
            return {"table": table_weight(self.vocabulary_size, self.model_dim)}

        def cost(self, inputs: Spec, batch: Mapping[str, Spec] | None = None) -> Cost:
            outputs = Spec((*inputs.shape[:-1], self.vocabulary_size))
            flops = 2 * inputs.elements * self.vocabulary_size
            is_clipped = self.logit_clipping is not LogitClipping.none
            # To derive the clipping takes one more.
            kept = outputs.bytes * (2 if is_clipped else 1)
            # The logits' gradient, twice while it is made, or the table's; and the inputs'.
            table = 4 * self.model_dim * self.vocabulary_size
            working = inputs.bytes + outputs.bytes + max(outputs.bytes, table)
            return Cost(flops, outputs, kept, working, waiting_bytes=outputs.bytes)

    params: Params
    table: tf.Variable

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        """Floats [..., D] in the compute dtype -> logits [..., V]."""
        rows = tf.reshape(inputs, [-1, self.params.model_dim])
        logits = tf.matmul(rows, context.cast(self.table), transpose_b=True)
        shape = tf.concat([tf.shape(inputs)[:-1], [self.params.vocabulary_size]], axis=0)
        logits = tf.reshape(at_least_float32(logits), shape)
        logits.set_shape([*inputs.shape[:-1], self.params.vocabulary_size])
        return clip_logits(logits, self.params.logit_clipping, self.params.logit_limit)


def clip_logits(logits: tf.Tensor, clipping: LogitClipping, limit: float) -> tf.Tensor:
    """Keeps every logit within [-limit, limit] in the way of `clipping`."""
    if clipping is LogitClipping.hard:
        return tf.clip_by_value(logits, -limit, limit)
    if clipping is LogitClipping.smooth:
        return limit * tf.tanh(logits / limit)
    return logits
