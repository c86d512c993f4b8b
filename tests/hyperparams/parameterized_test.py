"""Parameterized: every class has params of its own, and they build it."""

import pickle

import pytest

from lingpipe.hyperparams import Parameterized, Params, ParamsTypeError
from tests.hyperparams.samples import (
    Attention,
    FeedForward,
    LocalAttention,
    PlainAttention,
)


def test_params_know_the_class_that_they_build() -> None:
    assert Attention.Params.owner is Attention
    assert LocalAttention.Params.owner is LocalAttention
    assert type(LocalAttention.Params(model_dim=8).build()) is LocalAttention


def test_a_class_without_params_gets_its_own_derived() -> None:
    assert PlainAttention.Params is not Attention.Params
    assert issubclass(PlainAttention.Params, Attention.Params)
    assert PlainAttention.Params.__qualname__ == "PlainAttention.Params"
    assert PlainAttention.Params.__module__ == PlainAttention.__module__
    assert type(PlainAttention.Params(model_dim=8).build()) is PlainAttention
    assert type(Attention.Params(model_dim=8).build()) is Attention


def test_derived_params_can_be_pickled() -> None:
    params = PlainAttention.Params(model_dim=8)
    assert pickle.loads(pickle.dumps(params)) == params


def test_a_subclass_of_params_alone_builds_the_same_class() -> None:
    class Narrow(Attention.Params):
        num_heads = 1

    assert type(Narrow(model_dim=3).build()) is Attention


def test_two_parents_give_the_fields_of_both() -> None:
    class Both(LocalAttention, FeedForward):
        """Has no params of its own."""

    params = Both.Params(model_dim=8, window=3, hidden_dim=5)
    assert (params.window, params.hidden_dim) == (3, 5)
    assert type(params.build()) is Both


def test_params_that_forget_the_parents_are_refused_with_advice() -> None:
    with pytest.raises(
        ParamsTypeError,
        match=r"Wrong\.Params must derive from Attention\.Params, the params of its parent; "
        r"write 'class Params\(Attention\.Params\):'",
    ):

        class Wrong(Attention):
            class Params(Params):
                x: int = 1


def test_a_params_that_is_no_params_class_is_refused() -> None:
    with pytest.raises(ParamsTypeError, match=r"write 'class Params\(Attention\.Params\):'"):

        class Wrong(Attention):
            class Params:
                x: int = 1


def test_another_classes_params_under_a_second_name_are_derived_from() -> None:
    class Alias(Attention):
        Params = LocalAttention.Params

    assert Alias.Params is not LocalAttention.Params
    assert LocalAttention.Params.owner is LocalAttention
    assert Alias.Params(model_dim=8).window == 128
    assert type(Alias.Params(model_dim=8).build()) is Alias


def test_the_mixin_passes_on_what_the_class_statement_has_for_others() -> None:
    class Named:
        def __init_subclass__(cls, name: str = "", **kwargs: object) -> None:
            super().__init_subclass__(**kwargs)
            cls.name = name  # type: ignore[attr-defined]

    class Thing(Parameterized, Named, name="thing"):
        """Takes a keyword in its class statement."""

    assert Thing.name == "thing"  # type: ignore[attr-defined]
    assert issubclass(Thing.Params, Params)
