"""Weights that are used on several stages, such as an embedding tied to the softmax.

The first stage that uses a weight owns it: there it has its optimiser slots and takes part in the
update. Other stages hold a mirror, so that their functions read it on their own device. After the
last backward pass the mirrors' gradients are added to the owner's; after the update the owner's
value is copied to the mirrors. The two uses thus read equal values in every step.

State, such as BatchNorm's moving moments, is not shared over stages: `find_mirrors` refuses it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import tensorflow as tf

from lingpipe.base.layer import SharedWeightError, check_equal_declarations
from lingpipe.pipeline.stage import Stage


@dataclasses.dataclass(frozen=True)
class Mirror:
    """One copy of a weight: `path`, the stage that owns it and the stage that holds the copy."""

    path: str
    owner: Stage
    holder: Stage

    def add_gradient_to_owner(self) -> None:
        """Adds the copy's accumulated gradient to the owner's."""
        if self.path not in self.holder.accumulators:
            return
        with tf.device(self.owner.device):
            gradient = tf.identity(self.holder.accumulators[self.path])
            self.owner.accumulators[self.path].assign_add(gradient)

    def copy_from_owner(self) -> None:
        """Copies the owner's value."""
        with tf.device(self.holder.device):
            value = tf.identity(self.owner.variables[self.path])
            self.holder.variables[self.path].assign(value)


def find_owners(stages: Sequence[Stage]) -> dict[str, Stage]:
    """Path of every weight -> the first stage that uses it."""
    owners: dict[str, Stage] = {}
    for stage in stages:
        for path in stage.variables:
            owners.setdefault(path, stage)
    return owners


def find_mirrors(stages: Sequence[Stage], owners: Mapping[str, Stage]) -> list[Mirror]:
    """Every copy of a weight on a stage that does not own it.

    Args:
      stages: the stages, in order.
      owners: what `find_owners` found.

    Raises:
      SharedWeightError: two stages declare the weight differently, or share a layer's state.
    """
    _check_state_is_not_shared(stages)
    mirrors = [
        Mirror(path, owners[path], stage)
        for stage in stages
        for path in stage.variables
        if owners[path] is not stage
    ]
    for mirror in mirrors:
        owned = mirror.owner.variables[mirror.path]
        check_equal_declarations(mirror.path, owned, mirror.holder.variables[mirror.path])
    return mirrors


def _check_state_is_not_shared(stages: Sequence[Stage]) -> None:
    """Refuses layers that follow one state from two stages.

    Each would see its part of the statistics alone, and the copies would drift apart.
    """
    homes: dict[str, Stage] = {}
    for stage in stages:
        for path, layer in stage.state.layers.items():
            home = homes.setdefault(path, stage)
            if home is not stage:
                raise SharedWeightError(
                    f"{home.state.layers[path].path!r} on stage {home.index} and {layer.path!r} on "
                    f"stage {stage.index} share the state at {path!r}; state stays on one stage. "
                    "Put both on one stage by pipeline.partition, or let them not share weights."
                )
