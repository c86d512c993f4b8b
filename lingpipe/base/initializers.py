"""Initial values of weights, as plain data.

An `Initializer` says from which distribution a weight starts; `initial_value` draws it. The draw is
keyed by (seed, path of the weight), never by order, device or stage, so that a model starts from
the same numbers however it is placed.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


class Distribution(enum.Enum):
    """Where the numbers come from; `scale` of the initializer gives its width."""

    constant = "constant"  # Every element equals scale.
    normal = "normal"  # Standard deviation scale.
    truncated_normal = "truncated_normal"  # Normal cut at two standard deviations of scale.
    uniform = "uniform"  # Between -scale and scale.


@dataclasses.dataclass(frozen=True)
class Initializer:
    """A distribution and its width."""

    distribution: Distribution
    scale: float


def constant(value: float) -> Initializer:
    """Every element equals `value`."""
    return Initializer(Distribution.constant, value)


def normal(stddev: float) -> Initializer:
    """Normal with mean 0 and the given standard deviation."""
    return Initializer(Distribution.normal, stddev)


def xavier_uniform(fan_in: int, fan_out: int, gain: float = 1.0) -> Initializer:
    """Uniform with variance `gain^2 * 2 / (fan_in + fan_out)` (Glorot and Bengio 2010, eq. 16)."""
    return Initializer(Distribution.uniform, gain * math.sqrt(6.0 / (fan_in + fan_out)))


def key_of(seed: int, *parts: str) -> int:
    """A 64-bit key from a seed and names; equal parts give equal keys on every machine."""
    text = "\x00".join([str(seed), *parts])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def initial_value(
    initializer: Initializer, shape: Sequence[int], seed: int, path: str
) -> tf.Tensor:
    """Draws the float32 initial value of the weight at `path`.

    Args:
      initializer: distribution and width.
      shape: shape of the weight.
      seed: the run's seed.
      path: the weight's path in the model, the second half of the key.
    """
    import tensorflow as tf

    if initializer.distribution is Distribution.constant:
        return tf.fill(shape, tf.constant(initializer.scale, tf.float32))
    key = key_of(seed, path)
    halves = tf.constant([key & 0x7FFFFFFF, (key >> 32) & 0x7FFFFFFF], tf.int32)
    # Named, since the generator that TensorFlow would choose depends on the device.
    philox = "philox"
    if initializer.distribution is Distribution.uniform:
        values = tf.random.stateless_uniform(shape, halves, -1.0, 1.0, alg=philox)
    elif initializer.distribution is Distribution.normal:
        values = tf.random.stateless_normal(shape, halves, alg=philox)
    else:
        values = tf.random.stateless_truncated_normal(shape, halves, alg=philox)
    return values * initializer.scale
