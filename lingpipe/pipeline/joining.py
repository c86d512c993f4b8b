"""From the results of micro-batches to that of the mini-batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.pipeline.errors import CellError


def add_up(results: Sequence[Mapping[str, tf.Tensor]]) -> dict[str, float]:
    """Sums of the last cell's scalars over the micro-batches."""
    return {key: sum(float(result[key]) for result in results) for key in results[0]}


def join_predictions(results: Sequence[Any], sizes: Sequence[int]) -> Any:
    """The outputs of all micro-batches as one.

    Args:
      results: nested structures of tensors, examples along dimension 0.
      sizes: number of examples of each micro-batch.

    Raises:
      CellError: an output has no dimension of examples.
    """

    def join(*parts: tf.Tensor) -> np.ndarray:
        for part, size in zip(parts, sizes, strict=True):
            if part.shape.rank == 0 or part.shape[0] != size:
                raise CellError(
                    f"A prediction needs examples along dimension 0; a micro-batch of {size} gives "
                    f"{part.dtype.name} of shape {tuple(part.shape)}."
                )
        return np.concatenate([part.numpy() for part in parts])

    return tf.nest.map_structure(join, *results)
