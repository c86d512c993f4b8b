"""FeedForward: two products with an activation in between, at every position alike.

Source: Vaswani et al. 2017, section 3.3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost, total_cost
from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec
from lingpipe.hyperparams import REQUIRED
from lingpipe.layers.activation import Activation, activate, tensors_kept
from lingpipe.layers.checks import check_positive, check_rate, check_size
from lingpipe.layers.dropout import Dropout
from lingpipe.layers.linear import Linear


class FeedForward(Layer):
    """Floats [..., model_dim] -> [..., hidden_dim] -> [..., model_dim]."""

    class Params(Layer.Params):
        """Dimensions and what happens to the hidden units."""

        model_dim: int = REQUIRED  # D: width of inputs and outputs; the parent sets it.
        hidden_dim: int = REQUIRED  # F: number of hidden units.
        activation: Activation = Activation.relu  # Applied to the hidden units.
        dropout: float = 0.0  # Share of hidden units dropped in training.
        depth_scale: float = 1.0  # Factor on both initial kernels; 1/layers steadies deep stacks.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_size(self, "model_dim", "hidden_dim")
            yield from check_positive(self, "depth_scale")
            yield from check_rate(self, "dropout")

        def children(self) -> dict[str, Layer.Params]:
            outer, inner, gain = self.model_dim, self.hidden_dim, self.depth_scale
            return {
                "hidden": Linear.Params(input_dim=outer, output_dim=inner, gain=gain),
                "hidden_dropout": Dropout.Params(rate=self.dropout),
                "output": Linear.Params(input_dim=inner, output_dim=outer, gain=gain),
            }

        def cost(self, inputs: Spec, batch: Mapping[str, Spec] | None = None) -> Cost:
            children = self.children()
            product = children["hidden"].cost(inputs)
            hidden = product.outputs
            kept = tensors_kept(self.activation, outputs_are_read=not self.dropout)
            activated = dataclasses.replace(
                product,
                flops=product.flops + hidden.elements,
                activation_bytes=kept * hidden.bytes,
            )
            dropped = children["hidden_dropout"].cost(hidden)
            output = children["output"].cost(hidden)
            return total_cost(activated, dropped, output, outputs=output.outputs)

    params: Params
    hidden: Linear
    hidden_dropout: Dropout
    output: Linear

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        """Floats [..., model_dim] in the compute dtype -> the same shape and dtype."""
        hidden = activate(self.params.activation, self.hidden(inputs, context))
        return self.output(self.hidden_dropout(hidden, context), context)
