"""Splits a mini-batch into micro-batches: nothing dropped, nothing padded.

Micro-batches differ by at most one example, the longer ones first. A mini-batch with fewer examples
than M gives one micro-batch an example. All slices come from one padded mini-batch, so that random
masks, which are keyed by the position in the whole mini-batch, are the same for every M.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from lingpipe.errors import UserError


class BatchError(UserError, ValueError):
    """A batch that the pipeline cannot use."""


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """A slice of the mini-batch.

    Attributes:
      first_example: index within the mini-batch of the first example.
      entries: name -> array with the slice's examples along dimension 0.
    """

    first_example: int
    entries: dict[str, np.ndarray]

    @property
    def size(self) -> int:
        """Number of examples."""
        return len(next(iter(self.entries.values())))


def micro_batch_sizes(num_examples: int, num_micro_batches: int) -> list[int]:
    """Sizes that add up to `num_examples` and differ by at most one; never zero.

    Raises:
      BatchError: there is no example.
    """
    if num_examples < 1:
        raise BatchError("The batch holds no example.")
    count = min(num_examples, num_micro_batches)
    size, longer = divmod(num_examples, count)
    return [size + 1] * longer + [size] * (count - longer)


def split_batch(batch: Mapping[str, np.ndarray], num_micro_batches: int) -> list[MicroBatch]:
    """Slices every entry along dimension 0.

    Raises:
      BatchError: no entry or no example, entries without a batch dimension or with different
        numbers of examples.
    """
    if not batch:
        raise BatchError("The batch has no entries; give it name -> array.")
    arrays = {name: np.asarray(value) for name, value in batch.items()}
    scalars = [name for name, array in arrays.items() if array.ndim == 0]
    if scalars:
        raise BatchError(
            f"Batch entries {scalars} are scalars; each needs examples along dimension 0."
        )
    counts = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        raise BatchError(f"Batch entries must hold equally many examples; they hold {counts}.")
    micro_batches = []
    first = 0
    for size in micro_batch_sizes(next(iter(counts.values())), num_micro_batches):
        entries = {name: array[first : first + size] for name, array in arrays.items()}
        micro_batches.append(MicroBatch(first, entries))
        first += size
    return micro_batches
