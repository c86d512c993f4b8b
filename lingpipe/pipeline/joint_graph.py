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

Work on weights alone, such as a cast to bfloat16, is the same in every micro-batch: it is a part of
its own, run once a step, and all others are given what it returns.

No operation runs on both sides of a cut, except what rematerialisation asks for. That moves the cut
and nothing else: what `tf.recompute_grad` computes again lies on the backward side already; or the
residuals are chosen (see residuals.py), and the backward function holds a second copy of what lies
between them and the tensors that it reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.pipeline.effects import SHAPES, copy_of
from lingpipe.pipeline.graph_function import (
    READS,
    GraphFunction,
    ancestors_of,
    has_state,
    inputs_of,
    inputs_read,
    part_of_graph,
    sources_of,
    trace,
)
from lingpipe.pipeline.graph_work import FREE_OPERATIONS


@dataclasses.dataclass(frozen=True)
class TracedCell:
    """One cell in the graph under construction.

    Attributes:
      operations: those of its forward pass.
      output_gradients: gradients of its floating outputs; None for one that has none.
    """

    operations: frozenset[tf.Operation]
    output_gradients: Sequence[tf.Tensor | None]


@dataclasses.dataclass(frozen=True)
class Traced:
    """What a traced function hands to `trace_and_cut`: tensors of the graph under construction.

    Attributes:
      outputs: nested structure of what the forward pass returns.
      output_gradients: placeholders of the gradients that the backward pass is given.
      input_gradients: gradients that the backward pass returns.
      done: a tensor that exists once the weights' gradients have been accumulated.
      done_early: one that exists once those have been accumulated that must not wait for the
        second part of a backward pass that is cut in two; None if all may wait.
      cells: the cells, in order, where residuals are chosen.
      checked: pairs of a tensor that the backward pass computes again, and its first value.
    """

    outputs: Any
    output_gradients: list[tf.Tensor]
    input_gradients: list[tf.Tensor]
    done: tf.Tensor
    done_early: tf.Tensor | None = None
    cells: Sequence[TracedCell] = ()
    checked: Sequence[tuple[tf.Tensor, tf.Tensor]] = ()


@dataclasses.dataclass(frozen=True)
class Cut:
    """The operations on both sides of a cut, and the tensors that cross it.

    An operation on both sides runs twice: what it returns is computed again.

    Attributes:
      ahead: what the forward pass runs.
      behind: what the backward pass runs.
      varying: all operations whose results differ from call to call.
      crossing: tensors made ahead and read behind, inputs and what does not vary left out.
    """

    ahead: set[tf.Operation]
    behind: set[tf.Operation]
    varying: set[tf.Operation]
    crossing: list[tf.Tensor]


