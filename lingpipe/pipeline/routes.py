"""Which tensors go from which stage to which: from the one that makes a leaf to those that read it.

What stages hand on is a nested structure; its tensors are its leaves. A stage may make a leaf, or
pass on one that it was given. A leaf that is passed on does not enter the stage's functions at all,
and does not go there: it goes straight to each later stage that reads it, and its gradients come
straight back from there.

    stage 0           stage 1           stage 2           stage 3
    makes x, skip     reads x           reads x           reads x, skip
      |   |           makes x           makes x
      |   |             ^ |               ^ |               ^   ^
      +---|-------------+ +---------------+ +---------------+   |
          +-----------------------------------------------------+

A stage says in its `StageLeaves`, plain data, what it does with each leaf; `find_routes` puts those
of all stages together. One parcel a micro-batch holds all that one stage has for another.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Sequence
from typing import NamedTuple


@dataclasses.dataclass(frozen=True)
class StageLeaves:
    """What a stage does with leaves; positions count those of a flattened structure from 0.

    Attributes:
      passed: for each output leaf the input leaf that is passed on as it; None for a new one.
      reads: input leaves that the stage's functions are given, in ascending order; all the
        attributes below are ordered so.
      makes: output leaves that its forward pass returns; each is a new one.
      gives: input leaves whose gradients its backward pass returns.
      takes: output leaves whose gradients its backward pass is given; each is a new one.
    """

    passed: tuple[int | None, ...]
    reads: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()
    gives: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Demand:
    """What the other stages want of a stage; None stands for all that there is.

    Attributes:
      read: output leaves that a later stage reads, or gives a gradient for.
      given: output leaves for which a later stage gives a gradient.
      taken: input leaves whose gradients the stages that make them take.
    """

    read: Collection[int] | None = None
    given: Collection[int] | None = None
    taken: Collection[int] | None = None

    def is_less_than(self, leaves: StageLeaves) -> bool:
        """Whether the stage makes a leaf that nobody reads, or waits for a gradient in vain."""
        unread = self.read is not None and not set(leaves.makes) <= set(self.read)
        in_vain = self.given is not None and not set(leaves.takes) <= set(self.given)
        return unread or in_vain


EVERYTHING = Demand()


class Goods(NamedTuple):
    """What goes between a stage and another one, for each micro-batch.

    Attributes:
      stage: the other one.
      numbers: places in the list that the sender has, or that the receiver fills.
    """

    stage: int
    numbers: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class StageRoutes:
    """What one stage sends and receives, in ascending order of the other stages.

    A sender and a receiver list the same tensors in the same order.

    Attributes:
      inputs: places in `StageLeaves.reads` that a parcel of a stage before fills.
      outputs: places in `StageLeaves.makes` that a later stage is sent.
      gradients: places in `StageLeaves.takes` to which a parcel of a later stage is added.
      input_gradients: places in `StageLeaves.gives` that a stage before is sent.
      num_inputs: number of leaves that the stage reads.
      num_gradients: number of gradients that it takes.
    """

    inputs: tuple[Goods, ...]
    outputs: tuple[Goods, ...]
    gradients: tuple[Goods, ...]
    input_gradients: tuple[Goods, ...]
    num_inputs: int
    num_gradients: int


class _Leaf(NamedTuple):
    """A leaf by the stage that makes it, and its position among that stage's outputs."""

    maker: int
    position: int


def find_routes(stages: Sequence[StageLeaves]) -> tuple[StageRoutes, ...]:
    """The routes of each stage.

    Args:
      stages: what each stage does, in order. The last one's outputs are the result and go nowhere.
    """
    inputs = _input_leaves(stages)
    forwards: list[_Crossing] = []
    backwards: list[_Crossing] = []
    for reader, stage in enumerate(stages):
        for place, position in enumerate(stage.reads):
            leaf = inputs[reader][position]
            made = stages[leaf.maker].makes.index(leaf.position)
            forwards.append(_Crossing(leaf.maker, made, reader, place))
        for place, position in enumerate(stage.gives):
            leaf = inputs[reader][position]
            takes = stages[leaf.maker].takes
            if leaf.position in takes:
                backwards.append(_Crossing(reader, place, leaf.maker, takes.index(leaf.position)))
    return tuple(
        StageRoutes(
            inputs=_received(forwards, index),
            outputs=_sent(forwards, index),
            gradients=_received(backwards, index),
            input_gradients=_sent(backwards, index),
            num_inputs=len(stage.reads),
            num_gradients=len(stage.takes),
        )
        for index, stage in enumerate(stages)
    )


def demand_for(stages: Sequence[StageLeaves], index: int) -> Demand:
    """What the other stages want of a stage.

    Args:
      stages: what each stage does, at least of those before `index`. Without any later one, all
        of its outputs are wanted.
      index: the stage in question.
    """
    inputs = _input_leaves(stages)
    taken = {
        position
        for position, leaf in enumerate(inputs[index])
        if leaf.position in stages[leaf.maker].takes
    }
    if index >= len(stages) - 1:
        return Demand(taken=taken)
    read: set[_Leaf] = set()
    given: set[_Leaf] = set()
    for later in range(index + 1, len(stages)):
        read.update(inputs[later][position] for position in stages[later].reads)
        given.update(inputs[later][position] for position in stages[later].gives)

    def own(leaves: set[_Leaf]) -> set[int]:
        return {leaf.position for leaf in leaves if leaf.maker == index}

    return Demand(own(read | given), own(given), taken)


class _Crossing(NamedTuple):
    """A tensor on its way: the sender and the place in its list, the receiver and that in its."""

    sender: int
    place: int
    receiver: int
    place_there: int


def _input_leaves(stages: Sequence[StageLeaves]) -> list[list[_Leaf]]:
    """For each stage who made each of its input leaves; at the end those of the result."""
    inputs: list[list[_Leaf]] = [[]]
    for index, stage in enumerate(stages):
        inputs.append(
            [
                _Leaf(index, position) if source is None else inputs[index][source]
                for position, source in enumerate(stage.passed)
            ]
        )
    return inputs


def _sent(crossings: Sequence[_Crossing], sender: int) -> tuple[Goods, ...]:
    """What a stage sends, by receiver; crossings come in the receivers' order."""
    places = collections.defaultdict(list)
    for crossing in crossings:
        if crossing.sender == sender:
            places[crossing.receiver].append(crossing.place)
    return tuple(Goods(stage, tuple(places[stage])) for stage in sorted(places))


def _received(crossings: Sequence[_Crossing], receiver: int) -> tuple[Goods, ...]:
    """What a stage receives, by sender."""
    places = collections.defaultdict(list)
    for crossing in crossings:
        if crossing.receiver == receiver:
            places[crossing.sender].append(crossing.place_there)
    return tuple(Goods(stage, tuple(places[stage])) for stage in sorted(places))
