"""Activation functions, chosen in params by name."""

from __future__ import annotations

import enum

import tensorflow as tf


class Activation(enum.Enum):
    """An element-wise function between two products."""

    relu = "relu"
    gelu = "gelu"  # x * Phi(x) with the exact error function (Hendrycks and Gimpel 2016).
    swish = "swish"  # x * sigmoid(x) (Ramachandran et al. 2017).


def tensors_kept(activation: Activation, *, outputs_are_read: bool) -> int:
    """How many tensors of the inputs' size stay for the backward pass.

    Args:
      activation: relu is derived from its outputs, swish from its inputs, gelu from three values
        made on the way.
      outputs_are_read: whether the backward pass of what follows reads the outputs.
    """
    made = {Activation.relu: 0, Activation.swish: 1, Activation.gelu: 3}[activation]
    return made + (outputs_are_read or activation is Activation.relu)


def activate(activation: Activation, inputs: tf.Tensor) -> tf.Tensor:
    """Applies `activation` to every element; shape and dtype stay."""
    if activation is Activation.relu:
        return tf.nn.relu(inputs)
    if activation is Activation.gelu:
        return tf.nn.gelu(inputs, approximate=False)
    return tf.nn.silu(inputs)
