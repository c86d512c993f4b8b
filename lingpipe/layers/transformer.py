"""The layers of the Transformer: attention and feed-forward, each with a norm around it.

    pre:   x + dropout(f(norm(x)))      steadier in deep stacks; the stack ends with one more norm
    post:  norm(x + dropout(f(x)))      as published

A layer holds the params of its parts as templates and hands `model_dim` down; each template may be
replaced by the params of a subclass.

Sources: Vaswani et al. 2017, section 3.1; Xiong et al. 2020 for pre-norm.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec
from lingpipe.hyperparams import REQUIRED
from lingpipe.layers.attention import CrossAttention, Masking, SelfAttention
from lingpipe.layers.checks import check_rate, check_size
from lingpipe.layers.dropout import Dropout
from lingpipe.layers.feed_forward import FeedForward
from lingpipe.layers.normalization import LayerNorm


class NormPosition(enum.Enum):
    """Where the norm of a residual branch stands."""

    pre = "pre"  # Before the branch.
    post = "post"  # After the sum.


class ResidualLayer(Layer):
    """What encoder and decoder layers share: branches that are added to what they read."""

    class Params(Layer.Params):
        """Width, norm and dropout of every branch."""

        model_dim: int = REQUIRED  # D: width of inputs and outputs; the parent sets it.
        norm_position: NormPosition = NormPosition.pre  # Where the norm of a branch stands.
        dropout: float = 0.0  # Share of each branch's outputs dropped in training.
        norm: LayerNorm.Params = LayerNorm.Params()  # Of every branch.
        attention: SelfAttention.Params = SelfAttention.Params()  # Self-attention.
        feed_forward: FeedForward.Params = FeedForward.Params()  # Last of the branches.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_size(self, "model_dim")
            yield from check_rate(self, "dropout")

        def branches(self) -> dict[str, Layer.Params]:
            """Params of each branch by name, in order, `model_dim` handed down."""
            return {
                "attention": self.attention.copy(model_dim=self.model_dim),
                "feed_forward": self.feed_forward.copy(model_dim=self.model_dim),
            }

        def children(self) -> dict[str, Layer.Params]:
            found: dict[str, Layer.Params] = {}
            for name, branch in self.branches().items():
                found[f"{name}_norm"] = self.norm.copy(model_dim=self.model_dim)
                found[name] = branch
            found["residual_dropout"] = Dropout.Params(rate=self.dropout)
            return found

        def sum_of_branches(
            self, inputs: Mapping[str, Any], target: Spec, batch: Mapping[str, Spec] | None
        ) -> Cost:
            """Cost of all branches with their norms, dropouts and sums.

            Args:
              inputs: name of a branch -> specs of what it reads.
              target: spec of what a branch returns and is added to.
              batch: as in `cost`.
            """
            children = self.children()
            dropout = children["residual_dropout"].cost(target, batch)
            mask_bytes = target.elements if self.dropout else 0
            # A sum is not kept: what follows it is a norm, which keeps what it makes of it.
            flops = working = waiting = 0
            kept = 0
            for name, read in inputs.items():
                norm = children[f"{name}_norm"].cost(target, batch)
                branch = children[name].cost(read, batch)
                flops += norm.flops + branch.flops + dropout.flops + target.elements
                # Dropout and sum need no values to be derived, so a branch's outputs go.
                kept += norm.activation_bytes + branch.activation_bytes - target.bytes + mask_bytes
                parts = (norm.working_bytes, branch.working_bytes, dropout.working_bytes)
                working = max(working, *(part or 0 for part in parts))
                waiting += branch.waiting_bytes or 0
            # What goes past a branch waits for it.
            return Cost(flops, target, kept, working + target.bytes, waiting)

    params: Params
    attention_norm: LayerNorm
    attention: SelfAttention
    feed_forward_norm: LayerNorm
    feed_forward: FeedForward
    residual_dropout: Dropout

    def residual(
        self,
        inputs: tf.Tensor,
        norm: LayerNorm,
        branch: Callable[[tf.Tensor], tf.Tensor],
        context: Context,
    ) -> tf.Tensor:
        """Adds a branch's outputs to its inputs [B, T, D], with norm and dropout where due."""
        if self.params.norm_position is NormPosition.pre:
            return inputs + self.residual_dropout(branch(norm(inputs, context)), context)
        return norm(inputs + self.residual_dropout(branch(inputs), context), context)

    def apply_feed_forward(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        """The last branch, on [B, T, D]."""
        return self.residual(
            inputs, self.feed_forward_norm, lambda x: self.feed_forward(x, context), context
        )


class EncoderLayer(ResidualLayer):
    """Self-attention and feed-forward: floats [B, S, D] -> [B, S, D]."""

    class Params(ResidualLayer.Params):
        """Those of every Transformer layer."""

        def cost(self, inputs: Spec, batch: Mapping[str, Spec] | None = None) -> Cost:
            read = {"attention": inputs, "feed_forward": inputs}
            return self.sum_of_branches(read, inputs, batch)

    params: Params

    def __call__(
        self, inputs: tf.Tensor, context: Context, *, paddings: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Encodes each position by what it sees of the others.

        Args:
          inputs: floats [B, S, D] in the compute dtype.
          context: the circumstances of the call.
          paddings: bool [B, S], True at positions that none may see.
        """

        def attend(x: tf.Tensor) -> tf.Tensor:
            return self.attention(x, context, paddings=paddings)

        outputs = self.residual(inputs, self.attention_norm, attend, context)
        return self.apply_feed_forward(outputs, context)


class DecoderLayer(ResidualLayer):
    """Causal self-attention, attention to the source, feed-forward: [B, T, D] -> [B, T, D]."""

    class Params(ResidualLayer.Params):
        """Those of every Transformer layer, and the attention to the source."""

        cross_attention: CrossAttention.Params = CrossAttention.Params()  # Attends to the source.

        def branches(self) -> dict[str, Layer.Params]:
            dim = self.model_dim
            return {
                "attention": self.attention.copy(model_dim=dim, masking=Masking.causal),
                "cross_attention": self.cross_attention.copy(model_dim=dim),
                "feed_forward": self.feed_forward.copy(model_dim=dim),
            }

        def cost(self, inputs: Mapping[str, Spec], batch: Mapping[str, Spec] | None = None) -> Cost:
            target = inputs["target"]
            read = {"attention": target, "cross_attention": inputs, "feed_forward": target}
            return self.sum_of_branches(read, target, batch)

    params: Params
    cross_attention_norm: LayerNorm
    cross_attention: CrossAttention

    def __call__(
        self,
        inputs: Mapping[str, tf.Tensor],
        context: Context,
        *,
        source_paddings: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Decodes each target position from those before it and from the source.

        Args:
          inputs: 'target' floats [B, T, D] and 'source' floats [B, S, D], in the compute dtype;
            the source is read as it is, already normalised.
          context: the circumstances of the call.
          source_paddings: bool [B, S], True at source positions that none may see.

        Returns:
          Floats [B, T, D], the target.
        """

        def attend(x: tf.Tensor) -> tf.Tensor:
            return self.attention(x, context)

        def attend_to_source(x: tf.Tensor) -> tf.Tensor:
            pair = {"target": x, "source": inputs["source"]}
            return self.cross_attention(pair, context, paddings=source_paddings)

        outputs = self.residual(inputs["target"], self.attention_norm, attend, context)
        outputs = self.residual(outputs, self.cross_attention_norm, attend_to_source, context)
        return self.apply_feed_forward(outputs, context)

    def step(
        self,
        inputs: tf.Tensor,
        context: Context,
        *,
        cache: Mapping[str, tf.Tensor],
        memory: Mapping[str, tf.Tensor],
        source_paddings: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Decodes new target positions, given what earlier ones left behind.

        Args:
          inputs: floats [rows, t, D], the new positions; t is 1 in most searches.
          context: the circumstances of the call.
          cache: of the positions before, first from `attention.initial_cache`.
          memory: of the source, from `cross_attention.remember`.
          source_paddings: bool [rows, S], True at source positions that none may see.

        Returns:
          Floats [rows, t, D], and the cache with the new positions added.
        """
        grown: dict[str, tf.Tensor] = {}

        def extend(x: tf.Tensor) -> tf.Tensor:
            outputs, cache_after = self.attention.extend(x, context, cache=cache)
            grown.update(cache_after)
            return outputs

        def recall(x: tf.Tensor) -> tf.Tensor:
            return self.cross_attention.recall(x, context, memory=memory, paddings=source_paddings)

        outputs = self.residual(inputs, self.attention_norm, extend, context)
        outputs = self.residual(outputs, self.cross_attention_norm, recall, context)
        return self.apply_feed_forward(outputs, context), grown
