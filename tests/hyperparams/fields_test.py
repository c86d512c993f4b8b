"""Fields: what a class body of params may declare and override, refused while it is written."""

import enum
import functools
from typing import Any, ClassVar

import pytest

from lingpipe.hyperparams import (
    REQUIRED,
    Params,
    ParamsError,
    ParamsNameError,
    ParamsTypeError,
)
from tests.hyperparams.samples import Attention, FeedForward, Model, Schedule


class Knobs(Params):
    """The parent of the classes below."""

    num_layers: int = 2
    rate: float = 0.1
    schedule: Schedule = Schedule.gpipe
    limit: float | None = None
    sizes: list[int] = []
    child: Attention.Params = Attention.Params()


def test_a_subclass_overrides_by_name_alone_and_inherits_the_type() -> None:
    class Deep(Knobs):
        num_layers = 64
        rate = 1
        schedule = Schedule.one_f_one_b
        limit = 0.5
        sizes = [1]
        child = Attention.Params(num_heads=2)

    params = Deep()
    assert (params.num_layers, params.rate, params.limit) == (64, 1.0, 0.5)
    assert type(params.rate) is float
    assert (params.schedule, params.sizes) == (Schedule.one_f_one_b, [1])
    assert params.child.num_heads == 2
    assert Knobs().num_layers == 2
    params.num_layers = 3
    with pytest.raises(ParamsTypeError, match=r"Deep\.num_layers must be an int"):
        params.num_layers = "3"


def test_an_override_of_an_override_holds() -> None:
    class Deep(Knobs):
        num_layers = 64

    class Deeper(Deep):
        num_layers = 128

    class Same(Deep):
        """Changes nothing."""

    assert (Deeper().num_layers, Same().num_layers) == (128, 64)


def test_of_two_parents_the_nearer_one_gives_the_default() -> None:
    class Deep(Knobs):
        num_layers = 64

    class Fast(Knobs):
        num_layers = 1
        rate = 0.5

    class Both(Deep, Fast):
        """Takes after its first parent."""

    assert (Both().num_layers, Both().rate) == (64, 0.5)


def test_a_misspelt_override_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        ParamsNameError,
        match=r"Deep\.NUM_LAYER = 64 overrides no field; did you mean 'num_layers'\?",
    ):

        class Deep(Knobs):
            NUM_LAYER = 64


def test_a_new_field_without_annotation_is_refused_with_advice() -> None:
    with pytest.raises(
        ParamsNameError, match=r"A new field needs an annotation: 'zebra: int = \.\.\.'"
    ):

        class Deep(Knobs):
            zebra = 64


def test_a_name_near_to_a_new_field_of_the_same_body_is_suggested() -> None:
    with pytest.raises(ParamsNameError, match="did you mean 'window'"):

        class Deep(Knobs):
            window: int = 3
            windw = 4


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("num_layers", "64", r"Deep\.num_layers must be an int, not '64' \(str\)"),
        ("num_layers", True, "must be an int, not True"),
        ("sizes", [object()], r"Deep\.sizes\[0\] must be an int, not <object object"),
        ("schedule", "gpipe", r"write Schedule\.gpipe"),
        ("child", FeedForward.Params(), r"must be Attention\.Params or params of a subclass"),
        ("child", Attention, r"Deep\.child must be Attention\.Params"),
    ],
)
def test_an_override_of_another_type_is_refused(name: str, value: object, words: str) -> None:
    with pytest.raises(ParamsTypeError, match=words):
        type("Deep", (Knobs,), {name: value})


def test_a_default_of_another_type_is_refused() -> None:
    with pytest.raises(ParamsTypeError, match=r"Wrong\.width must be an int, not '3' \(str\)"):

        class Wrong(Params):
            width: int = "3"  # type: ignore[assignment]


def test_a_field_without_default_is_refused_with_advice() -> None:
    with pytest.raises(ParamsError, match=r"width has no default; give one, or write .*REQUIRED"):

        class Wrong(Params):
            width: int


def test_an_annotation_alone_keeps_the_parents_default() -> None:
    class Narrow(Knobs):
        num_layers: int

    assert Narrow().num_layers == 2


