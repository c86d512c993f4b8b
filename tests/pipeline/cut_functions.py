"""Functions cut in two or three for a test, and held against an eager `tf.GradientTape`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.pipeline.effects import accumulate_all, with_effects
from lingpipe.pipeline.joint_graph import CutGraph, Traced, trace_and_cut

Function = Callable[..., Any]


@dataclasses.dataclass
class Cut:
    """A function cut in parts, with accumulators for its weights."""

    graph: CutGraph
    accumulators: list[tf.Variable]

    @property
    def step_constants(self) -> list[tf.Tensor]:
        """What is made of weights alone."""
        return self.graph.step_constants() if self.graph.step_constants else []

    def forward(self, *inputs: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Flat outputs, and what to keep."""
        read = [inputs[i] for i in self.graph.read_inputs]
        results = self.graph.forward(*read, *self.step_constants)
        kept = [read[i] for i in self.graph.kept_inputs]
        count = self.graph.num_outputs
        return results[:count], [*results[count:], *kept]

    def backward(self, kept: list[tf.Tensor], *gradients: tf.Tensor) -> list[tf.Tensor]:
        """The input gradients; the weights' are accumulated, by a second part if there is one."""
        arguments = [*kept, *gradients, *self.step_constants]
        results = self.graph.backward(*arguments)
        count = self.graph.num_input_gradients
        part = self.graph.weight_part
        if part:
            part.function(*results[count:], *(arguments[i] for i in part.kept_arguments))
        return results[:count]


def cut(
    function: Function,
    weights: Sequence[tf.Variable],
    signature: Sequence[tf.TensorSpec],
    *,
    split_backward: bool = False,
) -> Cut:
    accumulators = [tf.Variable(tf.zeros_like(weight)) for weight in weights]

    def joint(*inputs: tf.Tensor) -> Traced:
        floats = floating(inputs)
        with tf.GradientTape() as tape:
            tape.watch(floats)
            outputs = with_effects(lambda: function(*inputs))
        ends = floating(outputs)
        given = [tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in ends]
        of_inputs, of_weights = tape.gradient(ends, [floats, list(weights)], given)
        return Traced(
            outputs=outputs,
            output_gradients=given,
            input_gradients=[
                tf.zeros_like(tensor) if gradient is None else tf.convert_to_tensor(gradient)
                for tensor, gradient in zip(floats, of_inputs, strict=True)
            ],
            done=accumulate_all(accumulators, of_weights),
        )

    return Cut(trace_and_cut(joint, signature, split_backward=split_backward), accumulators)


def floating(structure: Any) -> list[tf.Tensor]:
    return [tensor for tensor in tf.nest.flatten(structure) if tensor.dtype.is_floating]


def assert_equals_tape(
    function: Function, weights: Sequence[tf.Variable], *inputs: tf.Tensor, runs: int = 2
) -> Cut:
    """Runs the function, cut in two and in three, and compares all that comes out with a tape.

    Each runs twice over the same accumulators. Returns the one that is cut in two.
    """
    signature = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(floating(inputs))
        expected = function(*inputs)
    ends = floating(expected)
    gradients = [tf.cast(tf.reshape(tf.range(tf.size(y)), y.shape), y.dtype) + 1 for y in ends]
    zero = tf.UnconnectedGradients.ZERO
    of_inputs, of_weights = tape.gradient(
        ends, [floating(inputs), list(weights)], gradients, unconnected_gradients=zero
    )
    in_two, in_three = (cut(function, weights, signature, split_backward=s) for s in (False, True))
    for parts in (in_two, in_three):
        for _ in range(runs):
            outputs, kept = parts.forward(*inputs)
            found = parts.backward(kept, *gradients)
            assert_close(outputs, tf.nest.flatten(expected))
            assert_close(found, of_inputs)
        assert_close(parts.accumulators, [runs * tf.convert_to_tensor(g) for g in of_weights])
        packed = tf.nest.pack_sequence_as(parts.graph.outputs, outputs)
        tf.nest.assert_same_structure(packed, expected)
    return in_two


def assert_close(found: Sequence[Any], expected: Sequence[Any]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, tf.convert_to_tensor(b), rtol=1e-5, atol=1e-6)


def crossing(both: Cut) -> list[tf.TensorSpec]:
    """What the forward half hands to the backward half, besides inputs and mere shapes."""
    return [spec for spec in both.graph.residuals if spec.dtype != tf.int32]
