"""The learner's part of a stage: optimiser slots, the gradient's norm and the update.

It works on what a `Stage` accumulated in a step, on the stage's device. Its functions are traced
when it is made, so that an optimiser that cannot be traced is found out before the first step.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from lingpipe.learner.clipping import squared_norm
from lingpipe.learner.learner import Learner
from lingpipe.pipeline.stage import Stage


class StageLearner:
    """What ends a step on one stage.

    Attributes:
      slots: `<weight path>/<slot>` -> variable, beside the weights that this stage owns.
    """

    def __init__(self, stage: Stage, learner: Learner, owned: Mapping[str, tf.Variable]) -> None:
        """Makes the slots and traces.

        Args:
          stage: the stage; its accumulators hold the gradients.
          learner: optimiser.
          owned: path -> variable of the weights that this stage updates; those that it mirrors are
            updated where they are owned.
        """
        self._stage = stage
        self._owned = dict(owned)
        with tf.device(stage.device):
            self.slots = learner.create_slots(self._owned)
        scalar = tf.TensorSpec([], tf.float32)

        @tf.function(input_signature=[], autograph=False)
        def norm() -> tf.Tensor:
            return squared_norm([stage.accumulators[path] for path in self._owned])

        @tf.function(input_signature=[scalar, scalar, tf.TensorSpec([], tf.int64)], autograph=False)
        def update(factor: tf.Tensor, learning_rate: tf.Tensor, step: tf.Tensor) -> None:
            gradients = {path: stage.accumulators[path] * factor for path in self._owned}
            learner.apply(self._owned, gradients, self.slots, learning_rate, step)
            _set_to_zero(stage.accumulators)

        @tf.function(input_signature=[], autograph=False)
        def clear() -> None:
            _set_to_zero(stage.accumulators)

        with tf.device(stage.device):
            self._norm = norm.get_concrete_function()
            self._update = update.get_concrete_function()
            self._clear = clear.get_concrete_function()

    def squared_norm(self) -> float:
        """Sum of the squares of the accumulated gradients of the owned weights."""
        with tf.device(self._stage.device):
            return float(self._norm())

    def update(self, factor: float, learning_rate: float, step: int) -> None:
        """Applies the accumulated gradients times `factor`, and the statistics; clears both."""
        with tf.device(self._stage.device):
            self._update(
                tf.constant(factor, tf.float32),
                tf.constant(learning_rate, tf.float32),
                tf.constant(step, tf.int64),
            )
            self._stage.state.update()

    def clear(self) -> None:
        """Sets the accumulators to zero and forgets the statistics."""
        with tf.device(self._stage.device):
            self._clear()
        self._stage.state.clear()


def _set_to_zero(accumulators: Mapping[str, tf.Variable]) -> None:
    for accumulator in accumulators.values():
        accumulator.assign(tf.zeros_like(accumulator))
