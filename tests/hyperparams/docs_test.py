"""Comments of fields: beside the field, above it, continued, or none."""

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
    continued: int = 5  # Begins here
    #                     and is no part of the next.
    after: int = 6
    hash_inside: str = "# not this"
    several: list[int] = [
        1,  # Not this.
    ]  # This.
    aligned: int = 7  # Begins here
                      # and goes on.  # fmt: skip
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
        "continued": "Begins here",
        "after": "and is no part of the next.",
        "hash_inside": "",
        "several": "This.",
        "aligned": "Begins here and goes on.",
        "next": "",
        "new": "New.",
    }


def test_a_class_without_source_has_no_comments() -> None:
    made = type("Made", (Params,), {"__annotations__": {"x": int}, "x": 1})
    assert made.fields()[0].doc == ""
