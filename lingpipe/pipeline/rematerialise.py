"""Rematerialisation: forget a cell's activations in the forward pass, compute them again later.

`tf.recompute_grad` wraps a function so that its backward pass starts by calling the function again.
It handles float tensors only. `rematerialise` adds what cells need: any nested structure, integer
and boolean tensors among inputs and outputs, and outputs that belong to the first call.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import tensorflow as tf


class Rematerialisation(enum.Enum):
    """How much of a stage's activations is kept from the forward to the backward pass."""

    none = "none"  # All that the backward pass needs.
    layer = "layer"  # The inputs of every cell; cells are computed again one by one.
    stage = "stage"  # What crosses the boundary; the stage is computed again as a whole.
    auto = "auto"  # The least recomputation that fits pipeline.device_memory.


def rematerialise(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function with equal outputs and gradients that keeps only its inputs in between.

    Args:
      function: from one nested structure of tensors to another; it may read variables and other
        tensors of the graph. Called twice: in the forward and again in the backward pass.
    """

    def wrapped(inputs: Any) -> Any:
        flat = tf.nest.flatten(inputs)
        is_float = [tensor.dtype.is_floating for tensor in flat]
        calls: list[Any] = []

        def on_floats(*floats: tf.Tensor) -> list[tf.Tensor]:
            remaining = iter(floats)
            merged = [
                next(remaining) if here else tensor
                for here, tensor in zip(is_float, flat, strict=True)
            ]
            outputs = function(tf.nest.pack_sequence_as(inputs, merged))
            calls.append(outputs)
            floats_out = [tensor for tensor in tf.nest.flatten(outputs) if tensor.dtype.is_floating]
            # tf.recompute_grad needs an output to hang the gradient on.
            return floats_out or [tf.zeros([])]

        floats = [tensor for here, tensor in zip(is_float, flat, strict=True) if here]
        float_outputs = iter(tf.nest.flatten(tf.recompute_grad(on_floats)(*floats)))
        # Integer and boolean outputs carry no gradient: the first call's stand as they are.
        outputs = [
            next(float_outputs) if tensor.dtype.is_floating else tensor
            for tensor in tf.nest.flatten(calls[0])
        ]
        return tf.nest.pack_sequence_as(calls[0], outputs)

    return wrapped
