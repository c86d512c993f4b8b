"""Attention with several heads: every position gathers what it needs from others.

    query [B, N, T, H], key [B, N, S, H] -> scores [B, N, T, S] -> softmax over S (probabilities)
    probabilities, value [B, N, S, H]    -> [B, N, T, H] -> [B, T, N*H] -> output [B, T, D]

`SelfAttention` takes all three from one tensor by one product, `CrossAttention` the query from one
and key and value from another. What may not be seen gets a score of -1e9: a probability of exactly
0 beside any other position, and no NaN where there is none. A cache or memory is a dict of 'key'
and 'value', each [rows, N, S, H], so that decoding computes every position once.

Source: Vaswani et al. 2017, section 3.2.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost, total_cost
from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec
from lingpipe.hyperparams import REQUIRED
from lingpipe.layers.checks import check_heads, check_rate, check_size
from lingpipe.layers.dropout import Dropout
from lingpipe.layers.linear import Linear
from lingpipe.layers.precision import at_least_float32

_UNSEEN = -1e9


class Masking(enum.Enum):
    """Which positions a position of a self-attention may see."""

    none = "none"  # All.
    causal = "causal"  # Itself and those before it.


class MultiHeadAttention(Layer):
    """What self- and cross-attention share: heads, probabilities, the output product."""

    class Params(Layer.Params):
        """Dimensions and dropout."""

        model_dim: int = REQUIRED  # D: width of inputs and outputs; the parent sets it.
        num_heads: int = REQUIRED  # N.
        head_dim: int | None = None  # H: width of a head; None for model_dim / num_heads.
        dropout: float = 0.0  # Share of the probabilities dropped in training.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_size(self, "model_dim", "num_heads")
            yield from check_heads(self.model_dim, self.num_heads, self.head_dim)
            yield from check_rate(self, "dropout")

        @property
        def width(self) -> int:
            """H, whether given or derived."""
            if self.head_dim is not None:
                return self.head_dim
            return self.model_dim // self.num_heads

        def projection(self, num_parts: int) -> Linear.Params:
            """One product that gives `num_parts` of query, key and value side by side.

            Its initial width is that of `num_parts` separate products.
            """
            inner = self.num_heads * self.width
            together = self.model_dim + num_parts * inner
            return Linear.Params(
                input_dim=self.model_dim,
                output_dim=num_parts * inner,
                gain=math.sqrt(together / (self.model_dim + inner)),
            )

        def children(self) -> dict[str, Layer.Params]:
            inner = self.num_heads * self.width
            return {
                "probability_dropout": Dropout.Params(rate=self.dropout),
                "output": Linear.Params(input_dim=inner, output_dim=self.model_dim),
            }

        def attention_cost(self, queries: Spec, num_keys: int) -> Cost:
            """Cost from split heads to output, for queries from [B, T, D] and S keys."""
            batch, time, _ = queries.shape
            inner = Spec((batch, time, self.num_heads * self.width), queries.dtype)
            scores = Spec((batch, self.num_heads, time, num_keys), queries.dtype)
            flops = (4 * self.width + 5) * scores.elements  # Two products and the softmax.
            probabilities = 4 * scores.elements  # Float32, whatever the compute dtype.
            is_copied = not self.dropout and queries.dtype != "float32"
            copy = scores.bytes if is_copied else 0
            # At work: the softmax's derivative, in float32.
            return total_cost(
                Cost(flops, inner, probabilities + copy + inner.bytes, 3 * probabilities),
                self.children()["probability_dropout"].cost(scores),
                self.children()["output"].cost(inner),
                outputs=queries,
            )

    params: Params
    probability_dropout: Dropout
    output: Linear

    def split_heads(self, inputs: tf.Tensor, num_parts: int) -> list[tf.Tensor]:
        """[B, T, num_parts*N*H] -> num_parts tensors [B, N, T, H], by one transposition."""
        shape = tf.shape(inputs)
        heads = [num_parts, self.params.num_heads, self.params.width]
        parts = tf.reshape(inputs, [shape[0], shape[1], *heads])  # [B, T, parts, N, H]
        return tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]), num=num_parts)

    def attend(
        self,
        query: tf.Tensor,
        memory: Mapping[str, tf.Tensor],
        biases: Iterable[tf.Tensor],
        context: Context,
    ) -> tf.Tensor:
        """From query [B, N, T, H], and key and value [B, N, S, H], to the output [B, T, D].

        Args:
          query: floats in the compute dtype.
          memory: 'key' and 'value', in the compute dtype.
          biases: floats that broadcast to [B, N, T, S], added to the scores.
          context: the circumstances of the call.
        """
        scaled = query * tf.cast(self.params.width**-0.5, query.dtype)
        scores = at_least_float32(tf.matmul(scaled, memory["key"], transpose_b=True))
        for bias in biases:
            scores += tf.cast(bias, scores.dtype)
        probabilities = tf.cast(tf.nn.softmax(scores), query.dtype)  # [B, N, T, S]
        probabilities = self.probability_dropout(probabilities, context)
        gathered = tf.transpose(tf.matmul(probabilities, memory["value"]), [0, 2, 1, 3])
        shape = tf.shape(gathered)  # [B, T, N, H]
        inner = self.params.num_heads * self.params.width
        return self.output(tf.reshape(gathered, [shape[0], shape[1], inner]), context)


class SelfAttention(MultiHeadAttention):
    """Attention of a sequence to itself: floats [B, T, D] -> [B, T, D]."""

    class Params(MultiHeadAttention.Params):
        """Those of every attention, and the mask."""

        masking: Masking = Masking.none  # Whether a position may see those after it.

        def children(self) -> dict[str, Layer.Params]:
            return {"query_key_value": self.projection(3), **super().children()}

        def cost(self, inputs: Spec, batch: Mapping[str, Spec] | None = None) -> Cost:
            product = self.projection(3).cost(inputs)
            # The three parts share one buffer, so that the query is kept scaled and as it was.
            scaled = Cost(0, None, product.outputs.bytes // 3)
            attention = self.attention_cost(inputs, inputs.shape[1])
            return total_cost(product, scaled, attention, outputs=inputs)

    params: Params
    query_key_value: Linear

    def __call__(
        self, inputs: tf.Tensor, context: Context, *, paddings: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Attends within each sequence.

        Args:
          inputs: floats [B, T, D] in the compute dtype.
          context: the circumstances of the call.
          paddings: bool [B, T], True at positions that none may see; None if there are none.
        """
        query, key, value = self.split_heads(self.query_key_value(inputs, context), 3)
        biases = [] if paddings is None else [padding_bias(paddings)]
        if self.params.masking is Masking.causal:
            time = tf.shape(inputs)[1]
            biases.append(causal_bias(time, time))
        return self.attend(query, {"key": key, "value": value}, biases, context)

    def initial_cache(self, rows: tf.Tensor | int, context: Context) -> dict[str, tf.Tensor]:
        """The cache before the first position: [rows, N, 0, H]."""
        shape = [rows, self.params.num_heads, 0, self.params.width]
        empty = tf.zeros(shape, context.compute_dtype)
        return {"key": empty, "value": empty}

    def extend(
        self, inputs: tf.Tensor, context: Context, *, cache: Mapping[str, tf.Tensor]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Attends from new positions to themselves and all before them, as a causal mask would.

        Args:
          inputs: floats [rows, t, D], the new positions; t is 1 in most searches.
          context: the circumstances of the call.
          cache: 'key' and 'value' [rows, N, S, H] of the S positions before.

        Returns:
          Outputs [rows, t, D], and the cache of S + t positions.
        """
        query, key, value = self.split_heads(self.query_key_value(inputs, context), 3)
        grown = {
            "key": tf.concat([cache["key"], key], axis=2),
            "value": tf.concat([cache["value"], value], axis=2),
        }
        bias = causal_bias(tf.shape(query)[2], tf.shape(grown["key"])[2])
        return self.attend(query, grown, [bias], context), grown


class CrossAttention(MultiHeadAttention):
    """Attention of a target sequence to a source sequence of the same width."""

    class Params(MultiHeadAttention.Params):
        """Those of every attention."""

        def children(self) -> dict[str, Layer.Params]:
            own = {"query": self.projection(1), "key_value": self.projection(2)}
            return {**own, **super().children()}

        def cost(self, inputs: Mapping[str, Spec], batch: Mapping[str, Spec] | None = None) -> Cost:
            target, source = inputs["target"], inputs["source"]
            return total_cost(
                self.projection(1).cost(target),
                self.projection(2).cost(source),
                self.attention_cost(target, source.shape[1]),
                outputs=target,
            )

    params: Params
    query: Linear
    key_value: Linear

    def __call__(
        self,
        inputs: Mapping[str, tf.Tensor],
        context: Context,
        *,
        paddings: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Attends from every target position to every source position.

        Args:
          inputs: 'target' floats [B, T, D] and 'source' floats [B, S, D], in the compute dtype.
          context: the circumstances of the call.
          paddings: bool [B, S], True at source positions that none may see.

        Returns:
          Floats [B, T, D].
        """
        memory = self.remember(inputs["source"], context)
        return self.recall(inputs["target"], context, memory=memory, paddings=paddings)

    def remember(self, source: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        """'key' and 'value' [B, N, S, H] of a source [B, S, D]; decoding needs them once."""
        key, value = self.split_heads(self.key_value(source, context), 2)
        return {"key": key, "value": value}

    def recall(
        self,
        target: tf.Tensor,
        context: Context,
        *,
        memory: Mapping[str, tf.Tensor],
        paddings: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Attends from a target [B, T, D] to a remembered source; see `__call__`."""
        (query,) = self.split_heads(self.query(target, context), 1)
        biases = [] if paddings is None else [padding_bias(paddings)]
        return self.attend(query, memory, biases, context)


def padding_bias(paddings: tf.Tensor) -> tf.Tensor:
    """Float32 [B, 1, 1, S] from bool [B, S]: a score that hides each padding from everyone."""
    return _UNSEEN * tf.cast(paddings, tf.float32)[:, None, None, :]


def causal_bias(num_queries: tf.Tensor | int, num_keys: tf.Tensor | int) -> tf.Tensor:
    """Float32 [T, S]: hides from each query the keys after it; the last query sees all keys."""
    queries = tf.range(num_queries)[:, None] + (num_keys - num_queries)
    return _UNSEEN * tf.cast(tf.range(num_keys)[None, :] > queries, tf.float32)
