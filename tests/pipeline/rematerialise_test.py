"""Rematerialisation changes what is kept and nothing that comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.rematerialise import rematerialise
from tests.pipeline.cut_functions import assert_equals_tape, crossing, cut


@pytest.fixture
def kernel() -> tf.Variable:
    return tf.Variable(np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3))


@pytest.fixture
def rows() -> tf.Tensor:
    return tf.constant(np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3))


def chain(kernel: tf.Variable, length: int) -> Callable[[tf.Tensor], tf.Tensor]:
    def function(x: tf.Tensor) -> tf.Tensor:
        for _ in range(length):
            x = x + tf.tanh(x @ kernel)
        return x

    return function


def test_outputs_and_gradients_are_those_of_the_function(
    kernel: tf.Variable, rows: tf.Tensor
) -> None:
    assert_equals_tape(rematerialise(chain(kernel, 3)), [kernel], rows)


def test_only_the_inputs_are_kept(kernel: tf.Variable, rows: tf.Tensor) -> None:
    everything = assert_equals_tape(chain(kernel, 5), [kernel], rows)
    assert len(crossing(everything)) >= 5
    inputs = assert_equals_tape(rematerialise(chain(kernel, 5)), [kernel], rows)
    assert inputs.graph.residuals == ()
    assert inputs.graph.kept_inputs == (0,)


def test_cells_rematerialised_one_by_one_keep_the_inputs_of_each(
    kernel: tf.Variable, rows: tf.Tensor
) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        for _ in range(4):
            x = rematerialise(chain(kernel, 2))(x)
        return x

    both = assert_equals_tape(function, [kernel], rows)
    assert both.graph.kept_inputs == (0,)
    assert crossing(both) == [tf.TensorSpec([None, 3])] * 3


def test_structures_ids_and_masks_pass(kernel: tf.Variable, rows: tf.Tensor) -> None:
    def function(inputs: dict[str, Any]) -> dict[str, Any]:
        x, ids, mask = inputs["x"], inputs["ids"], inputs["more"]["mask"]
        hidden = tf.where(mask[:, None], tf.tanh(x @ kernel), tf.gather(kernel, ids))
        more = {"count": tf.shape(x)[0], "mask": tf.logical_not(mask)}
        return {"hidden": hidden, "ids": ids + 1, "more": more}

    def flat(
        wrap: Callable[[Callable], Callable],
    ) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Any]:
        return lambda x, ids, mask: wrap(function)({"x": x, "ids": ids, "more": {"mask": mask}})

    ids, mask = tf.constant([0, 2, 1, 1]), tf.constant([True, False, True, True])
    plain = assert_equals_tape(flat(lambda f: f), [kernel], rows, ids, mask)
    both = assert_equals_tape(flat(rematerialise), [kernel], rows, ids, mask)
    assert crossing(both) == []
    assert both.graph.outputs == plain.graph.outputs


def test_tensors_from_outside_the_function_are_seen(kernel: tf.Variable, rows: tf.Tensor) -> None:
    def function(x: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return rematerialise(lambda y: y @ kernel * tf.cast(ids, tf.float32)[:, None])(x)

    both = assert_equals_tape(function, [kernel], rows, tf.constant([1, 2, 3, 4]))
    assert both.graph.kept_inputs == (0, 1)


def test_a_function_with_neither_float_inputs_nor_weights(rows: tf.Tensor) -> None:
    ids = tf.constant([[1, 2], [3, 4]])
    both = assert_equals_tape(rematerialise(lambda i: {"ids": i * 2}), [], ids)
    assert both.graph.residuals == ()
    assert_equals_tape(rematerialise(lambda i: tf.cast(i, tf.float32) / 2), [], ids)


def test_a_function_of_ids_with_weights(kernel: tf.Variable) -> None:
    ids = tf.constant([1, 2, 2])
    assert_equals_tape(rematerialise(lambda i: tf.gather(kernel, i) * 2), [kernel], ids)


def test_a_function_without_float_outputs(rows: tf.Tensor) -> None:
    both = cut(rematerialise(lambda x: tf.cast(x, tf.int32)), [], [tf.TensorSpec([None, 3])])
    (outputs,), kept = both.forward(rows)
    assert outputs.dtype == tf.int32
    (gradient,) = both.backward(kept)
    np.testing.assert_array_equal(gradient, np.zeros((4, 3)))


def test_a_single_tensor_stays_a_single_tensor(rows: tf.Tensor) -> None:
    both = assert_equals_tape(rematerialise(lambda x: x * 2), [], rows)
    assert both.graph.outputs == tf.TensorSpec([None, 3])


def test_p15_what_is_computed_again_is_equal_to_the_bit(
    kernel: tf.Variable, rows: tf.Tensor
) -> None:
    seen: list[np.ndarray] = []

    def see(values: np.ndarray) -> np.ndarray:
        seen.append(values.copy())
        return values

    def look(x: tf.Tensor) -> tf.Tensor:
        looked = tf.numpy_function(see, [x], x.dtype)
        looked.set_shape(x.shape)
        # Read through the function, so that both the first and the second pass run it.
        return tf.stop_gradient(looked)

    def function(x: tf.Tensor) -> tf.Tensor:
        hidden = tf.cast(tf.cast(x, tf.bfloat16) @ tf.cast(kernel, tf.bfloat16), tf.float32)
        return tf.sin(x) * look(hidden)

    both = cut(rematerialise(function), [kernel], [tf.TensorSpec([None, 3])])
    (outputs,), kept = both.forward(rows)
    both.backward(kept, tf.ones_like(outputs))
    assert len(seen) == 2
    np.testing.assert_array_equal(seen[0], seen[1])
