"""Finds cells that give other outputs when they are computed again.

Rematerialisation stands on cells being pure: called twice on the same inputs they must return the
same bits, or the gradient is that of another function. Where `pipeline.verify_recompute` asks for
it, every cell's outputs are reduced to a fingerprint, in the forward pass and again in what the
backward pass computes anew, and the two are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lingpipe.errors import UserError
from lingpipe.pipeline.errors import stage_in_words

if TYPE_CHECKING:
    from lingpipe.pipeline.stage import Stage

# Odd, so that a change of any element almost surely moves the sum.
_FACTOR = 0x9E3779B97F4A7C15 - 2**64


class ImpureCellError(UserError, ArithmeticError):
    """A cell that gave other outputs when it was computed again; no update was applied."""


class RecomputeCheck:
    """The fingerprints of the cells of one stage, while it is traced and afterwards."""

    def __init__(self) -> None:
        """Nothing is recorded yet."""
        self._prints: dict[str, list[tf.Tensor]] = {}

    def clear(self) -> None:
        """Forgets what an earlier trace recorded."""
        self._prints.clear()

    def record(self, cell: str, outputs: Any) -> None:
        """Notes the outputs of a call of a cell; the second call is the one computed again."""
        self._prints.setdefault(cell, []).append(fingerprint(tf.nest.flatten(outputs)))

    def double(self) -> None:
        """For cells called once, takes a copy of the fingerprint: the one that is to be kept."""
        for prints in self._prints.values():
            if len(prints) == 1:
                prints.insert(0, tf.identity(prints[0]))

    def pairs(self) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """For each cell that is computed again, its fingerprint of then and its first one."""
        return [(prints[1], prints[0]) for prints in self._prints.values() if len(prints) > 1]

    def first_fault(self, done: tf.Tensor) -> tf.Tensor:
        """Int32 scalar that waits for `done`: number of the first pair that differs, else -1."""
        pairs = self.pairs()
        with tf.control_dependencies([done]):
            if not pairs:
                return tf.constant(-1)
            differs = tf.stack([tf.not_equal(again, first) for again, first in pairs])
            number = tf.argmax(tf.cast(differs, tf.int32), output_type=tf.int32)
            return tf.where(tf.reduce_any(differs), number, -1)

    def raise_if_impure(self, fault: tf.Tensor, stage: Stage) -> None:
        """Reads what `first_fault` found in a stage.

        Raises:
          ImpureCellError: naming the cell.
        """
        number = int(fault)
        if number >= 0:
            cell = [cell for cell, prints in self._prints.items() if len(prints) > 1][number]
            raise ImpureCellError(
                f"{stage_in_words(stage, [cell])} returned other values when it was computed again "
                "for the backward pass, so that its gradient would be wrong. It must depend on its "
                "inputs, weights and context alone: draw random numbers by context.random_key, and "
                "keep no counters."
            )


def fingerprint(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Int64 scalar; a change of any element, or of its place, almost surely gives another one."""
    total = tf.zeros([], tf.int64)
    for tensor in tensors:
        numbers = tf.cast(_as_integers(tensor), tf.int64)
        places = tf.range(tf.size(numbers, tf.int64), dtype=tf.int64)
        mixed = (numbers + 1) * (2 * places + 1)
        total = total * _FACTOR + tf.reduce_sum(mixed * (mixed + _FACTOR))
    return total


def _as_integers(tensor: tf.Tensor) -> tf.Tensor:
    """The bits of the elements, in a row."""
    flat = tf.reshape(tensor, [-1])
    if not tensor.dtype.is_floating:
        return flat
    return tf.bitcast(flat, {2: tf.int16, 4: tf.int32, 8: tf.int64}[tensor.dtype.size])
