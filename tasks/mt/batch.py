"""The entries of a translation batch, for graphs and plans; examples.py says what they hold."""

from __future__ import annotations

import tensorflow as tf

from lingpipe.base.spec import Spec

_DTYPES = {
    "source_ids": "int32",
    "target_ids": "int32",
    "target_labels": "int32",
    "target_weights": "float32",
}


def batch_signature() -> dict[str, tf.TensorSpec]:
    """Specs of all entries; number and length of sentences stay open, so that nothing retraces."""
    return {
        name: tf.TensorSpec([None, None], tf.as_dtype(dtype)) for name, dtype in _DTYPES.items()
    }


def batch_specs(rows: int, length: int) -> dict[str, Spec]:
    """Shapes of a batch of `rows` sentence pairs of `length` tokens a side."""
    return {name: Spec((rows, length), dtype) for name, dtype in _DTYPES.items()}
