"""Annotations as strings: names of the module, of enclosing classes and of functions are found."""

from __future__ import annotations

import enum
from typing import Optional, Union

import pytest

from lingpipe.hyperparams import REQUIRED, Parameterized, Params, ParamsTypeError


class Early(Params):
    later: list[Later] = []
    maybe: Later | None = None


class Later(Params):
    x: int = 1


class Owner(Parameterized):
    class Mode(enum.Enum):
        fast = "fast"
        slow = "slow"

    class Params(Parameterized.Params):
        short: Mode = REQUIRED  # type: ignore[name-defined]  # noqa: F821
        qualified: Owner.Mode = REQUIRED
        again: Owner.Params | None = None
        other: Params = Early()  # The module's Params, as Python's own rules have it.


def test_a_class_defined_further_down_is_found_at_first_use() -> None:
    assert Early(later=[Later(x=2)]).later[0].x == 2
    with pytest.raises(ParamsTypeError, match=r"later\[0\] must be Later"):
        Early(later=[Owner.Params()])


def test_a_name_of_the_enclosing_class_is_found_with_and_without_it() -> None:
    params = Owner.Params(short=Owner.Mode.fast, qualified=Owner.Mode.slow)
    params.again = Owner.Params()
    params.other = Later()
    with pytest.raises(ParamsTypeError, match=r"write Owner\.Mode\.fast"):
        params.qualified = "fast"


def test_names_of_an_enclosing_function_are_found() -> None:
    class Kind(enum.Enum):
        a = 1

    class Outer:
        class Inner(Params):
            kind: Kind = Kind.a
            own: Outer.Inner | None = None

    assert Outer.Inner(own=Outer.Inner()).kind is Kind.a


def test_classes_nested_in_classes_are_found_by_their_whole_names() -> None:
    class Outer:
        class Middle:
            class Inner(Params):
                own: Outer.Middle.Inner | None = None

    assert Outer.Middle.Inner(own=Outer.Middle.Inner()).own == Outer.Middle.Inner()


def test_strings_inside_brackets_are_found() -> None:
    class Nested(Params):
        items: list["Later"] = []  # noqa: UP037 - The point of the test.
        old: Optional["Later"] = None  # noqa: UP037, UP045
        older: Union["Later", int] = 1  # noqa: UP007, UP037

    assert Nested(items=[Later()], old=Later(), older=Later()).items == [Later()]


def test_a_name_that_never_comes_is_refused_at_first_use() -> None:
    class Lost(Params):
        it: Nowhere = REQUIRED  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(ParamsTypeError, match=r"Lost\.it: its annotation 'Nowhere' cannot be"):
        Lost()


def test_a_default_behind_a_late_annotation_is_checked_at_first_use() -> None:
    class Late(Params):
        it: list[Unborn] = [3]  # type: ignore[list-item]

    class Unborn(Params):
        pass

    # The name is born in a function, which the annotation saw before: it stays unknown.
    with pytest.raises(ParamsTypeError, match="cannot be resolved"):
        Late()


def test_a_late_default_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(ParamsTypeError, match=r"Tardy\.it\[0\] must be Tardier"):
        Tardy()


class Tardy(Params):
    it: list[Tardier] = [3]  # type: ignore[list-item]


class Tardier(Params):
    """Comes late."""