# Moves some operations of the first cut to both of its sides.
Chooser = Callable[[Any, Traced, Cut], Cut]


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
      step_constants: nothing -> what is made of weights alone; None if there is no such thing.
      read_inputs: positions of the flat inputs that any part reads; others need not be there.
      forward: the inputs of `read_inputs` + step constants -> outputs + residuals.
      kept_inputs: positions, among those of `read_inputs`, of what the backward pass reads.
      residuals: specs of the tensors that cross the cut, inputs not among them.
      backward: residuals + the inputs of `kept_inputs` + output gradients + step constants -> input
        gradients and then `Traced.done`, or instead of it, where there is a `weight_part`, what
        that is handed (and `Traced.done_early`, if there is one, at the end).
      num_input_gradients: number of gradients that `backward` returns first.
      weight_part: what is left of the backward pass; None where `backward` is all of it.
    """

    outputs: Any
    num_outputs: int
    step_constants: GraphFunction | None
    read_inputs: tuple[int, ...]
    forward: GraphFunction
    kept_inputs: tuple[int, ...]
    residuals: tuple[tf.TensorSpec, ...]
    backward: GraphFunction
    num_input_gradients: int
    weight_part: WeightPart | None


def trace_and_cut(
    joint: Callable[..., Traced],
    signature: Sequence[tf.TensorSpec],
    *,
    split_backward: bool = False,
    choose_residuals: Chooser | None = None,
) -> CutGraph:
    """Traces `joint` once and cuts its graph.

    Args:
      joint: called with one placeholder for each entry of `signature`, in graph mode.
      signature: specs of the flat inputs; unknown dimensions stay open, so nothing retraces.
      split_backward: True cuts the backward pass once more, at the input gradients.
      choose_residuals: called with the traced function, what `joint` returned and the cut that
        keeps all; returns the cut to make. None keeps all.
    """
    found: list[Traced] = []

    def record(*inputs: tf.Tensor) -> list[tf.Tensor]:
        found.append(joint(*inputs))
        return tf.nest.flatten(found[0].outputs)

    whole = trace(record, signature)
    traced = found[0]
    outputs = tf.nest.flatten(traced.outputs)
    early = [] if traced.done_early is None else [traced.done_early]
    ends = [*traced.input_gradients, traced.done]
    varying = _varying(whole.graph)
    constants = _step_constants(whole.graph, varying)
    first_values = [first for _, first in traced.checked]
    cut = _cut(ancestors_of([*outputs, *first_values]), ancestors_of([*ends, *early]), varying)
    if choose_residuals:
        cut = choose_residuals(whole, traced, cut)
    read = inputs_read(whole, cut.ahead | cut.behind)
    inputs = [whole.inputs[i] for i in read]
    kept = _positions_read(inputs, cut.behind)
    arguments = [*cut.crossing, *(inputs[i] for i in kept), *traced.output_gradients, *constants]
    waits = _waits(traced.cells, cut)
    if split_backward:
        backward, weight_part = _cut_again(whole, traced, cut, arguments, waits)
    else:
        over = cut.ahead - cut.behind
        backward, weight_part = part_of_graph(whole, arguments, ends, over, waits=waits), None
    return CutGraph(
        outputs=tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), traced.outputs),
        num_outputs=len(outputs),
        step_constants=part_of_graph(whole, [], constants) if constants else None,
        read_inputs=read,
        forward=part_of_graph(
            whole, [*inputs, *constants], [*outputs, *_handed_out(cut.crossing, whole.graph)]
        ),
        kept_inputs=kept,
        residuals=_specs(cut.crossing),
        backward=backward,
        num_input_gradients=len(traced.input_gradients),
        weight_part=weight_part,
    )


def _cut_again(
    whole: Any,
    traced: Traced,
    cut: Cut,
    arguments: list[tf.Tensor],
    waits: Mapping[tf.Operation, tf.Operation],
) -> tuple[GraphFunction, WeightPart]:
    """Cuts what lies behind the first cut at the input gradients.

    Args:
      whole: the traced function.
      traced: its tensors.
      cut: the first cut.
      arguments: what the backward pass is given.
      waits: as for `part_of_graph`.

    Returns:
      the part that ends with the input gradients and what it hands on, and the rest.
    """
    early = [] if traced.done_early is None else [traced.done_early]
    over = cut.ahead - cut.behind
    first = ancestors_of([*traced.input_gradients, *early]) & cut.behind
    again = _cut(over | first, cut.behind | over, cut.varying)
    given = {tensor.name for tensor in arguments}
    crossing = [tensor for tensor in again.crossing if tensor.name not in given]
    kept = _positions_read(arguments, again.behind)
    ends = [*traced.input_gradients, *_handed_out(crossing, whole.graph), *early]
    feeds = [*crossing, *(arguments[i] for i in kept)]
    function = part_of_graph(whole, feeds, [traced.done], again.ahead, waits=waits)
    return (
        part_of_graph(whole, arguments, ends, over, waits=waits),
        WeightPart(function, _specs(crossing), kept),
    )


def _cut(ahead: set[tf.Operation], every: set[tf.Operation], varying: set[tf.Operation]) -> Cut:
    """The cut behind `ahead`, with as many of the other operations of `every` as belong there.

    A tensor of which those behind the cut need the shape alone is not kept for that.
    """
    behind = every - ahead
    shapes = {op for op in behind if op.type in SHAPES and ahead.issuperset(sources_of(op))}
    ahead, behind = ahead | shapes, behind - shapes
    read = {tensor.name: tensor for op in behind for tensor in inputs_of(op)}
    crossing = [
        read[name]
        for name in sorted(read)
        if read[name].op in ahead & varying and read[name].op.type != "Placeholder"
    ]
    return Cut(ahead, behind, varying, crossing)


def _varying(graph: tf.Graph) -> set[tf.Operation]:
    """The operations whose results differ from call to call.

    Constants, weights and what is computed from those alone do not.
    """
    varying: set[tf.Operation] = set()
    for operation in graph.get_operations():  # In the order of creation: inputs come first.
        if operation.type == "Placeholder":
            # A captured variable's handle is a placeholder too.
            varies = operation.outputs[0].dtype != tf.resource
        else:
            # A random number drawn from a generator with state would come out different.
            varies = has_state(operation) or not varying.isdisjoint(sources_of(operation))
        if varies:
            varying.add(operation)
    return varying


def _step_constants(graph: tf.Graph, varying: set[tf.Operation]) -> list[tf.Tensor]:
    """The tensors to compute once a step: made of weights alone, by more than a look at them."""
    of_weights: set[tf.Operation] = set()
    costly: set[tf.Operation] = set()
    read: dict[str, tf.Tensor] = {}
    for operation in graph.get_operations():
        if operation not in varying:
            sources = sources_of(operation)
            if operation.type in READS or not of_weights.isdisjoint(sources):
                of_weights.add(operation)
            if operation in of_weights and operation.type not in FREE_OPERATIONS:
                costly.add(operation)
        if operation not in costly:
            read |= {t.name: t for t in inputs_of(operation) if t.op in costly}
    return [read[name] for name in sorted(read)]


def _waits(cells: Sequence[TracedCell], cut: Cut) -> dict[tf.Operation, tf.Operation]:
    """What runs again -> what it waits for: a gradient that its cell's backward pass starts from.

    Without it all of a stage would be computed again at once, as soon as its inputs are there. An
    operation that this gradient itself needs, for a cell further down, waits for nothing.
    """
    waits: dict[tf.Operation, tf.Operation] = {}
    again = cut.ahead & cut.behind
    for cell in cells:
        gradients = [gradient for gradient in cell.output_gradients if gradient is not None]
        made = [g for g in gradients if g.op in cut.behind and g.op.type != "Placeholder"]
        if not made:
            continue
        needed = ancestors_of(made[:1])
        waits |= {op: made[0].op for op in again & cell.operations if op not in needed}
    return waits


def _handed_out(tensors: Sequence[tf.Tensor], graph: tf.Graph) -> list[tf.Tensor]:
    """Equal tensors that a function may return."""
    with graph.as_default():
        return [copy_of(tensor) if tensor.op.type in SHAPES else tensor for tensor in tensors]


def _positions_read(tensors: Sequence[tf.Tensor], readers: set[tf.Operation]) -> tuple[int, ...]:
    """Positions of those tensors that some of the operations read."""
    read = {tensor.name for operation in readers for tensor in inputs_of(operation)}
    return tuple(i for i, tensor in enumerate(tensors) if tensor.name in read)


def _specs(tensors: Sequence[tf.Tensor]) -> tuple[tf.TensorSpec, ...]:
    return tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors)
