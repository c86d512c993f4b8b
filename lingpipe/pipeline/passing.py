"""Tensors that a traced function merely passes on, and gradients that are always zero.

A function that returns one of its inputs as it is has nothing to do with it: the caller has it
already. TensorFlow puts an `Identity` here and there on the way, and those are seen through; an
operation with a gradient of its own, or one that waits for an assertion, does something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from lingpipe.pipeline.graph_function import origin

_SUMS = ("AddN", "AddV2")


def passed_on(outputs: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> list[int | None]:
    """For each output the position of the input that is passed on as it; None for a new tensor.

    Args:
      outputs: what a function returned. Outside of a graph all are taken to be new.
      inputs: what it was given.
    """
    if tf.executing_eagerly():
        return [None] * len(outputs)
    positions: dict[str, int] = {}
    for position, tensor in enumerate(inputs):
        positions.setdefault(_source(tensor).name, position)
    return [positions.get(_source(tensor).name) for tensor in outputs]


def not_zero(gradients: Mapping[int, tf.Tensor | tf.IndexedSlices | None]) -> dict[int, tf.Tensor]:
    """Those of the gradients that there are and that are not always zero, as dense tensors."""
    there = {key: tf.convert_to_tensor(g) for key, g in gradients.items() if g is not None}
    return {key: gradient for key, gradient in there.items() if not _is_zero(gradient)}


def _is_zero(gradient: tf.Tensor) -> bool:
    """Whether it is zero by its making: `tf.recompute_grad` returns such for unused inputs."""
    operation = origin(gradient).op
    if operation.type == "Identity":
        return _is_zero(operation.inputs[0])
    if operation.type in _SUMS:
        return all(_is_zero(tensor) for tensor in operation.inputs)
    return operation.type == "ZerosLike"


def _source(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor of which this one is a copy, through any number of copies."""
    while _is_plain_copy(tensor.op):
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor


def _is_plain_copy(operation: tf.Operation) -> bool:
    if operation.type not in ("Identity", "IdentityN") or operation.control_inputs:
        return False
    return "_gradient_op_type" not in operation.node_def.attr
