"""The signature of a batch: which entries the cells read, with which dtype and dimensions.

Stage functions are traced for a signature. A dimension that turns out to differ from batch to batch
is opened when that is seen, at the price of one more trace; a dtype or a number of dimensions that
changes is a mistake, since each change would be traced anew, in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from lingpipe.pipeline.errors import stage_in_words
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.micro_batch import BatchError
from lingpipe.pipeline.stage import Stage


def check_entries(
    stages: Sequence[Stage],
    batch: Mapping[str, np.ndarray],
    inference: Inference = Inference.evaluation,
) -> None:
    """Refuses a batch that lacks what a cell reads.

    Args:
      stages: the stages.
      batch: name -> array.
      inference: which cells take part; training needs what evaluation does.

    Raises:
      BatchError: naming stage, cell, the missing entries and those that there are.
    """
    for stage in stages:
        for name in stage.names(inference):
            cell = stage.cells[name]
            missing = [key for key in cell.params.batch_keys() if key not in batch]
            if missing:
                raise BatchError(
                    f"{stage_in_words(stage, [name])} reads the batch entries "
                    f"{_listed(cell.params.batch_keys())}, but the batch lacks {_listed(missing)}; "
                    f"it has {_listed(batch) or 'none'}."
                )


def widen_signature(
    signature: Mapping[str, tf.TensorSpec], entries: Mapping[str, np.ndarray]
) -> dict[str, tf.TensorSpec]:
    """The narrowest specs that hold both what `signature` held and these arrays.

    The batch dimension is always open. Entries that the signature names and the batch lacks stay.

    Raises:
      BatchError: an entry whose dtype TensorFlow does not know, or that has another dtype or number
        of dimensions than the signature says.
    """
    widened = dict(signature)
    for name, array in entries.items():
        spec = _spec(name, array)
        known = signature.get(name)
        if known is None:
            widened[name] = spec
            continue
        if known.dtype != spec.dtype or known.shape.rank != array.ndim:
            raise BatchError(
                f"Batch entry {name!r} is {spec.dtype.name} with {array.ndim} dimensions; the "
                f"pipeline was made for, or has seen, {known.dtype.name} with {known.shape.rank}. "
                "Feed every batch, for training and evaluation, with the same dtypes and "
                "dimensions."
            )
        dims = [
            dim if dim == size else None
            for dim, size in zip(known.shape.as_list(), array.shape, strict=True)
        ]
        widened[name] = tf.TensorSpec([None, *dims[1:]], spec.dtype)
    return widened


def _spec(name: str, array: np.ndarray) -> tf.TensorSpec:
    try:
        # TensorFlow takes any object for a text, and finds out later.
        dtype = None if array.dtype.hasobject else tf.as_dtype(array.dtype)
    except TypeError:
        dtype = None
    if dtype is None:
        raise BatchError(
            f"Batch entry {name!r} has the NumPy dtype {array.dtype}, of which TensorFlow makes no "
            "tensor; convert it to numbers, such as int32 or float32."
        )
    return tf.TensorSpec([None, *array.shape[1:]], dtype)


def _listed(names: Mapping[str, object] | Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
