"""Params as a whole: made, set, copied, frozen, compared and built."""

import copy
import enum
import math
import pickle

import pytest

from lingpipe.errors import UserError
from lingpipe.hyperparams import (
    REQUIRED,
    Parameterized,
    Params,
    ParamsError,
    ParamsNameError,
    ParamsTypeError,
)
from tests.hyperparams.samples import (
    Attention,
    FeedForward,
    LocalAttention,
    Model,
    PlainAttention,
    Schedule,
)


def test_fields_have_their_defaults_until_set() -> None:
    params = Model.Params(num_layers=3)
    assert (params.num_layers, params.model_dim, params.rounding) == (3, 8, REQUIRED)
    params.model_dim = 16
    assert params.model_dim == 16


def test_instances_never_share_a_default() -> None:
    first, second = Model.Params(), Model.Params()
    first.sizes.append(3)
    first.attention.dropout = 0.5
    first.pair[0].hidden_dim = 1
    assert second == Model.Params()
    assert second.sizes == [1, 2]


def test_values_are_copied_in_so_that_trees_never_share_a_part() -> None:
    attention = Attention.Params()
    params = Model.Params(attention=attention, layers=[attention] * 2)
    params.extra = attention
    attention.dropout = 0.5
    params.layers[0].dropout = 0.25
    assert params.attention.dropout == params.extra.dropout == params.layers[1].dropout == 0.0


def test_a_misspelt_field_is_refused_in_the_constructor_with_the_nearest_name() -> None:
    with pytest.raises(
        ParamsNameError,
        match=r"Model\.Params has no field 'num_layer'; did you mean 'num_layers'\?",
    ):
        Model.Params(num_layer=3)


def test_every_misspelt_field_of_a_constructor_is_named() -> None:
    with pytest.raises(ParamsNameError, match="(?s)'num_layer'.*'ratte'"):
        Model.Params(num_layer=3, ratte=0.1)


def test_a_misspelt_field_is_refused_when_set_and_when_read() -> None:
    params = Model.Params()
    with pytest.raises(ParamsNameError, match="has no field 'modeldim'; did you mean 'model_dim'"):
        params.modeldim = 3
    with pytest.raises(AttributeError, match="has no field 'atention'; did you mean 'attention'"):
        _ = params.atention
    assert not hasattr(params, "atention")


def test_a_name_near_to_none_is_answered_with_the_fields_there_are() -> None:
    with pytest.raises(ParamsNameError, match="its fields are: hidden_dim"):
        FeedForward.Params(zzz=1)


def test_positional_values_are_refused() -> None:
    with pytest.raises(TypeError, match="positional"):
        FeedForward.Params(3)


