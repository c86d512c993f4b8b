"""BatchNorm: gives every feature mean 0 and variance 1 over the examples, then scale and bias.

Source: Ioffe and Szegedy 2015, algorithms 1 and 2. In training each micro-batch is normalised by
its own moments. Outside training moving averages stand in for them, so that an example's outputs
do not depend on its neighbours. They follow the moments of the whole mini-batch, which are put
together from what its micro-batches report, once a step.

What is reported are sums of distances from the moving mean, and of their squares. That mean is the
same for all micro-batches of a step, so the sums may be added; and the variance, a difference of
two of them, keeps its digits where features lie far from 0.

As in LayerNorm the derivative is written out by hand, and keeps one tensor of the inputs' size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.initializers import constant
from lingpipe.base.layer import Weight
from lingpipe.base.spec import Spec
from lingpipe.base.state import StatefulLayer
from lingpipe.hyperparams import REQUIRED
from lingpipe.layers.checks import check_positive, check_size
from lingpipe.layers.precision import at_least_float32


class BatchNorm(StatefulLayer):
    """Normalises floats [..., model_dim] over all dimensions but the last, in float32 at least.

    A micro-batch with one row in all normalises to 0. The variance is the mean of squares, as in
    normalising, not the larger estimate that divides by n - 1.
    """

    class Params(StatefulLayer.Params):
        """Width, the pace of the moving averages, and what follows the normalisation."""

        model_dim: int = REQUIRED  # Width of inputs and outputs; the parent sets it.
        momentum: float = 0.99  # Share of a moving average that a step keeps (as in Keras).
        epsilon: float = 1e-3  # Added to the variance.
        use_scale: bool = True  # Whether outputs are multiplied by a scale, initially 1.
        use_bias: bool = True  # Whether a bias, initially 0, is added.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_size(self, "model_dim")
            yield from check_positive(self, "epsilon")
            if not 0.0 <= self.momentum < 1.0:
                yield (
                    "momentum",
                    f"momentum ({self.momentum}) must be at least 0 and less than 1; at 0.99 a "
                    "step moves the averages by a hundredth.",
                )

        def weights(self) -> dict[str, Weight]:
            shape = (self.model_dim,)
            found = {}
            if self.use_scale:
                found["scale"] = Weight(shape, constant(1.0))
            if self.use_bias:
                found["bias"] = Weight(shape, constant(0.0))
            found["moving_mean"] = Weight(shape, constant(0.0), trainable=False)
            found["moving_variance"] = Weight(shape, constant(1.0), trainable=False)
            return found

        def cost(self, inputs: Spec, batch: Mapping[str, Spec] | None = None) -> Cost:
            normalised = 4 * inputs.elements  # Kept for the backward pass, in float32.
            kept, working = normalised + inputs.bytes, 3 * normalised
            return Cost(8 * inputs.elements, inputs, kept, working, waiting_bytes=0)

    params: Params
    scale: tf.Variable
    bias: tf.Variable
    moving_mean: tf.Variable
    moving_variance: tf.Variable

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        """Floats [..., model_dim] -> the same shape and dtype.

        A parent freezes the layer in training, moving averages and all, by handing it
        `dataclasses.replace(context, training=False)`.
        """
        wide = at_least_float32(inputs)
        if context.training:
            mean, variance = _moments(tf.stop_gradient(wide))
            self._report(wide, mean, variance, context)
            outputs = _normalise_by_own(wide, mean, variance, self.params.epsilon)
        else:
            mean = tf.cast(self.moving_mean, wide.dtype)
            variance = tf.cast(self.moving_variance, wide.dtype)
            outputs = (wide - mean) * tf.math.rsqrt(variance + self.params.epsilon)
        if self.params.use_scale:
            outputs *= tf.cast(self.scale, wide.dtype)
        if self.params.use_bias:
            outputs += tf.cast(self.bias, wide.dtype)
        return tf.cast(outputs, inputs.dtype)

    def new_state(self, totals: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Moving averages after a mini-batch whose totals are those of `_report`."""
        shift = totals["distances"] / totals["rows"]  # [D], the mini-batch's mean - moving_mean.
        variance = tf.nn.relu(totals["squares"] / totals["rows"] - tf.square(shift))
        pace = 1.0 - self.params.momentum
        return {
            "moving_mean": self.moving_mean + pace * shift,
            "moving_variance": self.moving_variance + pace * (variance - self.moving_variance),
        }

    def _report(
        self, inputs: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, context: Context
    ) -> None:
        """Reports the number of rows and the sums of distances from the moving mean, [D] each."""
        rows = tf.cast(_num_rows(inputs), mean.dtype)
        shift = mean - tf.cast(self.moving_mean, mean.dtype)
        sums = {
            "rows": rows,
            "distances": rows * shift,
            "squares": rows * (variance + tf.square(shift)),
        }
        context.report_statistics(self.weights_path, sums)


def _normalise_by_own(
    inputs: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, epsilon: float
) -> tf.Tensor:
    """`(inputs - mean) / sqrt(variance + epsilon)`, where mean and variance [D] are its own.

    Their derivatives are part of its derivative (Ioffe and Szegedy 2015, section 3).
    """
    inverse = tf.math.rsqrt(variance + epsilon)

    @tf.custom_gradient
    def function(inputs: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        normalised = (inputs - mean) * inverse

        def gradient(outputs: tf.Tensor) -> tf.Tensor:
            slope = _mean(outputs * normalised)
            return inverse * (outputs - _mean(outputs) - normalised * slope)

        return normalised, gradient

    return function(inputs)


def _moments(inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of each feature: [..., D] -> [D], [D]."""
    mean = _mean(inputs)
    return mean, _mean(tf.square(inputs - mean))


def _mean(tensor: tf.Tensor) -> tf.Tensor:
    """[..., D] -> [D]."""
    return tf.reduce_mean(tensor, axis=list(range(tensor.shape.rank - 1)))


def _num_rows(inputs: tf.Tensor) -> tf.Tensor:
    """Number of rows of [..., D], int64."""
    return tf.reduce_prod(tf.shape(inputs, out_type=tf.int64)[:-1])
