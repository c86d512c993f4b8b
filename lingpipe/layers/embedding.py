"""Embedding: one row of a table for each id.

The table has the shape [V, D] and the name `table`, as in `Softmax`: an embedding and a softmax
whose params name the same `share_weights` are tied (Press and Wolf 2017).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.initializers import normal
from lingpipe.base.layer import Layer, Weight
from lingpipe.base.spec import Spec
from lingpipe.hyperparams import REQUIRED
from lingpipe.layers.checks import MAX_VOCABULARY, check_size


class Embedding(Layer):
    """Ids [...] -> floats [..., model_dim]."""

    class Params(Layer.Params):
        """Size of the table."""

        vocabulary_size: int = REQUIRED  # V: number of ids.
        model_dim: int = REQUIRED  # D: width of an embedding; the parent sets it.
        scale_by_sqrt_dim: bool = False  # Multiply by sqrt(D), to unit variance at the start.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_size(self, "vocabulary_size", most=MAX_VOCABULARY)
            yield from check_size(self, "model_dim")

        def weights(self) -> dict[str, Weight]:
            return {"table": table_weight(self.vocabulary_size, self.model_dim)}

        def cost(self, inputs: Spec, batch: Mapping[str, Spec] | None = None) -> Cost:
            outputs = Spec((*inputs.shape, self.model_dim))
            flops = outputs.elements if self.scale_by_sqrt_dim else 0
            # The gradient of the table is that of the rows that were read.
            return Cost(flops, outputs, outputs.bytes, 2 * outputs.bytes, outputs.bytes)

    params: Params
    table: tf.Variable

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        """Int ids [...], each in [0, V) -> floats [..., D] in the compute dtype.

        The gradient of the table is a `tf.IndexedSlices` of the rows that were read.
        """
        # Rows are read before they are cast: casting the whole table would cost more than all else.
        outputs = context.cast(tf.gather(self.table, inputs))
        if self.params.scale_by_sqrt_dim:
            outputs *= tf.cast(math.sqrt(self.params.model_dim), outputs.dtype)
        return outputs


def table_weight(vocabulary_size: int, model_dim: int) -> Weight:
    """The table [V, D] of an embedding or softmax: normal with standard deviation D^-0.5.

    Logits of normalised activations then start with variance 1, and so do embeddings that are
    scaled by sqrt(D).
    """
    return Weight((vocabulary_size, model_dim), normal(model_dim**-0.5))
