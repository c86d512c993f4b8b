"""Rematerialisation: forget a cell's activations in the forward pass, compute them again later.

`tf.recompute_grad` wraps a function so that its backward pass starts by calling the function again.
It handles float tensors only. `rematerialise` adds what cells need: any nested structure, integer
and boolean tensors among inputs and outputs, and outputs that belong to the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lingpipe.pipeline.passing import passed_on


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
        passed: list[int | None] = []

        def on_floats(*floats: tf.Tensor) -> list[tf.Tensor]:
            remaining = iter(floats)
            merged = [
                next(remaining) if here else tensor
                for here, tensor in zip(is_float, flat, strict=True)
            ]
            outputs = function(tf.nest.pack_sequence_as(inputs, merged))
            flat_outputs = tf.nest.flatten(outputs)
            if not calls:
                calls.append(outputs)
                passed.extend(passed_on(flat_outputs, merged))
            floats_out = [
                tensor
                for tensor, source in zip(flat_outputs, passed, strict=True)
                if source is None and tensor.dtype.is_floating
            ]
            # tf.recompute_grad needs an output to hang the gradient on.
            return floats_out or [tf.zeros([])]

        floats = [tensor for here, tensor in zip(is_float, flat, strict=True) if here]
        float_outputs = iter(tf.nest.flatten(tf.recompute_grad(on_floats)(*floats)))
        # What is passed on goes past all of this, or its gradient would come with the others'.
        # Integer and boolean outputs carry no gradient: the first call's stand as they are.
        outputs = []
        for tensor, source in zip(tf.nest.flatten(calls[0]), passed, strict=True):
            if source is not None:
                tensor = flat[source]
            elif tensor.dtype.is_floating:
                tensor = next(float_outputs)
            outputs.append(tensor)
        return tf.nest.pack_sequence_as(calls[0], outputs)

    return wrapped
