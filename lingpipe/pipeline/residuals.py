"""Chooses what a stage keeps between its passes, tensor by tensor, so that it fits a limit.

    none, layer, stage     fixed rules: see rematerialise.py
    auto                   the least work done again for the bytes that there are

The joint graph is traced with everything kept. From its forward part a plain description is made,
of what every tensor takes and what it costs to make it again; recomputation.py picks the tensors to
keep; and the cut moves: the backward function gets a copy of the operations that run again.

Since the graph itself is run again, and not a cell's Python code, nothing is drawn or counted anew:
operations with state are never run again, their results are kept.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.pipeline.graph_function import has_state, inputs_of, with_shapes
from lingpipe.pipeline.graph_work import work_of
from lingpipe.pipeline.joint_graph import Cut, Traced
from lingpipe.pipeline.memory import format_bytes
from lingpipe.pipeline.recomputation import ForwardPass, Operation, Value, cheapest, keep_within


@dataclasses.dataclass(frozen=True)
class Residuals:
    """What was chosen for a stage, for one typical micro-batch.

    Attributes:
      kept_bytes: bytes kept between the passes.
      all_bytes: bytes that would be kept if nothing were computed again.
      least_bytes: bytes below which nothing more can be given up.
      limit: bytes that might be kept.
      work_again: work that the backward pass does again, in FLOPs; see graph_work.py.
      work: work of the forward pass.
      kinds_again: kind of operation -> its part of `work_again`, the largest first.
    """

    kept_bytes: int
    all_bytes: int
    least_bytes: int
    limit: float
    work_again: float
    work: float
    kinds_again: dict[str, float]

    @property
    def share_again(self) -> float:
        """Share of the forward pass's work that is done again."""
        return self.work_again / self.work if self.work else 0.0


def residuals_in_words(stages: Mapping[int, Residuals]) -> str:
    """What was chosen for each stage, a line each, for people."""
    lines = []
    for index, chosen in stages.items():
        kinds = [
            f"{kind} {work / chosen.work:.1%}" for kind, work in chosen.kinds_again.items() if work
        ]
        most = f" ({', '.join(kinds[:_MOST_KINDS])})" if kinds else ""
        lines.append(
            f"stage {index} keeps {format_bytes(chosen.kept_bytes)} of "
            f"{format_bytes(chosen.all_bytes)} a micro-batch: {chosen.share_again:.1%} of its "
            f"forward pass is computed again{most}"
        )
    return "".join(f"{line}\n" for line in lines)


class ResidualChooser:
    """Makes the cut that keeps no more than a limit; given to `trace_and_cut`.

    Attributes:
      chosen: what was chosen; there after the call.
      output_specs: the specs of the function's flat outputs in a typical micro-batch; likewise.
    """

    chosen: Residuals
    output_specs: list[tf.TensorSpec]

    def __init__(self, limit: float, typical: Sequence[tf.TensorSpec]) -> None:
        """Chooses nothing yet.

        Args:
          limit: bytes that one micro-batch may keep.
          typical: specs of the flat inputs in a typical micro-batch, every dimension known.
        """
        self._limit = limit
        self._typical = list(typical)

    def __call__(self, whole: Any, traced: Traced, cut: Cut) -> Cut:
        """The cut to make in place of the one that keeps all; see `trace_and_cut`."""
        shaped = with_shapes(whole, self._typical)
        forward = _Forward(whole, traced, cut, shaped, len(self._typical))
        choice = keep_within(forward.described, self._limit)
        everything = cheapest(forward.described, _LEAST_PRICE)
        again = {forward.operations[number] for number in choice.rerun}
        kept = {forward.tensors[number].name: forward.tensors[number] for number in choice.kept}
        self.output_specs = [
            tf.TensorSpec(_shaped(tensor, shaped).shape, tensor.dtype)
            for tensor in tf.nest.flatten(traced.outputs)
        ]
        kinds: dict[str, float] = collections.defaultdict(float)
        for number in choice.rerun:
            kinds[forward.operations[number].type] += forward.described.operations[number].work
        self.chosen = Residuals(
            kept_bytes=choice.kept_bytes,
            all_bytes=everything.kept_bytes,
            least_bytes=cheapest(forward.described, _HIGHEST_PRICE).kept_bytes,
            limit=self._limit,
            work_again=choice.work,
            work=sum(work_of(shaped[operation.name]) for operation in forward.operations),
            kinds_again=dict(sorted(kinds.items(), key=lambda kind: -kind[1])),
        )
        return dataclasses.replace(
            cut,
            behind=cut.behind | again,
            crossing=[kept[name] for name in sorted(kept) if kept[name].op.type != "Placeholder"],
        )


# Kinds of operations to name in words.
_MOST_KINDS = 4

# Prices at which no byte, and every byte, is worth any work.
_LEAST_PRICE, _HIGHEST_PRICE = 1e-9, 1e9


class _Forward:
    """The forward part of a joint graph, and its description in numbers.

    Attributes:
      tensors: those that differ from call to call, inputs first.
      operations: those that make them, in an order in which they can run.
      described: values and operations, numbered as in the two lists.
    """

    def __init__(
        self,
        whole: Any,
        traced: Traced,
        cut: Cut,
        shaped: dict[str, tf.Operation],
        num_inputs: int,
    ) -> None:
        self.operations = [
            op
            for op in whole.graph.get_operations()
            if op in cut.ahead and op in cut.varying and op.type != "Placeholder"
        ]
        self.tensors = [
            *whole.inputs[:num_inputs],
            *(tensor for op in self.operations for tensor in op.outputs),
        ]
        again = {tensor.name for tensor, _ in traced.checked}
        first = {tensor.op.name for _, tensor in traced.checked}
        numbers = {tensor.name: number for number, tensor in enumerate(self.tensors)}
        makers = {op.name: number for number, op in enumerate(self.operations)}

        def read_by(operation: tf.Operation) -> tuple[int, ...]:
            read = {tensor.name for tensor in inputs_of(operation)}
            return tuple(sorted(numbers[name] for name in read if name in numbers))

        def work(operation: tf.Operation) -> float:
            is_kept = has_state(operation) or operation.name in first
            return math.inf if is_kept else float(work_of(shaped[operation.name]))

        self.described = ForwardPass(
            values=tuple(
                Value(
                    makers.get(tensor.op.name),
                    math.inf if tensor.name in again else _bytes(_shaped(tensor, shaped)),
                )
                for tensor in self.tensors
            ),
            operations=tuple(Operation(read_by(op), work(op)) for op in self.operations),
            needed=frozenset(number for op in cut.behind for number in read_by(op)),
        )


def _shaped(tensor: tf.Tensor, shaped: dict[str, tf.Operation]) -> tf.Tensor:
    """The tensor of the copy whose shapes are known."""
    return shaped[tensor.op.name].outputs[tensor.value_index]


def _bytes(tensor: tf.Tensor) -> int:
    """Its bytes; a dimension that depends on values counts as one."""
    dims = [] if tensor.shape.rank is None else tensor.shape.as_list()
    return math.prod(dim or 1 for dim in dims) * tensor.dtype.size
