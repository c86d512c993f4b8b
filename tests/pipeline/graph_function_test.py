"""Parts of a traced graph compute what the whole would, and hold no more than they need."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from lingpipe.pipeline.graph_function import GraphFunction, part_of_graph, trace

VECTOR = tf.TensorSpec([None], tf.float32)


def operations(function: GraphFunction) -> set[str]:
    return {operation.type for operation in function.graph.get_operations()}


def test_a_traced_function_runs_with_its_variables() -> None:
    weight = tf.Variable(3.0)
    whole = GraphFunction(trace(lambda x: [x * weight, x + 1], [VECTOR]))
    np.testing.assert_array_equal(whole(tf.constant([1.0, 2.0])), [[3, 6], [2, 3]])
    weight.assign(4.0)
    np.testing.assert_array_equal(whole(tf.constant([1.0]))[0], [4])


def test_a_part_leads_from_a_tensor_in_the_middle_to_another() -> None:
    weight, other = tf.Variable(2.0), tf.Variable(5.0)
    middle: list[tf.Tensor] = []

    def function(x: tf.Tensor) -> tf.Tensor:
        middle.append(tf.exp(x) * other)
        return tf.sin(middle[0]) * weight

    whole = trace(function, [VECTOR])
    part = part_of_graph(whole, middle, whole.outputs)
    np.testing.assert_allclose(part(tf.constant([1.0]))[0], [2 * np.sin(1.0)], rtol=1e-6)
    assert "Exp" not in operations(part)
    # The variable that only the rest reads is not captured.
    assert len(part.graph.inputs) == 2


def test_one_of_several_results_of_an_operation_may_be_given() -> None:
    halves: list[tf.Tensor] = []

    def function(x: tf.Tensor) -> tf.Tensor:
        halves.extend(tf.split(x, [1, 1]))
        return halves[0] * 10 + halves[1]

    whole = trace(function, [tf.TensorSpec([2], tf.float32)])
    part = part_of_graph(whole, [whole.inputs[0], halves[1]], whole.outputs)
    given = part(tf.constant([1.0, 2.0]), tf.constant([7.0]))
    np.testing.assert_array_equal(given[0], [17])


def test_what_is_merely_passed_on_together_is_not_computed_together() -> None:
    counter = tf.Variable(0)

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        pair = tf.raw_ops.IdentityN(input=[tf.sin(x), tf.cos(x)])
        nested = tf.raw_ops.IdentityN(input=[counter.assign_add(1), *pair])
        return [nested[1] * 2, nested[2]]

    whole = trace(function, [VECTOR])
    part = part_of_graph(whole, whole.inputs[:1], whole.outputs[:1])
    np.testing.assert_allclose(part(tf.constant([0.5]))[0], [2 * np.sin(0.5)], rtol=1e-6)
    assert operations(part) == {"Placeholder", "Sin", "Const", "Mul"}
    (cosine,) = part_of_graph(whole, whole.inputs[:1], whole.outputs[1:])(tf.constant([0.5]))
    np.testing.assert_allclose(cosine, [np.cos(0.5)], rtol=1e-6)
    assert int(counter) == 0


def test_what_is_given_may_be_returned_or_go_unused() -> None:
    whole = trace(lambda x, y: [x * 2], [VECTOR, VECTOR])
    x, y = whole.inputs
    part = part_of_graph(whole, [x, y], [y, whole.outputs[0]])
    np.testing.assert_array_equal(part(tf.constant([1.0]), tf.constant([5.0])), [[5], [2]])


def test_a_part_waits_for_what_has_not_run_and_not_for_what_has() -> None:
    counter = tf.Variable(0)
    effects: list[tf.Operation] = []

    def function(x: tf.Tensor) -> tf.Tensor:
        effects.append(tf.raw_ops.AssignAddVariableOp(resource=counter.handle, value=1))
        with tf.control_dependencies(effects):
            return tf.sin(x)

    whole = trace(function, [VECTOR])
    waits = part_of_graph(whole, whole.inputs[:1], whole.outputs)
    waits(tf.constant([1.0]))
    assert int(counter) == 1
    free = part_of_graph(whole, whole.inputs[:1], whole.outputs, already_run=effects)
    free(tf.constant([1.0]))
    assert int(counter) == 1


def test_functions_and_branches_come_along() -> None:
    inner = tf.function(lambda x: x * 2)

    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: inner(x), lambda: -x)

    whole = trace(function, [VECTOR])
    part = part_of_graph(whole, whole.inputs, whole.outputs)
    np.testing.assert_array_equal(part(tf.constant([3.0]))[0], [6])
    np.testing.assert_array_equal(part(tf.constant([-3.0]))[0], [3])
