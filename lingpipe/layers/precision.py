"""What stays in float32 when a model computes in bfloat16 or float16: norms, softmax, losses.

Sums over many elements lose their last digits in a short dtype, and an exponential magnifies them.
Inputs in float64, which tests of gradients use, stay in float64.
"""

from __future__ import annotations

import tensorflow as tf


def at_least_float32(tensor: tf.Tensor) -> tf.Tensor:
    """`tensor` in float32, or unchanged where its dtype is that wide already."""
    return tf.cast(tensor, tf.float32) if tensor.dtype.size < 4 else tensor
