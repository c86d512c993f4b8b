"""What a traced function must return so that its side effects happen.

A function called as an operation runs what its results depend on and nothing else. An assertion, a
print or an assignment in a cell, or the addition of a gradient to its accumulator, would be dropped
without a word; so results are made to wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.pipeline.graph_function import ancestors_of, has_state, origin

# Operations that look at the shape of a tensor and not at its values.
SHAPES = ("Shape", "ShapeN", "Size", "Rank")


def with_effects(function: Callable[[], Any]) -> Any:
    """Calls `function` in graph mode; its outputs then wait for its side effects.

    Their second instance, in what is computed again for the backward pass, is dropped and should
    be.

    Args:
      function: without arguments; returns a nested structure of tensors.

    Returns:
      copies of its tensors, each under a name of its own even if it is an input passed on.
    """
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    outputs = function()
    added = graph.get_operations()[before:]
    needed = ancestors_of(tf.nest.flatten(outputs))
    effects = [
        # What runs only for a control dependency loses an assertion inside a branch; a result does
        # not come without it.
        tf.identity(op.outputs[0]) if op.outputs else op
        for op in added
        if has_state(op) and op not in needed
    ]
    with tf.control_dependencies(effects):
        return tf.nest.map_structure(copy_of, outputs)


def before_effects(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor of which `with_effects` returned this copy; the copy itself if it is converted."""
    return tensor.op.inputs[0] if tensor.op.type == "Identity" else tensor


def copy_of(tensor: tf.Tensor) -> tf.Tensor:
    """An equal tensor that a function may return.

    TensorFlow 2.21 marks what `tf.shape` returns as a shape, and then refuses it as an int32 result
    of a function that is called as an operation. After a conversion it is a number like any other.
    """
    source = origin(tensor).op
    while source.type == "Identity":
        source = origin(source.inputs[0]).op
    if source.type in SHAPES and tensor.dtype == tf.int32:
        return tf.cast(tf.cast(tensor, tf.int64), tf.int32)
    return tf.identity(tensor)


def accumulate(
    accumulators: Mapping[str, tf.Variable],
    gradients: Mapping[str, tf.Tensor | tf.IndexedSlices | None],
    paths: Collection[str],
) -> tf.Tensor:
    """Adds the gradients of some weights, by their paths; see `accumulate_all`."""
    chosen = [path for path in accumulators if path in paths]
    return accumulate_all(
        [accumulators[path] for path in chosen], [gradients[path] for path in chosen]
    )


def accumulate_all(
    accumulators: Sequence[tf.Variable],
    gradients: Sequence[tf.Tensor | tf.IndexedSlices | None],
) -> tf.Tensor:
    """Adds every gradient to its accumulator; returns a scalar that exists once that is done.

    A gradient of None (an unused weight) adds nothing.
    """
    pairs = zip(accumulators, gradients, strict=True)
    additions = [_accumulate(sum_, value) for sum_, value in pairs if value is not None]
    with tf.control_dependencies(additions):
        return tf.identity(tf.constant(True), name="accumulated")


def _accumulate(accumulator: tf.Variable, gradient: tf.Tensor | tf.IndexedSlices) -> tf.Operation:
    """The operation that adds a gradient to its float32 accumulator; sparse rows one by one.

    An embedding's gradient touches a few rows of a large table: adding those alone saves writing
    the table once a micro-batch.
    """
    if isinstance(gradient, tf.IndexedSlices):
        return tf.raw_ops.ResourceScatterAdd(
            resource=accumulator.handle,
            indices=gradient.indices,
            updates=tf.cast(gradient.values, accumulator.dtype),
        )
    return tf.raw_ops.AssignAddVariableOp(
        resource=accumulator.handle, value=tf.cast(gradient, accumulator.dtype)
    )
