"""Activation functions, chosen in params by name."""

from __future__ import annotations

import enum

import tensorflow as tf


class Activation(enum.Enum):
    """An element-wise function between two products."""

    relu = "relu"
    gelu = "gelu"  # x * Phi(x) with the exact error function (Hendrycks and Gimpel 2016).
    swish = "swish"  # x * sigmoid(x) (Ramachandran et al. 2017).


def activate(activation: Activation, inputs: tf.Tensor) -> tf.Tensor:
    """Applies `activation` to every element; shape and dtype stay."""
    if activation is Activation.relu:
        return tf.nn.relu(inputs)
    if activation is Activation.gelu:
        return tf.nn.gelu(inputs, approximate=False)
    return tf.nn.silu(inputs)
