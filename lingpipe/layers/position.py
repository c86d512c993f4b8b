"""SinusoidalPosition: says where in the sentence a token stands, by sines of many wavelengths.

Source: Vaswani et al. 2017, section 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec
from lingpipe.hyperparams import REQUIRED
from lingpipe.layers.checks import check_size


class SinusoidalPosition(Layer):
    """Adds the encoding of each position to [B, T, D]; has no weights and no greatest length."""

    class Params(Layer.Params):
        """Width of the encoding."""

        model_dim: int = REQUIRED  # D: width of inputs and outputs, even; the parent sets it.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_size(self, "model_dim")
            if self.model_dim % 2:
                yield (
                    "model_dim",
                    f"model_dim ({self.model_dim}) must be even, for pairs of a sine and a "
                    f"cosine; use {self.model_dim - 1} or {self.model_dim + 1}.",
                )

        def cost(self, inputs: Spec, batch: Mapping[str, Spec] | None = None) -> Cost:
            return Cost(inputs.elements, inputs, inputs.bytes, inputs.bytes, waiting_bytes=0)

    params: Params

    def __call__(
        self, inputs: tf.Tensor, context: Context, *, offset: tf.Tensor | int = 0
    ) -> tf.Tensor:
        """Adds to floats [B, T, D]; the first of the T positions is number `offset`."""
        positions = tf.range(tf.shape(inputs)[1]) + offset
        return inputs + tf.cast(sinusoids(positions, self.params.model_dim), inputs.dtype)


def sinusoids(positions: tf.Tensor, model_dim: int) -> tf.Tensor:
    """Encodings float32 [T, D] of int positions [T].

    Element 2i is sin(position / 10000^(2i/D)), element 2i+1 the cosine of the same.
    """
    rate = -math.log(10_000.0) / model_dim
    frequencies = tf.exp(rate * tf.range(0, model_dim, 2, dtype=tf.float32))  # [D/2]
    angles = tf.cast(positions, tf.float32)[:, None] * frequencies  # [T, D/2]
    pairs = tf.stack([tf.sin(angles), tf.cos(angles)], axis=-1)  # [T, D/2, 2]
    return tf.reshape(pairs, [-1, model_dim])
