"""LayerNorm: gives every position mean 0 and variance 1, then a learnt scale and bias.

Source: Ba, Kiros and Hinton 2016. Forward and backward are written out by hand: TensorFlow's
derivative of the composed operations keeps two more tensors of the size of the inputs and takes
1.4 times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.initializers import constant
from lingpipe.base.layer import Layer, Weight
from lingpipe.base.spec import Spec
from lingpipe.hyperparams import REQUIRED
from lingpipe.layers.checks import check_positive, check_size
from lingpipe.layers.precision import at_least_float32


class LayerNorm(Layer):
    """Normalises the last dimension of floats [..., model_dim], in float32 at least."""

    class Params(Layer.Params):
        """Width, and the guard against division by zero."""

        model_dim: int = REQUIRED  # Width of inputs and outputs; the parent sets it.
        epsilon: float = 1e-6  # Added to the variance.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_size(self, "model_dim")
            yield from check_positive(self, "epsilon")

        def weights(self) -> dict[str, Weight]:
            return {
                "scale": Weight((self.model_dim,), constant(1.0)),
                "bias": Weight((self.model_dim,), constant(0.0)),
            }

        def cost(self, inputs: Spec, batch: Mapping[str, Spec] | None = None) -> Cost:
            normalised = 4 * inputs.elements  # Kept for the backward pass, in float32.
            kept, working = normalised + inputs.bytes, 3 * normalised
            return Cost(8 * inputs.elements, inputs, kept, working, waiting_bytes=0)

    params: Params
    scale: tf.Variable
    bias: tf.Variable

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        """Floats [..., model_dim] -> the same shape and dtype."""
        wide = at_least_float32(inputs)
        scale, bias = tf.cast(self.scale, wide.dtype), tf.cast(self.bias, wide.dtype)
        return tf.cast(_normalise(wide, scale, bias, self.params.epsilon), inputs.dtype)


def _normalise(inputs: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor, epsilon: float) -> tf.Tensor:
    """`(inputs - mean) / sqrt(variance + epsilon) * scale + bias` over the last dimension."""

    @tf.custom_gradient
    def function(
        inputs: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
        centred = inputs - _mean(inputs)
        inverse = tf.math.rsqrt(_mean(tf.square(centred)) + epsilon)  # [..., 1]
        normalised = centred * inverse

        def gradient(outputs: tf.Tensor) -> tuple[tf.Tensor, ...]:
            inner = outputs * scale
            slope = _mean(inner * normalised)
            return (
                inverse * (inner - _mean(inner) - normalised * slope),
                _sum_of_rows(outputs * normalised),
                _sum_of_rows(outputs),
            )

        return normalised * scale + bias, gradient

    return function(inputs, scale, bias)


def _mean(tensor: tf.Tensor) -> tf.Tensor:
    """[..., D] -> [..., 1]."""
    return tf.reduce_mean(tensor, axis=-1, keepdims=True)


def _sum_of_rows(tensor: tf.Tensor) -> tf.Tensor:
    """[..., D] -> [D], by the operation that is made for gradients of biases."""
    return tf.raw_ops.BiasAddGrad(out_backprop=tensor)
