"""The learner's part of a stage: optimiser slots, the gradient's norm and the update.

It works on what a `Stage` accumulated in a step, on the stage's device. Its functions are traced
when it is made, so that an optimiser that cannot be traced is found out before the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

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
        scalar, counter = tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int64)

        @tf.function(input_signature=[], autograph=False)
        def norm() -> tf.Tensor:
            return squared_norm([stage.accumulators[path] for path in self._owned])

        @tf.function(input_signature=[scalar, scalar, counter, scalar], autograph=False)
        def update(
            factor: tf.Tensor, learning_rate: tf.Tensor, step: tf.Tensor, zero: tf.Tensor
        ) -> None:
            def move(path: str) -> None:
                accumulator, weight = stage.accumulators[path], {path: self._owned[path]}
                gradient = {path: accumulator * factor}
                learner.apply(weight, gradient, self.slots, learning_rate, step)
                _fill(accumulator, zero)

            _two_at_a_time(self._owned, move)
            for path in stage.accumulators.keys() - self._owned.keys():
                _fill(stage.accumulators[path], zero)

        @tf.function(input_signature=[scalar], autograph=False)
        def clear(zero: tf.Tensor) -> None:
            for accumulator in stage.accumulators.values():
                _fill(accumulator, zero)

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
                tf.zeros([]),
            )
            self._stage.state.update()

    def clear(self) -> None:
        """Sets the accumulators to zero and forgets the statistics."""
        with tf.device(self._stage.device):
            self._clear(tf.zeros([]))
        self._stage.state.clear()


def _fill(variable: tf.Variable, value: tf.Tensor) -> None:
    """Sets every element to a scalar that the trace does not know.

    Zeros that it knows become constants, which stay in memory beside the variables for ever.
    """
    variable.assign(tf.fill(variable.shape, value))


def _two_at_a_time(paths: Iterable[str], move: Callable[[str], None]) -> None:
    """Calls `move` for each path, in a graph; what it makes there waits for the last but one.

    So there are never more scaled gradients than two beside the weights.
    """
    graph = tf.compat.v1.get_default_graph()
    before: list[list[tf.Operation]] = [[], []]
    for path in paths:
        count = len(graph.get_operations())
        with tf.control_dependencies(before[0]):
            move(path)
        made = [op for op in graph.get_operations()[count:] if op.op_def.is_stateful]
        before = [before[1], made]
