"""Layers with state report sums, and make new state of the totals."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.initializers import constant
from lingpipe.base.layer import Layer, Scope, SharedWeightError, Weight
from lingpipe.base.state import StatefulLayer, stateful_layers, update_state
from lingpipe.errors import UserError


class Mean(StatefulLayer):
    """x [B] -> x; its state is the mean of the last mini-batch, and what that was before."""

    class Params(StatefulLayer.Params):
        trainable: bool = False
        factor: float = 1.0

        def weights(self) -> dict[str, Weight]:
            return {
                "mean": Weight((), constant(5.0), self.trainable),
                "previous": Weight((), constant(0.0), trainable=False),
            }

    params: Params
    mean: tf.Variable
    previous: tf.Variable

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        sums = {"sum": tf.reduce_sum(inputs), "count": tf.size(inputs)}
        context.report_statistics(self.weights_path, sums)
        return inputs

    def new_state(self, totals: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {
            "mean": self.params.factor * totals["sum"] / totals["count"],
            "previous": tf.identity(self.mean),
        }


class Nest(Layer):
    """Two layers with state, one below the other."""

    class Params(Layer.Params):
        def children(self) -> dict[str, Layer.Params]:
            return {"first": Mean.Params(), "second": Mean.Params()}


def test_what_a_layer_reports_in_several_calls_is_added_up() -> None:
    layer, context = Mean.Params().build(Scope().child("a")), Context(training=True)
    for size in (3, 2):
        layer(tf.ones([size], tf.bfloat16), context)
    sums = context.statistics["a"]
    assert {name: (value.dtype, float(value)) for name, value in sums.items()} == {
        "sum": (tf.float32, 5.0),
        "count": (tf.float32, 5.0),
    }


def test_outside_training_nothing_is_recorded() -> None:
    layer, context = Mean.Params().build(Scope().child("a")), Context()
    layer(tf.ones([3]), context)
    assert context.statistics == {}


def test_new_state_is_a_function_of_totals_and_old_values() -> None:
    layer = Mean.Params().build(Scope())
    update_state(layer, {"sum": tf.constant(6.0), "count": tf.constant(3.0)})
    np.testing.assert_array_equal([layer.mean, layer.previous], [2.0, 5.0])


def test_a_weight_that_is_trained_is_no_state() -> None:
    layer = Mean.Params(trainable=True).build(Scope())
    with pytest.raises(TypeError, match=r"Mean has 'mean' in its state.*trainable=False"):
        update_state(layer, {"sum": tf.constant(6.0), "count": tf.constant(3.0)})


def test_a_layer_with_state_says_how_it_is_made() -> None:
    layer = StatefulLayer.Params().build(Scope())
    with pytest.raises(TypeError, match=r"StatefulLayer defines no new_state\(totals\)"):
        update_state(layer, {})


def test_layers_with_state_are_found_at_any_depth_by_their_weights() -> None:
    scope = Scope()
    cells = [
        Nest.Params().build(scope.child("nest")),
        Mean.Params(share_weights="tied").build(scope.child("a")),
        Mean.Params(share_weights="tied").build(scope.child("b")),
    ]
    found = stateful_layers(cells)
    assert set(found) == {"nest/first", "nest/second", "tied"}
    assert found["tied"] is cells[1]


def test_layers_that_share_state_must_agree_how_it_moves() -> None:
    scope = Scope()
    cells = [
        Mean.Params(share_weights="tied", factor=factor).build(scope.child(f"cell_{factor:.0f}"))
        for factor in (1.0, 2.0)
    ]
    words = "'cell_1' and 'cell_2' share the state at 'tied' but have different params.*equal"
    with pytest.raises(SharedWeightError, match=words) as refusal:
        stateful_layers(cells)
    assert isinstance(refusal.value, UserError)