def test_a_field_cannot_be_deleted() -> None:
    params = FeedForward.Params()
    with pytest.raises(ParamsNameError, match="hidden_dim cannot be deleted"):
        del params.hidden_dim


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("num_layers", "3", r"Model\.Params\.num_layers must be an int, not '3' \(str\)"),
        ("num_layers", True, r"must be an int, not True \(bool\)"),
        ("num_layers", 3.0, r"must be an int, not 3\.0 \(float\); write 3\."),
        ("num_layers", 3.5, r"must be an int, not 3\.5 \(float\)\."),
        ("num_layers", None, r"must be an int, not None"),
        ("rate", False, r"must be a float, not False \(bool\)"),
        ("rate", "0.1", r"must be a float, not '0\.1' \(str\)"),
        ("rate", 2**60 + 1, "no float equal to it"),
        ("rate", 10**400, "no float equal to it"),
        ("is_causal", 1, r"must be a bool, not 1 \(int\); write True or False"),
        ("name", 3, r"must be a str, not 3 \(int\)"),
        ("name", Schedule.gpipe, "must be a str, not"),
        ("schedule", "1f1b", r"must be a Schedule.*; write Schedule\.one_f_one_b"),
        ("schedule", "1g1b", "one of gpipe, 1f1b, none"),
        ("limit", "x", r"must be None or a float, not 'x' \(str\)"),
        ("count_or_share", "x", r"must be int \| float, not 'x' \(str\)"),
        ("sizes", [1, object()], r"Model\.Params\.sizes\[1\] must be an int, not <object"),
        ("sizes", [1, True], r"sizes\[1\] must be an int, not True"),
        ("sizes", (1, 2), r"must be a list\[int\], not \(1, 2\) \(tuple\); write \[\.\.\.\]"),
        ("betas", (0.1,), r"must be a tuple\[float, float\] of 2 items, not of 1"),
        ("betas", [0.1, 0.2], r"not \[0\.1, 0\.2\] \(list\); write \(\.\.\.\)"),
        ("betas", (0.1, "x"), r"betas\[1\] must be a float"),
        ("weights", {"en": "x"}, r"weights\['en'\] must be a float, not 'x'"),
        ("weights", {3: 0.1}, r"must have keys of type str, not 3 \(int\)"),
        ("tables", {"a": [1, "x"]}, r"tables\['a'\]\[1\] must be an int"),
        ("attention", FeedForward.Params(), r"must be Attention\.Params or params of a subclass"),
        ("attention", Attention, r"must be Attention\.Params or params of a subclass"),
        ("attention", Attention.Params, r"not its class; write Attention\.Params\(\)"),
        ("layers", [Attention.Params(), 3], r"layers\[1\] must be Attention\.Params"),
        ("pair", (FeedForward.Params(), 1.5), r"pair\[1\] must be an int"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_path(
    field: str, value: object, words: str
) -> None:
    params = Model.Params()
    before = params.copy()
    with pytest.raises(ParamsTypeError, match=words):
        setattr(params, field, value)
    with pytest.raises(ParamsTypeError, match=words):
        Model.Params(**{field: value})
    assert params == before


def test_an_int_is_stored_as_a_float_where_a_float_is_declared() -> None:
    params = Model.Params(rate=1, betas=(0, 1), weights={"en": 2}, limit=3)
    values = (params.rate, *params.betas, params.weights["en"], params.limit)
    assert [type(value) for value in values] == [float] * 5


def test_a_union_of_int_and_float_keeps_each() -> None:
    assert type(Model.Params(count_or_share=3).count_or_share) is int
    assert type(Model.Params(count_or_share=0.5).count_or_share) is float


def test_a_child_field_accepts_params_of_a_subclass() -> None:
    params = Model.Params(
        attention=LocalAttention.Params(window=3), layers=[LocalAttention.Params()]
    )
    assert isinstance(params.attention, LocalAttention.Params)
    params.attention = PlainAttention.Params()
    assert type(params.attention) is PlainAttention.Params


def test_required_fits_every_field() -> None:
    params = Model.Params(num_layers=REQUIRED, attention=REQUIRED)
    params.sizes = REQUIRED
    assert list(params.required_fields()) == ["num_layers", "rounding", "sizes", "attention"]


def test_required_is_one_object_wherever_it_goes() -> None:
    assert copy.deepcopy(REQUIRED) is REQUIRED
    assert pickle.loads(pickle.dumps(REQUIRED)) is REQUIRED
    assert repr(REQUIRED) == "REQUIRED"


def test_equal_params_have_equal_classes_types_and_values() -> None:
    assert Model.Params() == Model.Params()
    assert Model.Params() != Model.Params(num_layers=3)
    assert Attention.Params() != PlainAttention.Params()
    assert Model.Params(count_or_share=1) != Model.Params(count_or_share=1.0)
    assert Model.Params(rate=math.nan) == Model.Params(rate=math.nan)
    assert Model.Params(sizes=[]) != Model.Params()
    assert Model.Params(extra=None) != Model.Params(extra=Attention.Params())
    assert Model.Params() != 3


def test_params_have_no_hash_as_they_can_change() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Model.Params())


def test_a_node_inside_itself_is_refused() -> None:
    params = Model.Params(inner=Model.Params())
    params.__dict__["inner"] = params
    with pytest.raises(ParamsError, match="inner contains itself"):
        params.validate()


def test_validate_names_every_inconsistency_with_its_path() -> None:
    params = Model.Params(
        attention=Attention.Params(model_dim=6, dropout=2.0),
        layers=[Attention.Params(model_dim=8), Attention.Params(model_dim=9)],
    )
    params.sizes.append(None)  # type: ignore[arg-type]
    with pytest.raises(ParamsError) as caught:
        params.validate()
    assert str(caught.value).split("\n") == [
        "Model.Params has 4 inconsistencies:",
        "  sizes[2] must be an int, not None (NoneType).",
        "  attention.num_heads: model_dim (6) must be a multiple of num_heads (4).",
        "  attention.dropout: dropout (2.0) must be in [0, 1).",
        "  layers[1].num_heads: model_dim (9) must be a multiple of num_heads (4).",
    ]


