"""Linear: a matrix product over the last dimension, and a bias.

All leading dimensions are folded into one, so that forward and both gradients are each one matrix
product of two dimensions. A batched product with a broadcast kernel computes the kernel's gradient
once for every example and adds those up: measured 1.6 to 1.9 times slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.initializers import constant, xavier_uniform
from lingpipe.base.layer import Layer, Weight
from lingpipe.base.spec import Spec
from lingpipe.hyperparams import REQUIRED
from lingpipe.layers.checks import check_positive
from lingpipe.layers.precision import at_least_float32


class Linear(Layer):
    """`inputs @ kernel + bias`: floats [..., input_dim] -> [..., output_dim]."""

    class Params(Layer.Params):
        """Dimensions and initial width."""

        input_dim: int = REQUIRED  # Width of the inputs; the parent sets it.
        output_dim: int = REQUIRED  # Width of the outputs.
        use_bias: bool = True  # Whether a bias, initially 0, is added.
        gain: float = 1.0  # Factor on the initial kernel, which is Xavier's uniform.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_positive(self, "input_dim", "output_dim")

        def weights(self) -> dict[str, Weight]:
            start = xavier_uniform(self.input_dim, self.output_dim, self.gain)
            found = {"kernel": Weight((self.input_dim, self.output_dim), start)}
            if self.use_bias:
                found["bias"] = Weight((self.output_dim,), constant(0.0))
            return found

        def cost(self, inputs: Spec, batch: Mapping[str, Spec] | None = None) -> Cost:
            outputs = inputs.replace_last(self.output_dim)
            bias = outputs.elements if self.use_bias else 0
            flops = 2 * inputs.elements * self.output_dim + bias
            # Gradients of both ends and, in float32, of the kernel.
            working = inputs.bytes + outputs.bytes + 4 * self.input_dim * self.output_dim
            return Cost(flops, outputs, outputs.bytes, working, waiting_bytes=outputs.bytes)

    params: Params
    kernel: tf.Variable
    bias: tf.Variable

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        """Floats [..., input_dim] in the compute dtype -> [..., output_dim]."""
        rows = tf.reshape(inputs, [-1, self.params.input_dim])
        outputs = tf.matmul(rows, context.cast(self.kernel))
        if self.params.use_bias:
            outputs = _add_bias(outputs, tf.convert_to_tensor(self.bias))
        return unfold(outputs, inputs)


def _add_bias(rows: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Adds a float32 bias [E] to rows [n, E]; its gradient is added up in float32 at least.

    On a CPU the derivative of `tf.nn.bias_add` adds bfloat16 up in bfloat16, where a sum of ones
    ends at 256.
    """
    if rows.dtype.size >= 4:
        return tf.nn.bias_add(rows, tf.cast(bias, rows.dtype))

    @tf.custom_gradient
    def function(
        rows: tf.Tensor, bias: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        def gradient(outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return outputs, tf.raw_ops.BiasAddGrad(out_backprop=at_least_float32(outputs))

        return tf.nn.bias_add(rows, tf.cast(bias, rows.dtype)), gradient

    return function(rows, bias)


def unfold(rows: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Gives `rows` [n, E] the leading dimensions of `like` [..., D], known ones known: [..., E]."""
    if like.shape.rank == 2:
        return rows
    width = rows.shape[-1]
    outputs = tf.reshape(rows, tf.concat([tf.shape(like)[:-1], [width]], axis=0))
    outputs.set_shape([*like.shape[:-1], width])
    return outputs