def test_an_annotated_override_changes_the_type() -> None:
    class Local(Attention.Params):
        window: int = 1

    class Narrow(Knobs):
        child: Local = Local()

    assert type(Narrow().child) is Local
    with pytest.raises(ParamsTypeError, match="must be .*Local or params of a subclass"):
        Narrow(child=Attention.Params())


@pytest.mark.parametrize("name", ["copy", "build", "freeze", "owner", "validate", "fields"])
def test_a_field_with_the_name_of_a_method_is_refused(name: str) -> None:
    with pytest.raises(ParamsNameError, match=f"{name} cannot be a field.*choose another name"):
        type("Wrong", (Params,), {"__annotations__": {name: int}, name: 3})


def test_a_method_of_the_parent_is_no_name_for_a_field_either() -> None:
    class Counted(Params):
        def count(self) -> int:
            return 3

    with pytest.raises(ParamsNameError, match=r"count is a method or attribute of .*Counted"):

        class Wrong(Counted):
            count: int = 3  # type: ignore[assignment]


def test_a_property_or_method_cannot_take_the_place_of_a_field() -> None:
    with pytest.raises(ParamsNameError, match="rate is a method or property with the name of a"):

        class Wrong(Knobs):
            @property
            def rate(self) -> float:  # type: ignore[override]
                return 0.1


def test_methods_properties_nested_classes_and_private_names_are_no_fields() -> None:
    class Rich(Knobs):
        class Mode(enum.Enum):
            a = 1

        _private = 3
        _typed: int = 4
        shared: ClassVar[int] = 5
        texted: "ClassVar[int]" = 6
        mode: Mode = Mode.a

        def double(self) -> int:
            return 2 * self.num_layers

        @property
        def triple(self) -> int:
            return 3 * self.num_layers

        @classmethod
        def one(cls) -> int:
            return 1

        @staticmethod
        def zero() -> int:
            return 0

        @functools.cached_property
        def half(self) -> float:
            return self.num_layers / 2

    params = Rich()
    assert [field.name for field in params.fields()][-2:] == ["child", "mode"]
    assert (params.double(), params.triple, params.half) == (4, 6, 1.0)
    assert (params.one(), params.zero(), params._private, Rich.shared) == (1, 0, 3, 5)
    assert params.copy() == params


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (bytes, "params cannot hold bytes; a field is bool, int, float, str"),
        (Any, "params cannot hold Any"),
        (set[int], "params cannot hold set"),
        (list, "params cannot hold list"),
        (dict[int, str], "params cannot hold dict"),
        (type[Params], "params cannot hold type"),
        (enum.Flag("F", "a b"), "F is a Flag; use a list of an Enum"),
        (enum.Enum("E", {"a": 1, "b": "a"}), "two members of E would be written alike"),
        (Schedule | None, "a member of Schedule looks like None as text"),
        (Schedule | str, "a str and a Schedule look alike as text"),
        (Schedule | enum.Enum("E", "gpipe x"), "two enums of the union have a member of the same"),
    ],
)
def test_a_type_that_params_cannot_hold_is_refused(annotation: object, words: str) -> None:
    with pytest.raises(ParamsTypeError, match=rf"Wrong\.it: .*{words}"):
        type("Wrong", (Params,), {"__annotations__": {"it": annotation}, "it": REQUIRED})


def test_fields_tell_name_annotation_default_and_comment() -> None:
    field = {field.name: field for field in Attention.Params.fields()}["model_dim"]
    assert (field.name, field.default, str(field.kind)) == ("model_dim", REQUIRED, "int")
    assert field.doc == "Width; the parent sets it."
    assert field.declared_in is Attention.Params
    assert "model_dim" in repr(field)


def test_fields_come_in_order_of_declaration_parents_first() -> None:
    class Deep(Knobs):
        window: int = 3
        num_layers = 64

    names = [field.name for field in Deep.fields()]
    assert names == ["num_layers", "rate", "schedule", "limit", "sizes", "child", "window"]


def test_describe_lists_every_field_in_columns() -> None:
    lines = Attention.Params.describe().split("\n")
    assert lines[0] == "model_dim  int    REQUIRED  Width; the parent sets it."
    assert lines[2] == "dropout    float  0.0"
    whole = Model.Params.describe()
    assert "Attention.Params(...)" in whole
    assert "tuple[FeedForward.Params, int]" in whole
