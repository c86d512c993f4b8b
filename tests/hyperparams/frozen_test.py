"""Freezing is deep, copying thaws, and what was changed in place is checked before it is used."""

import copy
import pickle

import pytest

from lingpipe.hyperparams import ParamsError, ParamsNameError, ParamsTypeError
from lingpipe.hyperparams.frozen import FrozenList
from tests.hyperparams.samples import Attention, LocalAttention, Model


def test_frozen_and_thawed_params_of_equal_values_are_equal() -> None:
    assert Model.Params().freeze() == Model.Params()


def test_copy_is_deep_and_sets_fields_and_paths() -> None:
    params = Model.Params(layers=[Attention.Params()])
    twin = params.copy(num_layers=5)
    twin.layers[0].dropout = 0.5
    twin.sizes.append(3)
    assert (params.num_layers, params.layers[0].dropout, params.sizes) == (2, 0.0, [1, 2])
    assert twin.num_layers == 5
    with pytest.raises(ParamsNameError, match="did you mean 'num_layers'"):
        params.copy(num_layer=3)


def test_copies_of_the_standard_library_are_deep_too() -> None:
    params = Model.Params(layers=[LocalAttention.Params()], towers={"a": Attention.Params()})
    for twin in (
        copy.copy(params),
        copy.deepcopy(params),
        pickle.loads(pickle.dumps(params)),
    ):
        assert twin == params
        twin.layers[0].dropout = 0.5
        twin.sizes.append(4)
        assert params.layers[0].dropout == 0.0
        assert params.sizes == [1, 2]


def test_frozen_params_stay_frozen_when_pickled_or_deep_copied() -> None:
    params = Model.Params(layers=[Attention.Params()], weights={"a": 1.0}).freeze()
    for twin in (copy.deepcopy(params), pickle.loads(pickle.dumps(params))):
        assert twin == params
        assert twin.frozen
        with pytest.raises(ParamsError, match="frozen"):
            twin.layers.append(Attention.Params())
        with pytest.raises(ParamsError, match="frozen"):
            twin.weights["a"] = 2.0


def test_freezing_is_deep() -> None:
    params = Model.Params(
        layers=[Attention.Params()],
        tables={"a": [1]},
        towers={"b": Attention.Params()},
    )
    assert params.freeze() is params
    frozen = [
        params,
        params.attention,
        params.layers[0],
        params.pair[0],
        params.towers["b"],
    ]
    assert all(node.frozen for node in frozen)
    with pytest.raises(ParamsError, match=r"Attention\.Params is frozen, and dropout cannot"):
        params.layers[0].dropout = 0.1
    with pytest.raises(ParamsError, match=r"params\.copy\(num_layers=\.\.\.\)"):
        params.num_layers = 3
    with pytest.raises(ParamsTypeError, match=r"This list belongs to frozen params"):
        params.tables["a"].append(2)
    with pytest.raises(ParamsTypeError, match=r"This dict belongs to frozen params"):
        params.tables["b"] = []
    with pytest.raises(ParamsError, match="frozen"):
        params.override("towers.b.dropout", 0.1)


def test_copy_thaws_deeply() -> None:
    params = Model.Params(layers=[Attention.Params()], tables={"a": [1]}).freeze().copy()
    assert not params.frozen
    params.layers[0].dropout = 0.5
    params.layers.append(Attention.Params())
    params.tables["a"].append(2)
    params.attention.num_heads = 1
    assert type(params.tables) is dict


def test_a_frozen_node_set_into_a_tree_is_thawed_there() -> None:
    params = Model.Params(attention=Attention.Params().freeze())
    params.attention.dropout = 0.5
    assert params.attention.dropout == 0.5


def test_a_list_changed_in_place_is_checked_before_use() -> None:
    params = Model.Params(rounding=Model.Rounding.up)
    params.sizes.append("3")  # type: ignore[arg-type]
    for use in (params.freeze, params.to_text, params.build, params.validate):
        with pytest.raises(ParamsError, match=r"sizes\[2\] must be an int, not '3' \(str\)"):
            use()
    assert not params.frozen


def test_an_int_put_into_a_list_of_floats_becomes_a_float_when_frozen() -> None:
    params = Model.Params(weights={"a": 1.0})
    params.weights["b"] = 2
    assert Model.Params.from_text(params.to_text()) == params
    assert type(params.freeze().weights["b"]) is float


def test_the_class_shows_its_defaults_frozen() -> None:
    assert Model.Params.num_layers == 2
    assert Model.Params.attention == Attention.Params()
    with pytest.raises(ParamsError, match="frozen"):
        Model.Params.attention.dropout = 0.5
    with pytest.raises(ParamsError, match="frozen"):
        Model.Params.sizes.append(3)


def test_frozen_lists_are_lists() -> None:
    sizes = Model.Params().freeze().sizes
    assert isinstance(sizes, list)
    assert isinstance(sizes, FrozenList)
    assert sizes == [1, 2]
    assert [*sizes, 3] == [1, 2, 3]
