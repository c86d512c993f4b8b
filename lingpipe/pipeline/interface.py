"""The interface of a stage's traced pass: what its function is given, and what that returns.

A pass is traced with everything that a stage may look at: all leaves of what the stage before hands
on, all entries of the batch that its cells name, and the moment, which is the number of the step
and that of the micro-batch's first example. Its function is given what it reads of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.routes import StageLeaves

# The last arguments that a pass is traced with.
MOMENT = (tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64))


@dataclasses.dataclass(frozen=True)
class Interface:
    """What goes in and out.

    Attributes:
      outputs: nested `tf.TensorSpec` of what the cells return.
      leaves: what the stage does with each leaf.
      keys: the batch entries that the function reads.
      moment: which of the two numbers it reads, 0 and 1.
    """

    outputs: Any
    leaves: StageLeaves
    keys: tuple[str, ...]
    moment: tuple[int, ...]

    @classmethod
    def of(
        cls, outputs: Any, leaves: StageLeaves, read: Collection[int], structure: tuple[Any, Any]
    ) -> Interface:
        """The interface of a function of which is known what it reads.

        Args:
          outputs: nested tensors, what the cells returned.
          leaves: all about the leaves but what is read.
          read: positions of what is read among the arguments that the pass was traced with.
          structure: what those were, before the moment: nested leaves, and a dict of entries.
        """
        num_leaves = len(tf.nest.flatten(structure[0]))
        keys = sorted(structure[1])  # In the order in which tf.nest flattens a dict.
        moment = num_leaves + len(keys)
        return cls(
            outputs=tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), outputs),
            leaves=dataclasses.replace(
                leaves, reads=tuple(i for i in range(num_leaves) if i in read)
            ),
            keys=tuple(key for i, key in enumerate(keys, num_leaves) if i in read),
            moment=tuple(i for i in range(len(MOMENT)) if moment + i in read),
        )

    def arguments(
        self, leaves: Sequence[tf.Tensor], micro_batch: MicroBatch, step: int
    ) -> list[tf.Tensor]:
        """What the function is given, copied to the current device.

        Args:
          leaves: those that it reads, in order.
          micro_batch: with the entries that it reads.
          step: number of the step.
        """
        moment = (step, micro_batch.first_example)
        return [
            *(tf.identity(leaf) for leaf in leaves),
            *(tf.identity(micro_batch.entries[key]) for key in self.keys),
            *(tf.constant(np.int64(moment[i]), tf.int64) for i in self.moment),
        ]

    def packed(self, made: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor] = ()) -> Any:
        """The nested outputs, with None for a leaf that nobody reads.

        Args:
          made: those that the function returned, or anything else that stands for them.
          inputs: all leaves that the stage before handed on; needed if any is passed on.
        """
        new = dict(zip(self.leaves.makes, made, strict=True))
        flat = [
            new.get(position) if source is None else inputs[source]
            for position, source in enumerate(self.leaves.passed)
        ]
        return tf.nest.pack_sequence_as(self.outputs, flat)