def test_validate_skips_nodes_that_still_wait_for_a_required_field() -> None:
    params = Model.Params(attention=Attention.Params(dropout=2.0))
    params.validate()
    params.attention.model_dim = 8
    with pytest.raises(ParamsError, match=r"attention.dropout: dropout \(2.0\) must be in"):
        params.validate()


def test_a_fault_inside_a_hook_says_which_node_it_was_checking() -> None:
    class Faulty(Params):
        x: int = 1

        def inconsistencies(self) -> list[tuple[str, str]]:
            raise ZeroDivisionError

    class Root(Params):
        child: Faulty = Faulty()

    with pytest.raises(ZeroDivisionError) as caught:
        Root().validate()
    assert "'child'" in caught.value.__notes__[0]


def test_build_hands_frozen_params_and_arguments_to_the_owner() -> None:
    params = Attention.Params(model_dim=8)
    built = params.build(scope="encoder")
    assert type(built) is Attention
    assert built.params == params
    assert built.params.frozen
    assert not params.frozen
    assert built.scope == "encoder"


def test_building_frozen_params_copies_nothing() -> None:
    params = Attention.Params(model_dim=8).freeze()
    assert params.build().params is params


def test_build_names_every_required_field_of_its_own() -> None:
    with pytest.raises(
        ParamsError,
        match=r"Model\.Params cannot be built while REQUIRED is left in num_layers, rounding; "
        r"set them first: params\.num_layers = ",
    ):
        Model.Params(num_layers=REQUIRED).build()


def test_build_leaves_the_required_fields_of_children_to_them() -> None:
    assert Model.Params(rounding=Model.Rounding.up).build().params.attention.model_dim is REQUIRED


def test_build_refuses_inconsistent_params() -> None:
    with pytest.raises(ParamsError, match="inconsistent: dropout: dropout .1.0. must be in"):
        Attention.Params(model_dim=8, dropout=1).build()


def test_params_without_an_owner_build_nothing() -> None:
    class Knobs(Params):
        x: int = 1

    with pytest.raises(ParamsError, match="Knobs builds nothing: it is nested in no class"):
        Knobs().build()


def test_the_errors_are_the_users_and_the_builtin_ones() -> None:
    assert issubclass(ParamsError, UserError | ValueError)
    assert issubclass(ParamsTypeError, ParamsError)
    assert issubclass(ParamsTypeError, TypeError)
    assert issubclass(ParamsNameError, ParamsError)
    assert issubclass(ParamsNameError, AttributeError)


def test_repr_shows_class_and_values() -> None:
    assert repr(LocalAttention.Params(window=3)) == (
        "LocalAttention.Params(model_dim=REQUIRED, num_heads=4, dropout=0.0, window=3)"
    )


def test_a_subclass_can_start_from_its_parents_default() -> None:
    class Wide(Model.Params):
        attention = Model.Params.attention.copy(num_heads=16)
        sizes = [*Model.Params.sizes, 3]

    assert Wide().attention.num_heads == 16
    assert Wide().sizes == [1, 2, 3]
    assert Model.Params().attention.num_heads == 4


def test_a_default_assigned_on_the_class_afterwards_is_refused() -> None:
    class Knobs(Params):
        width: int = 1

    class Wide(Knobs):
        pass

    Knobs.width = 3
    with pytest.raises(ParamsNameError, match=r"Knobs\.width was assigned on the class"):
        Wide()


def test_params_combine_with_a_class_that_has_a_metaclass() -> None:
    class Meta(type):
        pass

    class Module(metaclass=Meta):
        pass

    class Layer(Module, Parameterized):
        class Params(Parameterized.Params):
            width: int = 1

        def __init__(self, params: Params) -> None:
            self.params = params

    assert Layer.Params(width=2).build().params.width == 2


def test_an_enum_made_of_strings_is_no_string() -> None:
    class Word(enum.StrEnum):
        a = "a"

    class Knobs(Params):
        word: Word = Word.a
        text: str = ""

    assert Knobs().word is Word.a
    with pytest.raises(ParamsTypeError, match="must be a str"):
        Knobs(text=Word.a)
