"""One traced graph of a stage's computation, cut into a forward and a backward function.

Tracing a stage's forward pass and the gradients from a given output gradient into ONE graph costs a
trace only once and settles by itself what must be kept in between:

    inputs --> [ forward: all that the outputs need ] --> outputs
                     | residuals: tensors that cross the cut
    output gradients --> [ backward: all the rest ] --> input gradients, summed weight gradients

Rematerialisation moves the cut and nothing else: what `tf.recompute_grad` computes again lies on
the backward side. Weights are captured variables; both functions read them where they lie, so that
they never cross.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.pipeline.graph_function import GraphFunction, part_of_graph, trace

# Operations that TensorFlow marks as stateful although nobody misses them if they do not run.
_READS = ("VarHandleOp", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape")

# Operations that look at the shape of a tensor and not at its values.
_SHAPES = ("Shape", "ShapeN", "Size", "Rank")


@dataclasses.dataclass(frozen=True)
class Traced:
    """What a traced function hands to `cut`: tensors of the graph under construction.

    Attributes:
      outputs: nested structure of what the forward pass returns.
      output_gradients: placeholders of the gradients that the backward pass is given.
      input_gradients: gradients that the backward pass returns.
      done: a tensor that exists once the weights' gradients have been accumulated.
    """

    outputs: Any
    output_gradients: list[tf.Tensor]
    input_gradients: list[tf.Tensor]
    done: tf.Tensor


@dataclasses.dataclass(frozen=True)
class CutGraph:
    """The two halves of a joint graph.

    Attributes:
      outputs: nested structure of `tf.TensorSpec`, what the forward pass returns.
      num_outputs: number of tensors in it; the forward function's other results are residuals.
      forward: flat inputs -> outputs + residuals.
      backward: residuals + the inputs of `kept_inputs` + output gradients -> input gradients,
        and last `Traced.done`.
      kept_inputs: positions of the flat inputs that the backward function reads.
      residuals: specs of the tensors that cross the cut, inputs not among them.
    """

    outputs: Any
    num_outputs: int
    forward: GraphFunction
    backward: GraphFunction
    kept_inputs: tuple[int, ...]
    residuals: tuple[tf.TensorSpec, ...]


def with_effects(function: Callable[[], Any]) -> Any:
    """Calls `function` in graph mode; its outputs then wait for its side effects.

    A function called as an operation runs what its results depend on and nothing else: an
    assertion, a print or an assignment in a cell would be dropped without a word. Their second
    instance, in what is computed again for the backward pass, is dropped and should be.

    Args:
      function: without arguments; returns a nested structure of tensors.

    Returns:
      copies of its tensors, each under a name of its own even if it is an input passed on.
    """
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    outputs = function()
    added = graph.get_operations()[before:]
    needed = _ancestors([tensor.op for tensor in tf.nest.flatten(outputs)])
    effects = [
        # What runs only for a control dependency loses an assertion inside a branch; a result does
        # not come without it.
        tf.identity(op.outputs[0]) if op.outputs else op
        for op in added
        if op.op_def.is_stateful and op.type not in _READS and op not in needed
    ]
    with tf.control_dependencies(effects):
        return tf.nest.map_structure(_copy, outputs)


def _copy(tensor: tf.Tensor) -> tf.Tensor:
    """An equal tensor that a function may return.

    TensorFlow 2.21 marks what `tf.shape` returns as a shape, and then refuses it as an int32 result
    of a function that is called as an operation. After a conversion it is a number like any other.
    """
    origin = tensor.op
    while origin.type == "Identity":
        origin = origin.inputs[0].op
    if origin.type in _SHAPES and tensor.dtype == tf.int32:
        return tf.cast(tf.cast(tensor, tf.int64), tf.int32)
    return tf.identity(tensor)


def trace_and_cut(joint: Callable[..., Traced], signature: Sequence[tf.TensorSpec]) -> CutGraph:
    """Traces `joint` once and cuts its graph.

    Args:
      joint: called with one placeholder for each entry of `signature`, in graph mode.
      signature: specs of the flat inputs; unknown dimensions stay open, so nothing retraces.
    """
    found: list[Traced] = []

    def record(*inputs: tf.Tensor) -> list[tf.Tensor]:
        found.append(joint(*inputs))
        return tf.nest.flatten(found[0].outputs)

    whole = trace(record, signature)
    traced = found[0]
    inputs = whole.inputs[: len(signature)]
    outputs = tf.nest.flatten(traced.outputs)
    ahead = _ancestors([tensor.op for tensor in outputs])
    ends = [*traced.input_gradients, traced.done]
    behind = _ancestors([tensor.op for tensor in ends]) - ahead
    # A tensor of which the backward pass needs the shape alone is not kept for that.
    shapes = {op for op in behind if op.type in _SHAPES and ahead.issuperset(_sources(op))}
    ahead, behind = ahead | shapes, behind - shapes
    residuals = _crossing(behind, ahead, whole.graph)
    read = {source for operation in behind for source in _sources(operation)}
    kept = tuple(i for i, tensor in enumerate(inputs) if tensor.op in read)
    with whole.graph.as_default():
        handed_out = [_copy(tensor) if tensor.op in shapes else tensor for tensor in residuals]
    feeds = [*residuals, *(inputs[i] for i in kept), *traced.output_gradients]
    return CutGraph(
        outputs=tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), traced.outputs),
        num_outputs=len(outputs),
        forward=part_of_graph(whole, inputs, [*outputs, *handed_out]),
        backward=part_of_graph(whole, feeds, ends, already_run=ahead),
        kept_inputs=kept,
        residuals=tuple(tf.TensorSpec(t.shape, t.dtype) for t in residuals),
    )


def _ancestors(ends: Sequence[tf.Operation]) -> set[tf.Operation]:
    """All operations that the given ones need, themselves included."""
    seen: set[tf.Operation] = set()
    waiting = list(ends)
    while waiting:
        operation = waiting.pop()
        if operation not in seen:
            seen.add(operation)
            waiting += [tensor.op for tensor in operation.inputs]
            waiting += list(operation.control_inputs)
    return seen


def _sources(operation: tf.Operation) -> list[tf.Operation]:
    """The operations whose results it reads."""
    return [tensor.op for tensor in operation.inputs]


def _crossing(
    behind: set[tf.Operation], ahead: set[tf.Operation], graph: tf.Graph
) -> list[tf.Tensor]:
    """Tensors made by `ahead` that operations in `behind` read and that differ from call to call.

    Constants, weights and what is computed from those alone are left out: the backward function
    makes them again. Inputs of the graph are left out too; the caller has them.
    """
    varying: set[tf.Operation] = set()
    for operation in graph.get_operations():  # In the order of creation: inputs come first.
        if operation.type == "Placeholder":
            # A captured variable's handle is a placeholder too.
            varies = operation.outputs[0].dtype != tf.resource
        else:
            # A random number drawn from a generator with state would come out different.
            has_state = operation.op_def.is_stateful and operation.type not in _READS
            varies = has_state or any(tensor.op in varying for tensor in operation.inputs)
        if varies:
            varying.add(operation)
    crossing = {
        tensor.name: tensor
        for operation in behind
        for tensor in operation.inputs
        if tensor.op in ahead and tensor.op in varying and tensor.op.type != "Placeholder"
    }
    return [crossing[name] for name in sorted(crossing)]


def accumulate_all(
    accumulators: Sequence[tf.Variable],
    gradients: Sequence[tf.Tensor | tf.IndexedSlices | None],
) -> tf.Tensor:
    """Adds every gradient to its accumulator; returns a scalar that exists once that is done.

    A function called as an operation runs what its results depend on and nothing else, so the
    additions need a result that waits for them. A gradient of None (an unused weight) adds nothing.
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
