"""The two halves of a joint graph do together what `tf.GradientTape` does, and keep what they must.

Every case runs forward, keeps what the forward half hands out, runs backward, and compares outputs
and gradients with an eager tape over the same function.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.graph_function import GraphFunction
from lingpipe.pipeline.joint_graph import WeightPart
from tests.pipeline.cut_functions import (
    Cut,
    assert_close,
    assert_equals_tape,
    crossing,
    cut,
    floating,
)


@pytest.fixture
def kernel() -> tf.Variable:
    return tf.Variable(np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3))


@pytest.fixture
def rows() -> tf.Tensor:
    return tf.constant(np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3))


def test_a_plain_function_equals_the_tape(kernel: tf.Variable, rows: tf.Tensor) -> None:
    assert_equals_tape(lambda x: tf.tanh(x @ kernel), [kernel], rows)


def test_unknown_dimensions_stay_open(kernel: tf.Variable, rows: tf.Tensor) -> None:
    both = cut(lambda x: tf.tanh(x @ kernel), [kernel], [tf.TensorSpec([None, 3])])
    for size in (4, 1, 3):
        (outputs,), kept = both.forward(rows[:size])
        assert outputs.shape == (size, 3)
        (gradient,) = both.backward(kept, tf.ones_like(outputs))
        assert gradient.shape == (size, 3)


def test_structures_with_ids_and_masks_go_in_and_out(kernel: tf.Variable, rows: tf.Tensor) -> None:
    def function(x: tf.Tensor, ids: tf.Tensor, mask: tf.Tensor) -> dict[str, Any]:
        hidden = tf.where(mask[:, None], x @ tf.gather(kernel, ids), x)
        return {
            "both": (hidden, tf.sin(hidden)),
            "ids": ids + 1,
            "mask": tf.logical_not(mask),
            "passed on": x,
        }

    ids = tf.constant([0, 2, 1], tf.int32)
    mask = tf.constant([True, False, True, True])
    both = cut(
        function,
        [kernel],
        [tf.TensorSpec([None, 3]), tf.TensorSpec([3], tf.int32), tf.TensorSpec([None], tf.bool)],
    )
    assert both.graph.outputs["mask"] == tf.TensorSpec([None], tf.bool)
    outputs, kept = both.forward(rows, ids, mask)
    packed = tf.nest.pack_sequence_as(both.graph.outputs, outputs)
    np.testing.assert_array_equal(packed["ids"], [1, 3, 2])
    np.testing.assert_array_equal(packed["mask"], [False, True, False, False])
    np.testing.assert_array_equal(packed["passed on"], rows)
    (gradient,) = both.backward(kept, *[tf.ones([4, 3])] * 3)
    with tf.GradientTape() as tape:
        tape.watch(rows)
        expected = function(rows, ids, mask)
    assert_close([gradient], [tape.gradient(floating(expected), rows)])


def test_an_input_that_nothing_uses_has_a_gradient_of_zeros(
    kernel: tf.Variable, rows: tf.Tensor
) -> None:
    assert_equals_tape(lambda x, _: x @ kernel, [kernel], rows, tf.ones([4, 2]))


def test_an_output_that_does_not_depend_on_inputs_is_fine(rows: tf.Tensor) -> None:
    assert_equals_tape(lambda x: (2 * x, tf.ones([2])), [], rows)


def test_an_unused_weight_accumulates_nothing(kernel: tf.Variable, rows: tf.Tensor) -> None:
    unused = tf.Variable([1.0, 2.0])
    both = assert_equals_tape(lambda x: x @ kernel, [kernel, unused], rows)
    np.testing.assert_array_equal(both.accumulators[1], [0, 0])


def test_rows_of_a_table_are_added_sparsely_also_where_they_repeat() -> None:
    table = tf.Variable(np.arange(10, dtype=np.float32).reshape(5, 2))
    ids = tf.constant([[1, 1], [4, 1]])
    both = assert_equals_tape(lambda i: tf.gather(table, i) ** 2, [table], ids)
    np.testing.assert_array_equal(both.accumulators[0][0], [0, 0])
    operations = {operation.type for operation in both.graph.backward.graph.get_operations()}
    assert "ResourceScatterAdd" in operations


def test_a_table_that_is_read_by_rows_and_as_a_whole_gets_both_gradients(
    rows: tf.Tensor,
) -> None:
    table = tf.Variable(np.arange(15, dtype=np.float32).reshape(5, 3) / 10)
    ids = tf.constant([4, 0, 0, 2])
    assert_equals_tape(
        lambda i, x: (tf.gather(table, i) + x) @ tf.transpose(table), [table], ids, rows
    )


def test_an_input_that_is_read_by_rows_gets_a_dense_gradient(rows: tf.Tensor) -> None:
    ids = tf.constant([2, 0, 2])
    assert_equals_tape(lambda x, i: tf.gather(x, i) ** 2, [], rows, ids)


def test_weights_in_half_precision_accumulate_in_float32(kernel: tf.Variable) -> None:
    rows = tf.constant([[1.0, 2.0, 3.0]], tf.bfloat16)
    both = cut(
        lambda x: x @ tf.cast(kernel, tf.bfloat16),
        [kernel],
        [tf.TensorSpec([None, 3], tf.bfloat16)],
    )
    (outputs,), kept = both.forward(rows)
    (gradient,) = both.backward(kept, tf.ones_like(outputs))
    assert gradient.dtype == tf.bfloat16
    np.testing.assert_array_equal(both.accumulators[0], [[1] * 3, [2] * 3, [3] * 3])


@pytest.mark.parametrize("num_weights", (0, 1))
def test_a_function_of_ids_alone_has_no_gradient_to_give(num_weights: int) -> None:
    table = tf.Variable([[1.0], [3.0]])
    weights = [table][:num_weights]
    both = cut(lambda ids: ids + 1, weights, [tf.TensorSpec([None], tf.int32)])
    (outputs,), kept = both.forward(tf.constant([4, 5]))
    np.testing.assert_array_equal(outputs, [5, 6])
    assert both.backward(kept) == []


def test_a_function_that_calls_a_function_equals_the_tape(
    kernel: tf.Variable, rows: tf.Tensor
) -> None:
    inner = tf.function(lambda x: tf.tanh(x @ kernel))
    assert_equals_tape(lambda x: inner(inner(x)), [kernel], rows)


def test_loops_and_branches_equal_the_tape(kernel: tf.Variable, rows: tf.Tensor) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        (x,) = tf.while_loop(
            lambda y: tf.reduce_sum(y * y) < 100.0, lambda y: (2.0 * y @ kernel + y,), [x]
        )
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.sin(x), lambda: tf.cos(x))

    assert_equals_tape(function, [kernel], rows)


# ------------------------------------------------------------------ what crosses the cut


def test_weights_and_what_is_made_of_them_alone_do_not_cross(
    kernel: tf.Variable, rows: tf.Tensor
) -> None:
    both = assert_equals_tape(lambda x: x @ tf.linalg.matmul(kernel, kernel), [kernel], rows)
    assert both.graph.residuals == ()
    assert both.graph.kept_inputs == (0,)


def test_inputs_that_the_backward_pass_does_not_read_are_not_kept(
    kernel: tf.Variable, rows: tf.Tensor
) -> None:
    # The derivative of tanh needs its result alone, and that of a sum nothing but two shapes.
    both = assert_equals_tape(lambda x, bias: tf.tanh(x) + bias, [], rows, tf.ones([4, 3]))
    assert both.graph.kept_inputs == ()
    assert crossing(both) == [tf.TensorSpec([None, 3], tf.float32)]
    assert len(both.graph.residuals) == 1 + 2


def test_an_output_may_be_a_shape(rows: tf.Tensor) -> None:
    both = assert_equals_tape(lambda x: (tf.sin(x), tf.shape(x), tf.shape(x)[0]), [], rows)
    outputs, _ = both.forward(rows)
    np.testing.assert_array_equal(outputs[1], [4, 3])
    assert (outputs[1].dtype, int(outputs[2])) == (tf.int32, 4)


def test_a_mask_crosses_as_one_byte_an_element(rows: tf.Tensor) -> None:
    @tf.custom_gradient
    def halve_positives(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        positive = x > 0.0
        return tf.where(positive, x / 2, x), lambda g: tf.where(positive, g / 2, g)

    both = assert_equals_tape(halve_positives, [], rows)
    assert [spec.dtype for spec in crossing(both)] == [tf.bool]


def test_random_numbers_of_a_generator_cross_and_are_not_drawn_again(rows: tf.Tensor) -> None:
    both = cut(lambda x: x * tf.random.uniform([4, 3]), [], [tf.TensorSpec([4, 3])])
    (outputs,), kept = both.forward(rows)
    (gradient,) = both.backward(kept, tf.ones_like(outputs))
    np.testing.assert_allclose(gradient * rows, outputs, rtol=1e-6)


def test_a_stage_may_be_many_hundreds_of_operations_deep(rows: tf.Tensor) -> None:
    scale = tf.Variable(1.001)

    def function(x: tf.Tensor) -> tf.Tensor:
        for _ in range(600):
            x = tf.tanh(x)
        return x * scale

    both = cut(function, [scale], [tf.TensorSpec([None, 3])])
    (outputs,), kept = both.forward(rows)
    assert len(kept) >= 600
    (gradient,) = both.backward(kept, tf.ones_like(outputs))
    assert np.isfinite(gradient.numpy()).all()


# ------------------------------------------------------------------ side effects


def test_side_effects_of_the_forward_pass_happen_once_a_call(rows: tf.Tensor) -> None:
    counter = tf.Variable(0)

    def function(x: tf.Tensor) -> tf.Tensor:
        tf.raw_ops.AssignAddVariableOp(resource=counter.handle, value=1)
        return tf.sin(x)

    both = cut(function, [], [tf.TensorSpec([None, 3])])
    for call in (1, 2, 3):
        (outputs,), kept = both.forward(rows)
        both.backward(kept, tf.ones_like(outputs))
        assert int(counter) == call


@pytest.mark.parametrize("remat", (False, True))
def test_an_assertion_on_which_nothing_depends_still_asserts(rows: tf.Tensor, remat: bool) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_less(x, 3.0, message="too large")
        return tf.sin(x)

    traced = tf.recompute_grad(function) if remat else function
    both = cut(traced, [], [tf.TensorSpec([None, 3])])
    (outputs,), kept = both.forward(rows)
    both.backward(kept, tf.ones_like(outputs))
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
        both.forward(rows + 2)


def test_weights_accumulate_although_inputs_have_gradients_too(
    kernel: tf.Variable, rows: tf.Tensor
) -> None:
    # The additions are side effects beside data outputs, of the kind that TensorFlow drops when
    # only a control dependency asks for them.
    both = cut(lambda x: x @ kernel, [kernel], [tf.TensorSpec([None, 3])])
    (outputs,), kept = both.forward(rows)
    np.testing.assert_array_equal(both.accumulators[0], np.zeros((3, 3)))
    gradients = both.backward(kept, tf.ones_like(outputs))
    assert len(gradients) == 1
    np.testing.assert_allclose(both.accumulators[0][:, 0], rows.numpy().sum(0), atol=1e-6)


# ------------------------------------------------------------------ the second cut


@pytest.fixture
def kernels() -> list[tf.Variable]:
    """Two kernels [3, 3]."""
    numbers = np.random.default_rng(0)
    return [tf.Variable(numbers.normal(size=(3, 3)).astype(np.float32)) for _ in range(2)]


def two_layers(kernels: list[tf.Variable]) -> Callable[[tf.Tensor], tf.Tensor]:
    first, second = kernels
    return lambda x: tf.tanh(x @ first) @ second


def operations(function: GraphFunction) -> collections.Counter[str]:
    """How many operations of each type a function runs."""
    return collections.Counter(operation.type for operation in function.graph.get_operations())


def in_three(function: Callable[..., Any], weights: list[tf.Variable]) -> tuple[Cut, WeightPart]:
    """A function of rows [B, 3], its backward pass cut at the input gradient."""
    parts = cut(function, weights, [tf.TensorSpec([None, 3])], split_backward=True)
    assert parts.graph.weight_part is not None
    return parts, parts.graph.weight_part


def test_the_first_part_of_the_backward_pass_accumulates_nothing(
    kernels: list[tf.Variable], rows: tf.Tensor
) -> None:
    parts, second = in_three(two_layers(kernels), kernels)
    (outputs,), kept = parts.forward(rows)
    arguments = [*kept, tf.ones_like(outputs)]
    gradient, *handed_on = parts.graph.backward(*arguments)
    np.testing.assert_array_equal(parts.accumulators, np.zeros((2, 3, 3)))
    whole = cut(two_layers(kernels), kernels, [tf.TensorSpec([None, 3])])
    (outputs,), kept = whole.forward(rows)
    np.testing.assert_array_equal(gradient, *whole.backward(kept, tf.ones_like(outputs)))
    second.function(*handed_on, *(arguments[i] for i in second.kept_arguments))
    np.testing.assert_array_equal(parts.accumulators, whole.accumulators)
    assert np.abs(whole.accumulators[0]).min() > 0


@pytest.mark.parametrize("remat", (False, True))
def test_nothing_is_computed_in_both_parts_of_the_backward_pass(
    kernels: list[tf.Variable], remat: bool
) -> None:
    function = two_layers(kernels)
    function = tf.recompute_grad(function) if remat else function
    parts, second = in_three(function, kernels)
    whole = cut(function, kernels, [tf.TensorSpec([None, 3])])
    first = operations(parts.graph.backward)
    both = first + operations(second.function)
    for kind in ("MatMul", "Tanh", "TanhGrad", "AssignAddVariableOp"):
        assert both[kind] == operations(whole.graph.backward)[kind]
    assert (first["MatMul"], first["Tanh"], first["AssignAddVariableOp"]) == (2 + remat, remat, 0)
    assert parts.graph.residuals == whole.graph.residuals


def test_what_the_weights_need_crosses_as_values(kernels: list[tf.Variable]) -> None:
    """Here the gradient of the first product; rows, tanh and output gradient are there already."""
    parts, second = in_three(two_layers(kernels), kernels)
    assert second.crossing == (tf.TensorSpec([None, 3]),)
    assert len(second.kept_arguments) == 3
    assert parts.graph.residuals == (tf.TensorSpec([None, 3]),)


def test_what_was_computed_again_crosses_too(kernels: list[tf.Variable]) -> None:
    """tanh, and the rows, of which `tf.recompute_grad` computes on a copy."""
    parts, second = in_three(tf.recompute_grad(two_layers(kernels)), kernels)
    assert len(second.crossing) == 3
    assert parts.graph.residuals == ()


def test_a_product_of_weights_and_shapes_do_not_cross_the_second_cut(rows: tf.Tensor) -> None:
    kernel, bias = tf.Variable(tf.eye(3)), tf.Variable(tf.ones([1, 3]))

    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x) @ (kernel @ kernel) + bias

    parts, second = in_three(function, [kernel, bias])
    assert second.crossing == ()
    assert [spec for spec in parts.graph.residuals if spec.shape.rank == 2] == [
        tf.TensorSpec([None, 3])
    ]
    assert_equals_tape(function, [kernel, bias], rows)


def test_without_float_inputs_all_of_the_backward_pass_is_its_second_part() -> None:
    table = tf.Variable(np.arange(10, dtype=np.float32).reshape(5, 2))
    signature = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.bool)]

    def function(ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        return tf.where(mask[:, None], tf.gather(table, ids) ** 2, 0.0)

    parts = cut(function, [table], signature, split_backward=True)
    assert set(operations(parts.graph.backward)) == {"Placeholder"}
    _, kept = parts.forward(tf.constant([3, 1]), tf.constant([True, False]))
    assert parts.backward(kept, tf.ones([2, 2])) == []
    np.testing.assert_array_equal(parts.accumulators[0][3], [12, 14])
    np.testing.assert_array_equal(parts.accumulators[0][1], [0, 0])


def test_without_weights_the_second_part_has_nothing_to_do(rows: tf.Tensor) -> None:
    _, second = in_three(tf.sin, [])
    assert (second.crossing, second.kept_arguments) == ((), ())
    assert set(operations(second.function)) <= {"Const", "Identity"}
