"""One traced graph of a stage's computation, cut into a forward and a backward function.

Tracing a stage's forward pass and the gradients from a given output gradient into ONE graph costs a
trace only once and settles by itself what must be kept in between:

    inputs --> [ forward: all that the outputs need ] --> outputs
                     | residuals: tensors that cross the cut
    output gradients --> [ backward: all the rest ] --> input gradients, accumulated weight gradients

Rematerialisation moves the cut and nothing else: what `tf.recompute_grad` computes again lies on
the backward side. Weights are captured variables; both functions read them where they lie, so that
they never cross. `tf.compat.v1.wrap_function(...).prune(feeds, fetches)` is the cutting tool.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# Operations whose result is given from outside the graph, or is a constant of it.
_SOURCES = ("Placeholder", "Const", "VarHandleOp")


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


class StageFunction:
    """A function of flat tensors, called with as little ado as TensorFlow offers.

    Calling a pruned `ConcreteFunction` directly matches its arguments against signatures in Python
    and costs 1 to 4 ms; the operation that it would run in the end costs 0.1 ms.
    """

    def __init__(self, concrete: Any) -> None:
        """Wraps a `ConcreteFunction` and the variables that it captured."""
        self._concrete = concrete
        self._captured = list(concrete.captured_inputs)
        self._dtypes = [tensor.dtype for tensor in concrete.outputs]

    def __call__(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Runs on the current device; `inputs` must lie there."""
        return tf.raw_ops.StatefulPartitionedCall(
            args=[*inputs, *self._captured], Tout=self._dtypes, f=self._concrete
        )


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
    forward: StageFunction
    backward: StageFunction
    kept_inputs: tuple[int, ...]
    residuals: tuple[tf.TensorSpec, ...]


def trace_and_cut(
    joint: Callable[..., Traced], signature: Sequence[tf.TensorSpec]
) -> CutGraph:
    """Traces `joint` once and cuts its graph.

    Args:
      joint: called with one placeholder for each entry of `signature`, in graph mode.
      signature: specs of the flat inputs; unknown dimensions stay open, so nothing retraces.
    """
    found: list[Traced] = []

    def record(*inputs: tf.Tensor) -> list[tf.Tensor]:
        found.append(joint(*inputs))
        return tf.nest.flatten(found[0].outputs)

    graph = tf.compat.v1.wrap_function(record, list(signature))
    traced = found[0]
    inputs = graph.inputs[: len(signature)]
    outputs = tf.nest.flatten(traced.outputs)
    ahead = _ancestors([tensor.op for tensor in outputs])
    ends = [*traced.input_gradients, traced.done]
    behind = _ancestors([tensor.op for tensor in ends])
    residuals = _crossing(behind - ahead, ahead)
    kept = tuple(i for i, tensor in enumerate(inputs) if tensor.op in behind)
    feeds = [*residuals, *(inputs[i] for i in kept), *traced.output_gradients]
    return CutGraph(
        outputs=tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), traced.outputs),
        num_outputs=len(outputs),
        forward=StageFunction(graph.prune(inputs, [*outputs, *residuals])),
        backward=StageFunction(graph.prune(feeds, ends)),
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


def _crossing(behind: set[tf.Operation], ahead: set[tf.Operation]) -> list[tf.Tensor]:
    """Tensors made by `ahead` that operations in `behind` read, weights and constants left out."""
    weights_only: dict[tf.Operation, bool] = {}

    def depends_on_weights_only(operation: tf.Operation) -> bool:
        """True for constants, variables, reads of them, and what is computed from those alone."""
        if operation not in weights_only:
            if operation.type == "Placeholder":
                # A captured variable's handle is a placeholder too.
                answer = operation.outputs[0].dtype == tf.resource
            else:
                answer = operation.type in _SOURCES or (
                    bool(operation.inputs)
                    and all(depends_on_weights_only(tensor.op) for tensor in operation.inputs)
                )
            weights_only[operation] = answer
        return weights_only[operation]

    crossing = {
        tensor.name: tensor
        for operation in behind
        for tensor in operation.inputs
        if tensor.op in ahead
        and tensor.op.type not in _SOURCES
        and not depends_on_weights_only(tensor.op)
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
