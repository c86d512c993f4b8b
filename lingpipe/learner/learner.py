"""The learner: from gradients to weights, given an optimiser, a schedule and a clipping limit.

The pipeline asks it for three things. `create_slots` makes a stage's optimiser slots beside the
weights; `apply`, traced once inside the stage's update function, moves them; `learning_rate` gives
the rate of a step on the host. Clipping is split between stages and host (see clipping.py), so the
learner only carries its limit: the gradients that it gets are already divided and clipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, Parameterized
from lingpipe.learner.loss_scale import LossScale
from lingpipe.learner.optimizers import Adam, Optimizer
from lingpipe.learner.schedules import LearningRateSchedule


class Learner(Parameterized):
    """How a model learns.

    Attributes:
      params: the frozen params; the pipeline reads `clip_global_norm` here.
      optimizer: the rule that moves one weight.
      schedule: learning rate by step.
      loss_scale: what gradients are multiplied by on their way, where that is float16.
    """

    class Params(Parameterized.Params):
        """Optimiser, schedule, clipping and loss scale."""

        optimizer: Optimizer.Params = Adam.Params()  # The rule that moves one weight.
        schedule: LearningRateSchedule.Params = REQUIRED  # Learning rate by step.
        # Highest norm of the whole gradient, over all stages; larger ones are scaled down to it.
        # None: no limit.
        clip_global_norm: float | None = None
        # What keeps small gradients in float16; in other dtypes nothing is scaled.
        loss_scale: LossScale.Params = LossScale.Params()

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            """A clipping limit that is none."""
            limit = self.clip_global_norm
            if limit is not None and not (math.isfinite(limit) and limit > 0):
                yield (
                    "clip_global_norm",
                    f"clip_global_norm ({limit}) must be a finite number greater than 0; use None "
                    "for no clipping.",
                )

    def __init__(self, params: Params) -> None:
        """Builds optimiser, schedule and loss scale; `params.build()` is the usual way here."""
        self.params = params
        self.optimizer: Optimizer = params.optimizer.build()
        self.schedule: LearningRateSchedule = params.schedule.build()
        self.loss_scale: LossScale = params.loss_scale.build()

    def learning_rate(self, step: int) -> float:
        """The learning rate of update `step`; the first is 1.

        Raises:
          ValueError: step is less than 1.
        """
        return self.schedule.learning_rate(step)

    def create_slots(self, variables: Mapping[str, tf.Variable]) -> dict[str, tf.Variable]:
        """Makes the optimiser's slots, each on the device of its weight.

        Args:
          variables: path of the weight -> float32 variable.

        Returns:
          `<path of the weight>/<slot>` -> variable, in the order of `variables`.

        Raises:
          TypeError: a weight is not float32.
        """
        slots: dict[str, tf.Variable] = {}
        for path, variable in variables.items():
            if variable.dtype != tf.float32:
                raise TypeError(
                    f"Weight {path!r} is {variable.dtype.name}; learners move float32 weights "
                    "only. Keep the weight in float32 and cast it where it is used."
                )
            with tf.device(variable.device):
                for name, value in self.optimizer.slots(variable).items():
                    full = _slot_path(path, name)
                    slots[full] = tf.Variable(value, trainable=False, name=full)
        return slots

    def apply(
        self,
        variables: Mapping[str, tf.Variable],
        gradients: Mapping[str, tf.Tensor],
        slots: Mapping[str, tf.Variable],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """Moves every weight of a stage by its gradient; traced inside the stage's function.

        Args:
          variables: path of the weight -> float32 variable.
          gradients: path of the weight -> dense float32 gradient of the weight's shape, divided by
            the weight of the mini-batch and clipped; those of other paths are not used.
          slots: what `create_slots` made for these variables.
          learning_rate: float32 scalar.
          step: integer scalar, the number of this update; the first is 1.

        Raises:
          ValueError: a weight has no gradient, or one of another shape.
          TypeError: a gradient is sparse or not float32.
        """
        for path, variable in variables.items():
            gradient = gradients.get(path)
            _check_gradient(path, variable, gradient)
            own = {name: slots[_slot_path(path, name)] for name in self.optimizer.slot_names}
            self.optimizer.update(variable, gradient, own, learning_rate, step)


def _slot_path(path: str, slot: str) -> str:
    """Full name of a weight's slot."""
    return f"{path}/{slot}"


def _check_gradient(path: str, variable: tf.Variable, gradient: tf.Tensor | None) -> None:
    """Raises unless `gradient` can be applied to the weight at `path`."""
    if gradient is None:
        raise ValueError(
            f"Weight {path!r} has no gradient. Give zeros if the loss does not depend on it, or "
            "leave it out of the variables if it is not trained."
        )
    if isinstance(gradient, tf.IndexedSlices) or gradient.dtype != tf.float32:
        kind = "sparse" if isinstance(gradient, tf.IndexedSlices) else gradient.dtype.name
        raise TypeError(
            f"The gradient of weight {path!r} is {kind}; it must be a dense float32 tensor. "
            "Use tf.convert_to_tensor or tf.cast."
        )
    if not gradient.shape.is_compatible_with(variable.shape):
        raise ValueError(
            f"The gradient of weight {path!r} has shape {tuple(gradient.shape)}, the weight "
            f"{tuple(variable.shape)}."
        )
