"""Optimisers: how one float32 weight moves by its gradient, with the state it needs beside it.

An optimiser owns no variable. It says which slots a weight has (`slot_names`) and how these start
(`slots`), and updates weight and slots in place (`update`) with one fused kernel of TensorFlow: one
pass over memory, and on a CPU as fast as a rule compiled by XLA. Whatever depends on time comes in
with the step, so weights, slots and the step are all that a checkpoint needs to go on bit for bit.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import Parameterized


class Optimizer(Parameterized, abc.ABC):
    """Base of all optimisers."""

    class Params(Parameterized.Params):
        """The params of an optimiser; each kind adds its own fields."""

    def __init__(self, params: Params) -> None:
        """Keeps the params; they are checked when built."""
        self.params = params

    @property
    @abc.abstractmethod
    def slot_names(self) -> tuple[str, ...]:
        """Names of the slots that every weight has, each as large as the weight."""

    def slots(self, variable: tf.Variable) -> dict[str, tf.Tensor]:
        """Initial values of a weight's slots by name: zeros of its shape, on the current device."""
        return {name: tf.zeros(variable.shape, variable.dtype) for name in self.slot_names}

    @abc.abstractmethod
    def update(
        self,
        variable: tf.Variable,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Variable],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """Moves one weight and its slots in place; called inside a `tf.function`.

        Args:
          variable: float32 weight.
          gradient: dense float32 tensor of the weight's shape.
          slots: the weight's slots by name, on its device.
          learning_rate: float32 scalar.
          step: integer scalar, the number of this update; the first is 1.
        """


class Adam(Optimizer):
    """Adam, algorithm 1 of Kingma & Ba 2015.

    Epsilon stands beside the root of the bias-corrected second moment, as in the algorithm and in
    PyTorch. Keras puts it beside the uncorrected root, where in early steps it weighs up to
    1 / sqrt(1 - beta_2) times more; the two agree wherever epsilon is small against the gradients.
    """

    class Params(Optimizer.Params):
        """Decay of the moments; the Transformer of 2017 uses beta_2 = 0.98, epsilon = 1e-9."""

        beta_1: float = 0.9  # Decay of the mean of gradients.
        beta_2: float = 0.999  # Decay of the mean of squared gradients.
        epsilon: float = 1e-8  # Added to the root of the mean of squares.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            """Decays outside [0, 1), or no epsilon."""
            for field in ("beta_1", "beta_2"):
                value = getattr(self, field)
                if not 0 <= np.float32(value) < 1:
                    yield field, f"{field} ({value}) must be in [0, 1), also as a float32."
            if not 0 < np.float32(self.epsilon) < np.inf:
                yield "epsilon", f"epsilon ({self.epsilon}) must be greater than 0, as a float32."

    params: Params

    @property
    def slot_names(self) -> tuple[str, ...]:
        """`m` and `v`: running means of the gradient and of its square."""
        return "m", "v"

    def update(
        self,
        variable: tf.Variable,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Variable],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """See the base class. m and v first, then the weight by their bias-corrected ratio."""
        params = self.params
        beta_2_power = _power(params.beta_2, step)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=slots["m"].handle,
            v=slots["v"].handle,
            beta1_power=_power(params.beta_1, step),
            beta2_power=beta_2_power,
            lr=learning_rate,
            beta1=params.beta_1,
            beta2=params.beta_2,
            # The kernel divides by sqrt(v) + epsilon and multiplies by sqrt(1 - beta_2_power);
            # scaled like this, its epsilon is that of algorithm 1.
            epsilon=params.epsilon * tf.sqrt(1.0 - beta_2_power),
            grad=gradient,
        )


class Momentum(Optimizer):
    """Stochastic gradient descent, with a velocity where momentum is not zero.

    `velocity = momentum * velocity + gradient`, then `weight -= learning_rate * velocity`: the
    learning rate stands outside the velocity, so that a change of rate acts at once (Goyal et al.
    2017, eqs. 9 and 10). With `nesterov`, `weight -= learning_rate * (gradient + momentum *
    velocity)`, the look-ahead of Sutskever et al. 2013 in the form of PyTorch and Keras.
    """

    class Params(Optimizer.Params):
        """Plain gradient descent by default."""

        momentum: float = 0.0  # Decay of the velocity; 0 keeps none, and no slot for it.
        nesterov: bool = False  # Whether the gradient is looked up one step ahead.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            """Momentum outside [0, 1), or none to look ahead with."""
            if not 0 <= np.float32(self.momentum) < 1:
                yield (
                    "momentum",
                    f"momentum ({self.momentum}) must be in [0, 1), also as a float32.",
                )
            if self.nesterov and self.momentum == 0:
                yield "nesterov", "nesterov needs a momentum greater than 0, for example 0.9."

    params: Params

    @property
    def slot_names(self) -> tuple[str, ...]:
        """`velocity`, or none without momentum."""
        return ("velocity",) if self.params.momentum else ()

    def update(
        self,
        variable: tf.Variable,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Variable],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """See the base class; the step does not matter."""
        del step
        if not self.params.momentum:
            tf.raw_ops.ResourceApplyGradientDescent(
                var=variable.handle, alpha=learning_rate, delta=gradient
            )
            return
        tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=slots["velocity"].handle,
            lr=learning_rate,
            grad=gradient,
            momentum=self.params.momentum,
            use_nesterov=self.params.nesterov,
        )


def _power(beta: float, step: tf.Tensor) -> tf.Tensor:
    """`beta ** step` as a float32 scalar, for the beta that a float32 kernel sees.

    At step 1 the result is that beta itself, to the bit: the kernel's 1 - beta and 1 - power must
    cancel, and 1 - 0.999 keeps only four digits of a float32. Hence float64 in between; the last
    bits of a float32 power (up to 4 ulp on a GPU) would be 1e-4 of the first update.
    """
    power = tf.pow(tf.constant(np.float32(beta), tf.float64), tf.cast(step, tf.float64))
    return tf.cast(power, tf.float32)
