"""What is widened to float32 and what is not."""

import tensorflow as tf

from lingpipe.layers.precision import at_least_float32


def test_short_dtypes_become_float32_and_wide_ones_stay() -> None:
    for dtype in (tf.bfloat16, tf.float16, tf.float32):
        assert at_least_float32(tf.zeros([2], dtype)).dtype == tf.float32
    assert at_least_float32(tf.zeros([2], tf.float64)).dtype == tf.float64
