"""What counts as passed on, and which gradients are known to be zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from lingpipe.pipeline.graph_function import trace
from lingpipe.pipeline.passing import not_zero, passed_on
from lingpipe.pipeline.rematerialise import rematerialise

Function = Callable[..., Any]


def traced(function: Function) -> Any:
    """What a function of two tensors [B, 3] returns inside of a graph."""
    found: list[Any] = []

    def run(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        found.append(function(x, y))
        return []

    trace(run, [tf.TensorSpec([None, 3])] * 2)
    return found[0]


def sources(function: Function) -> list[int | None]:
    return traced(lambda x, y: passed_on(function(x, y), [x, y]))


def test_inputs_and_copies_of_them_are_passed_on() -> None:
    assert sources(lambda x, y: [y, x]) == [1, 0]
    assert sources(lambda x, y: [tf.identity(tf.identity(x)), *tf.identity_n([x, y])]) == [0, 0, 1]
    assert traced(lambda x, y: passed_on([x], [y, x, x])) == [1]


def test_all_that_is_computed_is_new() -> None:
    assert sources(lambda x, y: [x + 0.0, tf.stop_gradient(y), tf.ones([2])]) == [None] * 3


def asserting(x: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.debugging.assert_positive(x)]):
        return tf.identity(x)


@tf.custom_gradient
def reversing(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    return tf.identity(x), lambda gradient: -gradient


@pytest.mark.parametrize("function", (asserting, reversing, tf.recompute_grad(tf.identity)))
def test_a_copy_that_does_something_is_new(function: Function) -> None:
    assert sources(lambda x, y: [function(x), y]) == [None, 1]


def test_what_a_rematerialised_function_passes_on_goes_past_it() -> None:
    function = rematerialise(lambda state: {"a": state["a"], "x": tf.sin(state["x"])})

    def twice(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        state = function(function({"x": x, "a": y}))
        return [state["x"], state["a"]]

    assert sources(twice) == [None, 1]


def test_nothing_is_passed_on_outside_of_a_graph() -> None:
    x = tf.ones([2, 3])
    assert passed_on([x, x + 1], [x]) == [None, None]


def gradients(function: Function) -> dict[int, tf.Tensor]:
    """The gradients of a function of {"x", "a"}, as far as they are not zero."""

    def run(x: tf.Tensor, a: tf.Tensor) -> dict[int, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x, a])
            y = function({"x": x, "a": a})["x"]
        return not_zero(dict(enumerate(tape.gradient(y, [x, a]))))

    return traced(run)


@pytest.mark.parametrize("wrap", (lambda function: function, rematerialise))
def test_an_input_that_goes_unused_or_past_has_no_gradient(wrap: Function) -> None:
    past = wrap(lambda state: {"a": state["a"], "x": tf.sin(state["x"])})
    assert list(gradients(lambda state: past(past(past(state))))) == [0]
    used = wrap(lambda state: {"a": state["a"], "x": state["x"] * state["a"]})
    assert list(gradients(lambda state: past(used(past(state))))) == [0, 1]


def test_gradients_by_rows_become_dense() -> None:
    (gradient,) = gradients(lambda state: {"x": tf.gather(state["x"], [0])}).values()
    assert isinstance(gradient, tf.Tensor)
