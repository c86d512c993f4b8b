"""What a stage's cells returned while they were traced, and what of it the function returns.

Its function leaves out what is passed on and what nobody reads. But it must return something that
waits for the cells' side effects, or they would not happen; see `effects.with_effects`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.pipeline.effects import before_effects
from lingpipe.pipeline.passing import passed_on
from lingpipe.pipeline.routes import Demand, StageLeaves


@dataclasses.dataclass(frozen=True)
class TracedOutputs:
    """Tensors of the graph under construction; all wait for the side effects of the cells.

    Attributes:
      outputs: nested, what the last cell returned.
      statistics: a vector of what layers with state report in training, if any does.
      waits: a tensor that does nothing but wait.
    """

    outputs: Any
    statistics: list[tf.Tensor]
    waits: tf.Tensor

    @property
    def flat(self) -> list[tf.Tensor]:
        """The outputs, flattened."""
        return tf.nest.flatten(self.outputs)

    def leaves(self, inputs: Sequence[tf.Tensor], demand: Demand, *, all_new: bool) -> StageLeaves:
        """Which outputs are passed on, and which are new and read.

        Args:
          inputs: flat inputs of the stage.
          demand: says which outputs are read.
          all_new: True if nothing is to be passed on, since the outputs are the result.
        """
        flat = self.flat
        passed: list[int | None] = [None] * len(flat)
        if not all_new:
            passed = passed_on([before_effects(tensor) for tensor in flat], inputs)
        makes = [i for i, source in enumerate(passed) if source is None]
        if demand.read is not None:
            makes = [i for i in makes if i in demand.read]
        return StageLeaves(tuple(passed), makes=tuple(makes))

    def ends(self, leaves: StageLeaves, demand: Demand, *, only_loss: bool) -> list[int]:
        """Positions of the outputs from which the backward pass starts.

        Args:
          leaves: what `leaves` returned.
          demand: says for which outputs a gradient is given.
          only_loss: True for the last stage.
        """
        if only_loss:
            return [i for i, tensor in enumerate(self.flat) if tensor is self.outputs["loss"]]
        return [i for i in floats(self.flat, demand.given) if i in leaves.makes]

    def results(
        self, leaves: StageLeaves
    ) -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
        """What the function returns: new leaves, statistics, and `waits` if nothing else does."""
        flat = self.flat
        made = [flat[i] for i in leaves.makes]
        has_effects = bool(self.waits.op.control_inputs)
        is_needed = has_effects and not made and not self.statistics
        return made, self.statistics, [self.waits] if is_needed else []


def floating(structure: Any) -> list[tf.Tensor]:
    """The floating tensors of a nested structure, flattened."""
    return [tensor for tensor in tf.nest.flatten(structure) if tensor.dtype.is_floating]


def floats(tensors: Sequence[tf.Tensor], among: Collection[int] | None = None) -> list[int]:
    """Positions of the floating tensors, of all or of those that are named."""
    positions = range(len(tensors)) if among is None else sorted(among)
    return [i for i in positions if tensors[i].dtype.is_floating]
