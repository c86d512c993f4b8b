"""Stage functions that XLA compiles: what a TPU requires, and what fuses operations on a GPU.

    joint graph --cut--> parts --compiled_parts--> the same parts, each one program for a shape

The stages are traced and cut as ever, and only then is every part compiled as a whole, the first
time that it meets a shape. Each new shape costs a compilation of every part, a second or so a
stage, so that batches must come in few shapes: `CompiledShapes` counts them.

Results are those of the parts as they were, random masks to the bit; sums are added up in another
order. What runs for its effect alone is another matter:

    sums of gradients    as ever: a part ends when its variables are written
    tf.debugging.assert  not checked: XLA leaves assertions out
    tf.print, Python     cannot be compiled: a `CompilationError` names stage and operation
    tf.random (state)    other numbers than without XLA; context.random_key gives equal ones

A `tf.while_loop` through which gradients flow needs `maximum_iterations`, and its cell to be
computed again: what it keeps of each turn cannot leave a compiled part.

XLA chooses the order in which a part computes: control dependencies between operations without
effects, by which a cell is computed again no earlier than its backward pass, do not bind it. What
crosses a cut, and so what is kept between the passes, is not XLA's to choose.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.pipeline.graph_function import GraphFunction
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.joint_graph import CutGraph
from lingpipe.pipeline.micro_batch import MicroBatch

# Shapes of micro-batches after which a pipeline warns: as many as an input may need that pads to a
# ladder of lengths, with micro-batches of two sizes each. 32 take minutes to compile.
MOST_SHAPES = 32

_logger = logging.getLogger(__name__)


class CompiledFunction(GraphFunction):
    """A function of flat tensors that XLA compiles, once for each of their shapes."""

    def __init__(self, concrete: Any) -> None:
        """Wraps a `ConcreteFunction`, as `GraphFunction` does; nothing is compiled yet."""
        super().__init__(concrete)
        plain = GraphFunction(concrete)
        num_own = len(concrete.inputs) - len(concrete.captured_inputs)
        self._compiled = tf.function(
            # Nothing runs whose results no one asks for; an operation is no result.
            lambda *inputs: plain(*inputs) if concrete.outputs else [],
            input_signature=[tf.TensorSpec(t.shape, t.dtype) for t in concrete.inputs[:num_own]],
            jit_compile=True,
            autograph=False,
        ).get_concrete_function()

    def __call__(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Runs on the current device; `inputs` must lie there."""
        # As an operation it would run without XLA: only a call of the function itself compiles.
        return list(self._compiled(*inputs))


def compiled_parts(graph: CutGraph) -> CutGraph:
    """The same parts, compiled."""
    part = graph.weight_part
    constants = graph.step_constants
    return dataclasses.replace(
        graph,
        step_constants=constants and CompiledFunction(constants.concrete),
        forward=CompiledFunction(graph.forward.concrete),
        backward=CompiledFunction(graph.backward.concrete),
        weight_part=part
        and dataclasses.replace(part, function=CompiledFunction(part.function.concrete)),
    )


class CompiledShapes:
    """Counts the shapes of micro-batches for which stages are compiled, and warns of too many."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Counts by the batch entries `keys`, those that cells read; all other shapes follow."""
        self._keys = tuple(dict.fromkeys(keys))
        self._seen: set[tuple[Inference | None, tuple[tuple[int, ...] | None, ...]]] = set()

    def __len__(self) -> int:
        """Number of different shapes so far, training and each kind of inference counted alone."""
        return len(self._seen)

    def note(self, micro_batches: Sequence[MicroBatch], inference: Inference | None) -> None:
        """Notes what is about to run; logs a warning once, beyond `MOST_SHAPES`.

        Args:
          micro_batches: slices of a mini-batch.
          inference: the kind; None for training.
        """
        before = len(self._seen)
        for micro_batch in micro_batches:
            entries = micro_batch.entries
            shapes = (entries[key].shape if key in entries else None for key in self._keys)
            self._seen.add((inference, tuple(shapes)))
        if before <= MOST_SHAPES < len(self._seen):
            _logger.warning(
                "pipeline.jit_compile: micro-batches came in %d different shapes so far, and XLA "
                "compiles every stage anew for each. Give batches few lengths and equal numbers of "
                "rows, which num_micro_batches divides (input.static_shapes=true does, where the "
                "input has it), or set pipeline.jit_compile=false.",
                len(self._seen),
            )
