"""The learner's part of a stage: optimiser slots, the gradient's norm and the update.

It works on what a `Stage` accumulated in a step, on the stage's device. Its functions are traced
when it is made, so that an optimiser that cannot be traced is found out before the first step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from lingpipe.learner.clipping import squared_norm
from lingpipe.learner.learner import Learner
from lingpipe.pipeline.shared_weights import SharedWeights
from lingpipe.pipeline.stage import Stage

# Weights of so many numbers are updated two at a time.
_LARGE = 2**14


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
          owned: path -> variable of the weights that this stage updates; those of which it holds
            copies are updated where they are owned.
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
                weight, gradient = {path: self._owned[path]}, stage.accumulators[path] * factor
                learner.apply(weight, {path: gradient}, self.slots, learning_rate, step)

            # Each large one waits for the last but one: so there are never more scaled gradients
            # and fresh sums than two beside the weights. Among small ones waiting costs more.
            before: list[list[tf.Operation]] = [[], []]
            for path, weight in self._owned.items():
                is_large = weight.shape.num_elements() >= _LARGE
                moved = _run_after(before[0] if is_large else [], functools.partial(move, path))
                cleared = _run_after(
                    moved, functools.partial(_fill, stage.accumulators[path], zero)
                )
                if is_large:
                    before = [before[1], cleared]
            for path, accumulator in stage.accumulators.items():
                if path not in self._owned:
                    _fill(accumulator, zero)

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


def build_learners(
    replicas: Sequence[Sequence[Stage]], shared: SharedWeights, learner: Learner
) -> list[list[StageLearner]]:
    """For each replica the learner of each stage, with the weights that the stage owns."""
    return [
        [StageLearner(stage, learner, shared.owned_by(stage)) for stage in stages]
        for stages in replicas
    ]


def _fill(variable: tf.Variable, value: tf.Tensor) -> None:
    """Sets every element to a scalar that the trace does not know.

    Zeros that it knows become constants, which stay in memory beside the variables for ever.
    """
    variable.assign(tf.fill(variable.shape, value))


def _run_after(before: Sequence[tf.Operation], make: Callable[[], None]) -> list[tf.Operation]:
    """Makes operations that wait for others, in a graph; returns those with side effects."""
    graph = tf.compat.v1.get_default_graph()
    count = len(graph.get_operations())
    with tf.control_dependencies(before):
        make()
    return [op for op in graph.get_operations()[count:] if op.op_def.is_stateful]
