"""Specs know their size, and structures of them are read in a fixed order."""

import pytest

from lingpipe.base.spec import Spec, flatten_specs, specs_bytes, with_floats_as


@pytest.mark.parametrize(
    ("spec", "elements", "size"),
    [
        (Spec(()), 1, 4),
        (Spec((3, 5)), 15, 60),
        (Spec((3, 0)), 0, 0),
        (Spec((7,), "bool"), 7, 7),
        (Spec((2, 2), "bfloat16"), 4, 8),
        (Spec((2,), "int64"), 2, 16),
    ],
)
def test_elements_and_bytes(spec: Spec, elements: int, size: int) -> None:
    assert (spec.elements, spec.bytes) == (elements, size)


def test_the_last_dimension_can_be_replaced() -> None:
    assert Spec((2, 3, 8), "int32").replace_last(5) == Spec((2, 3, 5), "int32")


def test_an_unknown_dtype_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"dtype \('float'\) must be one of bfloat16, bool, "):
        Spec((2,), "float")


def test_structures_are_flattened_with_sorted_keys() -> None:
    a, b, c = Spec((1,)), Spec((2,)), Spec((3,), "bool")
    nested = {"z": a, "b": [b, (c,)], "none": None}
    assert list(flatten_specs(nested)) == [b, c, a]
    assert list(flatten_specs(None)) == []
    assert specs_bytes(nested) == 8 + 3 + 4


def test_floats_are_given_another_dtype_and_nothing_else_is() -> None:
    ids, mask = Spec((2,), "int32"), Spec((2,), "bool")
    nested = {"x": Spec((2, 8)), "rest": [ids, (mask, None), Spec((), "float64")]}
    narrow = with_floats_as(nested, "bfloat16")
    assert narrow == {
        "x": Spec((2, 8), "bfloat16"),
        "rest": [ids, (mask, None), Spec((), "float64")],
    }
    assert with_floats_as(nested, "float32") == nested
    assert with_floats_as(None, "bfloat16") is None


def test_a_leaf_that_is_no_spec_is_refused() -> None:
    with pytest.raises(TypeError, match="A spec structure holds int; its leaves must be Spec"):
        specs_bytes({"a": [Spec(()), 3]})
