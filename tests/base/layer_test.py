"""Layers make what their params declare, under names that depend on the path alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.initializers import constant, normal
from lingpipe.base.layer import Layer, Scope, SharedWeightError, Weight, join_path
from lingpipe.errors import UserError
from lingpipe.hyperparams import REQUIRED, ParamsError


class Scale(Layer):
    """x -> x * gain."""

    class Params(Layer.Params):
        dim: int = REQUIRED
        trainable: bool = True
        keys: list[str] = []

        def weights(self) -> dict[str, Weight]:
            return {"gain": Weight((self.dim,), normal(1.0), self.trainable)}

        def batch_keys(self) -> tuple[str, ...]:
            return tuple(self.keys)

    gain: tf.Variable

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        return inputs * context.cast(self.gain)


class Pair(Layer):
    """Two children and a weight of its own."""

    class Params(Layer.Params):
        dim: int = 3
        first: Scale.Params = Scale.Params(keys=["ids", "mask"])
        second: Scale.Params = Scale.Params(keys=["mask", "labels"])

        def weights(self) -> dict[str, Weight]:
            return {"bias": Weight((self.dim,), constant(2.0))}

        def children(self) -> dict[str, Layer.Params]:
            return {
                "first": self.first.copy(dim=self.dim),
                "second": self.second.copy(dim=self.dim),
            }

    bias: tf.Variable
    first: Scale
    second: Scale

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        return self.second(self.first(inputs, context), context) + self.bias


def values(scope: Scope) -> dict[str, np.ndarray]:
    return {path: variable.numpy() for path, variable in scope.variables.items()}


def test_weights_and_children_become_attributes() -> None:
    layer = Pair.Params().build(Scope())
    np.testing.assert_array_equal(layer.bias, [2, 2, 2])
    outputs = layer(tf.constant([1.0, 2.0, 3.0]), Context())
    expected = np.array([1, 2, 3]) * layer.first.gain * layer.second.gain + 2
    np.testing.assert_allclose(outputs, expected, rtol=1e-6)
    assert {variable.name for variable in layer.variables} == {
        "bias:0",
        "first/gain:0",
        "second/gain:0",
    }


def test_paths_are_those_of_the_model_and_the_declaration_agrees() -> None:
    scope = Scope(seed=5)
    params = Pair.Params()
    layer = params.build(scope.child("cell").child("pair"))
    paths = ["cell/pair/bias", "cell/pair/first/gain", "cell/pair/second/gain"]
    assert list(scope.variables) == paths
    declared = params.all_weights("cell/pair")
    assert list(declared) == paths
    assert [weight.size for weight in declared.values()] == [3, 3, 3]
    assert (layer.path, layer.first.path) == ("cell/pair", "cell/pair/first")
    assert (join_path("", "a"), join_path("a", "b")) == ("a", "a/b")


def test_initial_values_do_not_depend_on_order_device_or_neighbours() -> None:
    together = Scope(seed=5)
    for name in ("a", "b"):
        Pair.Params().build(together.child(name))
    alone = Scope(seed=5)
    with tf.device("/CPU:3"):
        Pair.Params().build(alone.child("b"))
        Pair.Params().build(alone.child("a"))
    assert alone.variables["a/bias"].device.endswith("CPU:3")
    for path, value in values(together).items():
        np.testing.assert_array_equal(values(alone)[path], value)
    gains = [value for path, value in values(together).items() if "gain" in path]
    assert len({gain.tobytes() for gain in gains}) == 4
    other = Scope(seed=6)
    Pair.Params().build(other.child("a"))
    assert (values(other)["a/first/gain"] != values(together)["a/first/gain"]).all()


def test_layers_that_name_the_same_path_share_their_weights() -> None:
    scope = Scope(seed=5)
    first = Pair.Params(share_weights="tied").build(scope.child("a"))
    second = Pair.Params(share_weights="tied").build(scope.child("b"))
    assert first.bias is second.bias
    assert first.second.gain is second.second.gain
    assert list(scope.variables) == ["tied/bias", "tied/first/gain", "tied/second/gain"]
    # Their own paths, which key dropout, stay apart.
    assert (first.second.path, second.second.path) == ("a/second", "b/second")
    params = Pair.Params(share_weights="tied")
    assert set(params.all_weights("a")) == set(params.all_weights("b")) == set(scope.variables)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dim": 4}, r"'tied/gain'.*shape \(3,\), trainable=True against shape \(4,\)"),
        (
            {"trainable": False},
            r"trainable=True against shape \(3,\), trainable=False",
        ),
    ],
)
def test_what_is_shared_must_be_declared_equally(change: dict[str, object], words: str) -> None:
    scope = Scope()
    params = Scale.Params(dim=3, share_weights="tied")
    params.build(scope.child("a"))
    with pytest.raises(SharedWeightError, match=words) as refusal:
        params.copy(**change).build(scope.child("b"))
    assert isinstance(refusal.value, UserError)


def test_a_frozen_weight_is_a_variable_that_is_not_trained() -> None:
    layer = Scale.Params(dim=3, trainable=False).build(Scope())
    assert layer.trainable_variables == ()
    assert len(layer.variables) == 1


def test_entries_of_the_batch_are_those_of_the_children_each_once() -> None:
    assert Pair.Params().batch_keys() == ("ids", "mask", "labels")


def test_required_fields_and_frozen_params() -> None:
    with pytest.raises(ParamsError, match="dim"):
        Scale.Params().build(Scope())
    layer = Scale.Params(dim=2).build(Scope())
    with pytest.raises(ParamsError):
        layer.params.dim = 3


class Plain(Layer):
    """Declares nothing."""


def test_what_a_layer_does_not_declare_it_says_when_asked() -> None:
    with pytest.raises(TypeError, match=r"Plain.*declares no cost; define cost\(self, inputs"):
        Plain.Params().cost(None)
    with pytest.raises(TypeError, match=r"Plain defines no __call__\(inputs, context\)"):
        Plain.Params().build(Scope())(None, Context())


@pytest.mark.parametrize("name", ("params", "path", "weights_path", "name", "variables"))
def test_a_weight_or_child_may_not_take_a_name_that_layers_use(name: str) -> None:
    class Clash(Layer):
        class Params(Layer.Params):
            def weights(self) -> dict[str, Weight]:
                return {name: Weight((1,), constant(0.0))}

    with pytest.raises(ValueError, match=f"'{name}'.*Clash.*another name"):
        Clash.Params().build(Scope())


def test_a_child_may_not_have_the_name_of_a_weight() -> None:
    class Twice(Layer):
        class Params(Layer.Params):
            def weights(self) -> dict[str, Weight]:
                return {"inner": Weight((1,), constant(0.0))}

            def children(self) -> dict[str, Layer.Params]:
                return {"inner": Scale.Params(dim=1)}

    with pytest.raises(ValueError, match="'inner'.*Twice.*another name"):
        Twice.Params().build(Scope())


def test_a_scope_is_plain_data() -> None:
    scope = Scope(seed=1, path="a", weights_path="b")
    assert scope.child("c") == dataclasses.replace(scope, path="a/c", weights_path="b/c")
    assert scope.child("c").variables is scope.variables
