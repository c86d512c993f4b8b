"""What a layer may know about the moment in which it runs.

The `Context` is an explicit argument of every layer: whether this is training, which step, which
examples. There is no global switch behind it. Random choices are keyed by (seed, step, layer path,
global example index), so that example 17 is treated alike whatever stage, micro-batch, replica or
recomputation it passes through.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lingpipe.base.initializers import key_of


@dataclasses.dataclass(frozen=True)
class Context:
    """The circumstances of one call.

    Attributes:
      training: True in a training step: dropout applies.
      step: int64 scalar, number of the training step (counted from 1).
      seed: the run's seed.
      first_example: int64 scalar, index within the whole mini-batch of this micro-batch's first
        example.
      compute_dtype: dtype of activations and of the weights' copies that products use.
      batch: the entries of the batch that this cell asked for by `Params.batch_keys`, each sliced
        to this micro-batch.
      statistics: weights path of a layer with state -> what it reported in this call.
      draws: how often each layer path has drawn random numbers in this call; a layer that is called
        twice draws anew.
    """

    training: bool = False
    step: tf.Tensor | int = 0
    seed: int = 0
    first_example: tf.Tensor | int = 0
    compute_dtype: tf.DType = tf.float32
    batch: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    statistics: dict[str, dict[str, tf.Tensor]] = dataclasses.field(default_factory=dict)
    draws: dict[str, int] = dataclasses.field(default_factory=dict)

    def cast(self, value: tf.Tensor | tf.Variable) -> tf.Tensor:
        """`value` in the compute dtype."""
        return tf.cast(value, self.compute_dtype)

    def random_key(self, path: str) -> int:
        """A fresh 64-bit key for one draw by the layer at `path`; the same in a recomputation."""
        count = self.draws.get(path, 0)
        self.draws[path] = count + 1
        return key_of(self.seed, path, str(count))

    def report_statistics(self, path: str, sums: Mapping[str, tf.Tensor]) -> None:
        """Adds sums over the examples of this call to what the layer at `path` has reported.

        The step hands their totals to the layer's `new_state`; see `lingpipe.base.state`. Outside
        training nothing is recorded. Whoever takes gradients through `tf.recompute_grad` reads the
        statistics before: what is computed again reports again.

        Args:
          path: `weights_path` of the layer; one that is called twice adds to what it reported.
          sums: name -> tensor whose shape does not depend on the batch; kept as float32. It must
            belong to the graph of the call, not to that of a `tf.function` inside it.
        """
        if not self.training:
            return
        known = self.statistics.setdefault(path, {})
        for name, value in sums.items():
            wide = tf.cast(value, tf.float32)
            known[name] = known[name] + wide if name in known else wide
