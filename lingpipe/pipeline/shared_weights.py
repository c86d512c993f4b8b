"""Weights that lie on several devices: on stages that share one, and on every replica.

An embedding tied to the softmax is a weight of two stages; with replicas every weight lies on each
of them. One stage of one replica owns it: there it has its optimiser slots and takes part in the
update. The others hold copies, so that their functions read it on their own device. After the last
backward pass the copies' gradients are added to the owner's; after the update the owner's value is
copied to them. All uses thus read equal values in every step.

            replica 0              replica 1
    w       owner:  g0 + g1  <---  copy:   g1        reduction
            update
            w'               --->  w'                broadcast

Of the stages that use a weight the first owns it. Of its replicas it is replica 0 for all of them,
or each for a share, so that each holds the slots of its share alone and all update at the same time
(ZeRO's first stage: Rajbhandari et al. 2020, section 5.1).

State, such as BatchNorm's moving moments, follows what all replicas report, on replica 0, and is
copied from there. It is not shared over stages: that is refused.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf

from lingpipe.base.layer import SharedWeightError, check_equal_declarations
from lingpipe.pipeline.shares import share_weights
from lingpipe.pipeline.stage import Stage

# A stage by replica and index.
_Home = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Copy:
    """One copy of a weight: `path`, the stage that owns it and the stage that holds the copy."""

    path: str
    owner: Stage
    holder: Stage

    def add_gradient_to_owner(self) -> None:
        """Adds the copy's accumulated gradient to the owner's."""
        if self.path in self.holder.accumulators:
            gradient = _value_of(self.holder.accumulators[self.path])
            total = self.owner.accumulators[self.path]
            tf.raw_ops.AssignAddVariableOp(resource=total.handle, value=gradient)

    def copy_from_owner(self) -> None:
        """Copies the owner's value."""
        value = _value_of(self.owner.variables[self.path])
        copy = self.holder.variables[self.path]
        tf.raw_ops.AssignVariableOp(resource=copy.handle, value=value)

    @property
    def moves(self) -> bool:
        """Whether a training step may change the weight."""
        layers = self.holder.state.layers
        return self.path in self.holder.trainable or any(
            self.path.startswith(f"{layer}/") for layer in layers
        )


class SharedWeights:
    """Who owns what, and the traffic between owners and copies.

    Attributes:
      owners: path of every weight -> the stage that owns it.
    """

    def __init__(self, replicas: Sequence[Sequence[Stage]], num_sharing: int) -> None:
        """Finds owners and copies; copies nothing yet.

        Args:
          replicas: the stages of each replica, in order.
          num_sharing: number of replicas that own a share of the weights each; the first ones.

        Raises:
          SharedWeightError: two stages declare a weight differently, or share a layer's state.
        """
        _check_state_is_not_shared(replicas[0])
        self.owners = _find_owners(replicas, num_sharing)
        self._replicas = replicas
        self._owned: dict[_Home, list[Copy]] = collections.defaultdict(list)
        self._held: dict[_Home, list[Copy]] = collections.defaultdict(list)
        for copy in _find_copies(replicas, self.owners):
            owner, holder = copy.owner, copy.holder
            self._owned[owner.replica, owner.index].append(copy)
            self._held[holder.replica, holder.index].append(copy)

    @property
    def any_copies(self) -> bool:
        """Whether any weight lies on more than one device."""
        return bool(self._held)

    @property
    def has_traffic(self) -> bool:
        """Whether a step ends with a reduction and a broadcast."""
        return self.any_copies or len(self._replicas) > 1

    @property
    def weights(self) -> dict[str, tf.Variable]:
        """Path of every weight -> its variable on the stage that owns it."""
        return {path: stage.variables[path] for path, stage in self.owners.items()}

    def owned_by(self, stage: Stage) -> dict[str, tf.Variable]:
        """Path -> variable of the trainable weights that a stage owns."""
        return {path: v for path, v in stage.trainable.items() if self.owners[path] is stage}

    def reduce(self, stage: Stage) -> None:
        """Adds to a stage's gradients and statistics those of the copies of what it owns.

        They are added up replica after replica and stage after stage, so that a run repeats.
        """
        with tf.device(stage.device):
            for copy in self._owned[stage.replica, stage.index]:
                copy.add_gradient_to_owner()
            if stage.replica == 0:
                for twins in self._replicas[1:]:
                    stage.state.add(twins[stage.index].state.take())

    def broadcast(self, stage: Stage) -> None:
        """Brings the copies on a stage up to date after an update."""
        with tf.device(stage.device):
            for copy in self._held[stage.replica, stage.index]:
                if copy.moves:
                    copy.copy_from_owner()

    def copy_all(self, stage: Stage) -> None:
        """Brings the copies on a stage up to date, those too that no step moves."""
        with tf.device(stage.device):
            for copy in self._held[stage.replica, stage.index]:
                copy.copy_from_owner()


def _value_of(variable: tf.Variable) -> tf.Tensor:
    """The value, on the variable's device.

    There are as many of these calls in a step as weights have copies, so they are the plain
    operations: each runs where its variable lies, and takes a fifth of the time of its method.
    """
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _find_owners(replicas: Sequence[Sequence[Stage]], num_sharing: int) -> dict[str, Stage]:
    """Path of every weight -> its owner: a trainable one's among the first replicas."""
    owners: dict[str, Stage] = {}
    for stage in replicas[0]:
        first_uses = [path for path in stage.variables if path not in owners]
        trainable = {path: stage.trainable[path] for path in first_uses if path in stage.trainable}
        sizes = {path: variable.shape.num_elements() for path, variable in trainable.items()}
        shares = share_weights(sizes, num_sharing)
        for path in first_uses:
            owners[path] = replicas[shares.get(path, 0)][stage.index]
    return owners


def _find_copies(
    replicas: Sequence[Sequence[Stage]], owners: Mapping[str, Stage]
) -> Iterator[Copy]:
    """Every copy of a weight on a stage that does not own it.

    Raises:
      SharedWeightError: two stages declare the weight differently.
    """
    for stages in replicas:
        for stage in stages:
            for path, variable in stage.variables.items():
                owner = owners[path]
                if owner is not stage:
                    check_equal_declarations(path, owner.variables[path], variable)
                    yield Copy(path, owner, stage)


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
