"""Functions cut in two for a test, and held against an eager `tf.GradientTape`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.pipeline.joint_graph import (
    CutGraph,
    Traced,
    accumulate_all,
    trace_and_cut,
    with_effects,
)

Function = Callable[..., Any]


@dataclasses.dataclass
class Cut:
    """A function cut in two, with accumulators for its weights."""

    graph: CutGraph
    accumulators: list[tf.Variable]

    def forward(self, *inputs: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Flat outputs, and what to keep."""
        results = self.graph.forward(*inputs)
        kept = [inputs[i] for i in self.graph.kept_inputs]
        count = self.graph.num_outputs
        return results[:count], [*results[count:], *kept]

    def backward(self, kept: list[tf.Tensor], *gradients: tf.Tensor) -> list[tf.Tensor]:
        return self.graph.backward(*kept, *gradients)[:-1]


def cut(
    function: Function, weights: Sequence[tf.Variable], signature: Sequence[tf.TensorSpec]
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

    return Cut(trace_and_cut(joint, signature), accumulators)


def floating(structure: Any) -> list[tf.Tensor]:
    return [tensor for tensor in tf.nest.flatten(structure) if tensor.dtype.is_floating]


def assert_equals_tape(
    function: Function, weights: Sequence[tf.Variable], *inputs: tf.Tensor, runs: int = 2
) -> Cut:
    """Runs both ways, twice over the same accumulators, and compares all that comes out."""
    signature = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in inputs]
    both = cut(function, weights, signature)
    with tf.GradientTape() as tape:
        tape.watch(floating(inputs))
        expected = function(*inputs)
    ends = floating(expected)
    gradients = [tf.cast(tf.reshape(tf.range(tf.size(y)), y.shape), y.dtype) + 1 for y in ends]
    zero = tf.UnconnectedGradients.ZERO
    of_inputs, of_weights = tape.gradient(
        ends, [floating(inputs), list(weights)], gradients, unconnected_gradients=zero
    )
    for _ in range(runs):
        outputs, kept = both.forward(*inputs)
        found = both.backward(kept, *gradients)
        assert_close(outputs, tf.nest.flatten(expected))
        assert_close(found, of_inputs)
    assert_close(both.accumulators, [runs * tf.convert_to_tensor(g) for g in of_weights])
    packed = tf.nest.pack_sequence_as(both.graph.outputs, outputs)
    tf.nest.assert_same_structure(packed, expected)
    return both


def assert_close(found: Sequence[Any], expected: Sequence[Any]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, tf.convert_to_tensor(b), rtol=1e-5, atol=1e-6)


def crossing(both: Cut) -> list[tf.TensorSpec]:
    """What the forward half hands to the backward half, besides inputs and mere shapes."""
    return [spec for spec in both.graph.residuals if spec.dtype != tf.int32]
