"""One traced graph of a stage's computation, cut into a forward and one or two backward functions.

Tracing a stage's forward pass and the gradients from a given output gradient into ONE graph costs a
trace only once and settles by itself what must be kept in between:

    inputs --> [ forward: all that the outputs need ] --> outputs
                     | residuals: tensors that cross the cut
    output gradients --> [ backward: all the rest ] --> input gradients, summed weight gradients

A schedule that fills bubbles with weight gradients (Qi et al. 2023) asks for one more cut:

    output gradients --> [ backward: all that the input gradients need ] --> input gradients
                               | what crosses the second cut
          residuals  --> [ weight part: all the rest ] --> summed weight gradients

No operation runs on both sides of a cut, except on weights alone: those are captured variables,
every function reads them where they lie, and neither they nor what is made of them crosses.
Rematerialisation moves the cut and nothing else: what `tf.recompute_grad` computes again lies on
the backward side, and of that what the input gradients need lies before the second cut.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.pipeline.graph_function import GraphFunction, inputs_of, origin, part_of_graph, trace

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
class WeightPart:
    """The second part of a backward pass that is cut in two.

    Attributes:
      function: the tensors of `crossing` + the arguments of the first part at `kept_arguments` ->
        `Traced.done`.
      crossing: specs of what the first part hands on, its own arguments not among them.
      kept_arguments: positions of the first part's arguments that this one reads.
    """

    function: GraphFunction
    crossing: tuple[tf.TensorSpec, ...]
    kept_arguments: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class CutGraph:
    """The parts of a joint graph.

    Attributes:
      outputs: nested structure of `tf.TensorSpec`, what the forward pass returns.
      num_outputs: number of tensors in it; the forward function's other results are residuals.
      forward: flat inputs -> outputs + residuals.
      kept_inputs: positions of the flat inputs that the backward pass reads.
      residuals: specs of the tensors that cross the cut, inputs not among them.
      backward: residuals + the inputs of `kept_inputs` + output gradients -> input gradients and
        then `Traced.done`, or instead of it, where there is a `weight_part`, what that is handed.
      num_input_gradients: number of gradients that `backward` returns first.
      weight_part: what is left of the backward pass; None where `backward` is all of it.
    """

    outputs: Any
    num_outputs: int
    forward: GraphFunction
    kept_inputs: tuple[int, ...]
    residuals: tuple[tf.TensorSpec, ...]
    backward: GraphFunction
    num_input_gradients: int
    weight_part: WeightPart | None


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
    needed = _ancestors(tf.nest.flatten(outputs))
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
    source = origin(tensor).op
    while source.type == "Identity":
        source = origin(source.inputs[0]).op
    if source.type in _SHAPES and tensor.dtype == tf.int32:
        return tf.cast(tf.cast(tensor, tf.int64), tf.int32)
    return tf.identity(tensor)


def trace_and_cut(
    joint: Callable[..., Traced],
    signature: Sequence[tf.TensorSpec],
    *,
    split_backward: bool = False,
) -> CutGraph:
    """Traces `joint` once and cuts its graph.

    Args:
      joint: called with one placeholder for each entry of `signature`, in graph mode.
      signature: specs of the flat inputs; unknown dimensions stay open, so nothing retraces.
      split_backward: True cuts the backward pass once more, at the input gradients.
    """
    found: list[Traced] = []

    def record(*inputs: tf.Tensor) -> list[tf.Tensor]:
        found.append(joint(*inputs))
        return tf.nest.flatten(found[0].outputs)

    whole = trace(record, signature)
    traced = found[0]
    inputs = whole.inputs[: len(signature)]
    outputs = tf.nest.flatten(traced.outputs)
    ends = [*traced.input_gradients, traced.done]
    cut = _cut(_ancestors(outputs), _ancestors(ends), whole.graph)
    kept = _positions_read(inputs, cut.behind)
    arguments = [*cut.crossing, *(inputs[i] for i in kept), *traced.output_gradients]
    if split_backward:
        backward, weight_part = _cut_again(whole, traced, cut, arguments)
    else:
        backward, weight_part = part_of_graph(whole, arguments, ends, cut.ahead), None
    return CutGraph(
        outputs=tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), traced.outputs),
        num_outputs=len(outputs),
        forward=part_of_graph(whole, inputs, [*outputs, *_handed_out(cut.crossing, whole.graph)]),
        kept_inputs=kept,
        residuals=_specs(cut.crossing),
        backward=backward,
        num_input_gradients=len(traced.input_gradients),
        weight_part=weight_part,
    )


def _cut_again(
    whole: Any, traced: Traced, cut: _Cut, arguments: list[tf.Tensor]
) -> tuple[GraphFunction, WeightPart]:
    """Cuts what lies behind the first cut at the input gradients.

    Args:
      whole: the traced function.
      traced: its tensors.
      cut: the first cut.
      arguments: what the backward pass is given.

    Returns:
      the part that ends with the input gradients and what it hands on, and the rest.
    """
    first = _ancestors(traced.input_gradients) & cut.behind
    again = _cut(cut.ahead | first, cut.behind, whole.graph)
    given = {tensor.name for tensor in arguments}
    crossing = [tensor for tensor in again.crossing if tensor.name not in given]
    kept = _positions_read(arguments, again.behind)
    ends = [*traced.input_gradients, *_handed_out(crossing, whole.graph)]
    feeds = [*crossing, *(arguments[i] for i in kept)]
    function = part_of_graph(whole, feeds, [traced.done], already_run=again.ahead)
    return (
        part_of_graph(whole, arguments, ends, already_run=cut.ahead),
        WeightPart(function, _specs(crossing), kept),
    )


@dataclasses.dataclass(frozen=True)
class _Cut:
    """The operations on both sides of a cut, and the tensors that cross it."""

    ahead: set[tf.Operation]
    behind: set[tf.Operation]
    crossing: list[tf.Tensor]


def _cut(ahead: set[tf.Operation], every: set[tf.Operation], graph: tf.Graph) -> _Cut:
    """The cut behind `ahead`, with as many of the other operations of `every` as belong there.

    A tensor of which those behind the cut need the shape alone is not kept for that.
    """
    behind = every - ahead
    shapes = {op for op in behind if op.type in _SHAPES and ahead.issuperset(_sources(op))}
    ahead, behind = ahead | shapes, behind - shapes
    return _Cut(ahead, behind, _crossing(behind, ahead, graph))


def _handed_out(tensors: Sequence[tf.Tensor], graph: tf.Graph) -> list[tf.Tensor]:
    """Equal tensors that a function may return."""
    with graph.as_default():
        return [_copy(tensor) if tensor.op.type in _SHAPES else tensor for tensor in tensors]


def _positions_read(tensors: Sequence[tf.Tensor], readers: set[tf.Operation]) -> tuple[int, ...]:
    """Positions of those tensors that some of the operations read."""
    read = {tensor.name for operation in readers for tensor in inputs_of(operation)}
    return tuple(i for i, tensor in enumerate(tensors) if tensor.name in read)


def _specs(tensors: Sequence[tf.Tensor]) -> tuple[tf.TensorSpec, ...]:
    return tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors)


def _ancestors(ends: Sequence[tf.Tensor]) -> set[tf.Operation]:
    """All operations that the given tensors need, those that make them included."""
    seen: set[tf.Operation] = set()
    waiting = [origin(tensor).op for tensor in ends]
    while waiting:
        operation = waiting.pop()
        if operation not in seen:
            seen.add(operation)
            waiting += _sources(operation)
            waiting += list(operation.control_inputs)
    return seen


def _sources(operation: tf.Operation) -> list[tf.Operation]:
    """The operations whose results it reads."""
    return [tensor.op for tensor in inputs_of(operation)]


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
            varies = has_state or not varying.isdisjoint(_sources(operation))
        if varies:
            varying.add(operation)
    crossing = {
        tensor.name: tensor
        for operation in behind
        for tensor in inputs_of(operation)
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
