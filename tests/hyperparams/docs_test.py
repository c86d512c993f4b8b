"""Comments of fields: beside the field, above it, or none."""

from lingpipe.hyperparams import Params


class Documented(Params):
    """A docstring, which is no comment of a field."""

    beside: int = 1  # Stands beside.
    plain: int = 2

    # Stands above.
    above: int = 3
    # Stands above,
    # on two lines.
    longer: int = 4
    marked: int = 5  # For readers.  # type: no comment for readers
    hash_inside: str = "# not this"
    several: list[int] = [
        1,  # Not this.
    ]  # This.
    next: int = 8


class Derived(Documented):
    beside = 7  # Says why, not what.
    new: int = 1  # New.


def test_each_field_has_its_own_comment() -> None:
    docs = {field.name: field.doc for field in Derived.fields()}
    assert docs == {
        "beside": "Stands beside.",
        "plain": "",
        "above": "Stands above.",
        "longer": "Stands above, on two lines.",
        "marked": "For readers.",
        "hash_inside": "",
        "several": "This.",
        "next": "",
        "new": "New.",
    }


def test_a_class_without_source_has_no_comments() -> None:
    made = type("Made", (Params,), {"__annotations__": {"x": int}, "x": 1})
    assert made.fields()[0].doc == ""
