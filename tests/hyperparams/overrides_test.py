"""Overrides by path: parsed by the field's type, never guessed, all or nothing."""

import math
from pathlib import Path

import pytest

from lingpipe.errors import UserError
from lingpipe.hyperparams import (
    REQUIRED,
    Params,
    ParamsError,
    ParamsNameError,
    ParamsTypeError,
    read_overrides,
)
from lingpipe.hyperparams.overrides import split_assignment
from lingpipe.hyperparams.paths import locate
from tests.hyperparams.samples import (
    Attention,
    FeedForward,
    Level,
    LocalAttention,
    Model,
    Schedule,
)


def sample() -> Model.Params:
    return Model.Params(
        layers=[Attention.Params(), LocalAttention.Params()],
        weights={"en-fr": 1.0, "en-de": 2.0},
        tables={"a.b": [1, 2]},
        towers={"left": Attention.Params()},
    )


class Root(Params):
    """Two levels above the model."""

    model: Model.Params = sample()


@pytest.mark.parametrize(
    ("path", "printed"),
    [
        ("num_layers", "num_layers"),
        ("attention.num_heads", "attention.num_heads"),
        ("layers[1].window", "layers[1].window"),
        ("layers.1.window", "layers[1].window"),
        ("layers[ 1 ].window", "layers[1].window"),
        ("sizes[0]", "sizes[0]"),
        ("tables['a.b'][1]", "tables['a.b'][1]"),
        ('tables["a.b"].1', "tables['a.b'][1]"),
        ("towers.left.num_heads", "towers['left'].num_heads"),
        ("towers[left].num_heads", "towers['left'].num_heads"),
        ("pair[0].hidden_dim", "pair[0].hidden_dim"),
        ("pair.1", "pair[1]"),
    ],
)
def test_a_path_reaches_every_int_in_either_spelling(path: str, printed: str) -> None:
    root = Root()
    root.override(f"model.{path}", "16_384", text=True)
    place = locate(root, f"model.{path}")
    value = getattr(place.node, place.name)
    for step in place.inner:
        value = value[step]
    assert (place.path, value) == (f"model.{printed}", 16_384)
    assert len(root.diff(Root())) == 1


def test_an_override_keeps_the_nodes_beside_it() -> None:
    params = sample()
    first, pair = params.layers[0], params.pair[0]
    params.override("layers[0].num_heads", 8)
    params.override("layers[1]", Attention.Params())
    params.override("pair[1]", 5)
    assert params.layers[0] is first
    assert params.pair[0] is pair
    assert first.num_heads == 8
    assert (type(params.layers[1]), params.pair[1]) == (Attention.Params, 5)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("modle", r"Root has no field 'modle'; did you mean 'model'\?"),
        (
            "model.attention.num_head",
            r"model\.attention\.num_head: Attention\.Params has no field 'num_head'; "
            r"did you mean 'model\.attention\.num_heads'\?",
        ),
        (
            "model.layers[1].windw",
            r"model\.layers\[1\]\.windw: LocalAttention\.Params has no .*"
            r"'model\.layers\[1\]\.window'",
        ),
        (
            "model.layers[2]",
            r"model\.layers has 2 items and no \[2\]; the last is model\.layers\[1\]",
        ),
        ("model.names[0]", r"model\.names has 0 items and no \[0\]\."),
        ("model.layers[-1]", r"holds a list; '-1' is no index of it, write one such as .*\[0\]"),
        ("model.pair.first", r"model\.pair holds a tuple; 'first' is no index"),
        ("model.weights.en-fi", r"model\.weights has no key 'en-fi'; did you mean 'en-fr'\?"),
        ("model.rate.x", r"model\.rate is 0\.1 and has nothing inside"),
        (
            "model.extra.dropout",
            r"model\.extra is None and has nothing inside.*set model\.extra it",
        ),
        ("model.rounding.x", r"model\.rounding is REQUIRED and has nothing inside"),
        ("", "is no path"),
        ("model..rate", "is no path"),
        (".model", "is no path"),
        ("model.", "is no path"),
        ("model rate", "is no path"),
        ("model[", "is no path"),
        (r"model['\x']", "is no path"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_with_the_nearest(path: str, words: str) -> None:
    root = Root()
    with pytest.raises(ParamsNameError, match=words):
        root.override(path, 3)
    assert root == Root()


def test_a_value_of_the_wrong_type_is_refused_with_the_whole_path() -> None:
    root = Root()
    with pytest.raises(
        ParamsTypeError, match=r"model\.layers\[1\]\.window must be an int, not '3'"
    ):
        root.override("model.layers[1].window", "3")
    with pytest.raises(ParamsTypeError, match=r"model\.rate is to be read from text, and 3 \(int"):
        root.override("model.rate", 3, text=True)
    with pytest.raises(ParamsTypeError, match=r"model\.sizes\[0\] must be an int"):
        root.override("model.sizes[0]", REQUIRED)
    with pytest.raises(ParamsTypeError, match=r"model\.tables\['a.b'\]\[1\] must be an int"):
        root.override("model.tables", {"a.b": [1, None]})
    assert root == Root()


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("num_layers", "16_384", 16_384),
        ("num_layers", " -3 ", -3),
        ("rate", "1e-3", 1e-3),
        ("rate", "3", 3.0),
        ("rate", ".5", 0.5),
        ("rate", "-inf", -math.inf),
        ("is_causal", "false", False),
        ("is_causal", "True", True),
        ("name", "/data/a b=c/#1", "/data/a b=c/#1"),
        ("name", "", ""),
        ("name", " padded ", " padded "),
        ("name", "None", "None"),
        ("name", "'quoted'", "'quoted'"),
        ("note", "None", None),
        ("note", "none", None),
        ("note", "a/b", "a/b"),
        ("limit", "None", None),
        ("limit", "1", 1.0),
        ("count_or_share", "1", 1),
        ("count_or_share", "1.0", 1.0),
        ("schedule", "1f1b", Schedule.one_f_one_b),
        ("schedule", "one_f_one_b", Schedule.one_f_one_b),
        ("schedule", "none", Schedule.none),
        ("level", "low", Level.low),
        ("sizes", "3, 4", [3, 4]),
        ("sizes", "7", [7]),
        ("sizes", "[1, 2_000]", [1, 2000]),
        ("sizes", "[]", []),
        ("names", "a/b,c d", ["a/b", "c d"]),
        ("names", "['a,b', \"c\"]", ["a,b", "c"]),
        ("names", r'["\/\ud83d\ude00"]', ["/😀"]),
        ("betas", "0.9,1e-2", (0.9, 0.01)),
        ("betas", "(0.9, 1)", (0.9, 1.0)),
        ("betas", "[0.9, 1]", (0.9, 1.0)),
        ("words", "()", ()),
        ("schedules", "gpipe,1f1b", [Schedule.gpipe, Schedule.one_f_one_b]),
        ("schedules", "['1f1b']", [Schedule.one_f_one_b]),
        ("weights", "{'en-fr': 1, \"x\": inf}", {"en-fr": 1.0, "x": math.inf}),
        ("tables", '{"a": [1, 2]}', {"a": [1, 2]}),
        ("extra", "None", None),
        ("layers", "[]", []),
    ],
)
def test_text_is_read_by_the_fields_type(path: str, text: str, value: object) -> None:
    params = Model.Params()
    params.override(path, text, text=True)
    read = getattr(params, path)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("num_layers", "1e3", r"num_layers must be an int, not '1e3'; write 1000\."),
        ("num_layers", "1.5", r"must be an int, not '1\.5'; write 1 or 2\."),
        ("num_layers", "2.0", r"write 2\."),
        ("num_layers", "1e999", "must be an int such as 16 or 16_384"),
        ("num_layers", "true", "must be an int such as 16 or 16_384, not 'true'"),
        ("num_layers", "REQUIRED", "must be an int such as"),
        ("num_layers", "0x10", "must be an int such as"),
        ("num_layers", "1__0", "must be an int"),
        ("num_layers", "٣", "must be an int such as"),
        ("num_layers", "", "must be an int such as"),
        ("num_layers", "9" * 5000, "must be an int"),
        ("rate", "x", "must be a float such as 0.1 or 1e-3, not 'x'"),
        ("rate", "1e999", "is too large"),
        ("rate", "1__0", "must be a float such as"),
        ("is_causal", "0", "is_causal must be true or false, not '0'"),
        ("is_causal", "FALSE", "must be true or false, not 'FALSE'"),
        ("is_causal", "yes", "must be true or false"),
        ("limit", "x", "limit must be None or a float such as"),
        (
            "schedule",
            "gpip",
            r"must be one of gpipe, 1f1b, none, not 'gpip' \(did you mean 'gpipe'",
        ),
        ("schedule", "x", r"must be one of gpipe, 1f1b, none, not 'x'\.$"),
        ("sizes", "", r"sizes must not be empty text; write \[\] for an empty one"),
        ("sizes", "1,x", r"sizes\[1\] must be an int such as 16 or 16_384, not 'x'"),
        ("sizes", "1,1e3", r"sizes\[1\] must be an int, not '1e3'; write 1000"),
        ("sizes", "1,", "item 1 of '1,' is empty; remove the spare comma"),
        ("sizes", "[1, 'x']", r"sizes\[1\] must be an int, not 'x'"),
        ("sizes", "[1, true]", r"sizes\[1\] must be an int, not True"),
        ("sizes", "[1e3]", r"sizes\[0\] must be an int, not 1000\.0 \(float\); write 1000"),
        ("sizes", "[1", "cannot be read as a literal"),
        ("sizes", "(1, 2)", r"must be a list\[int\], not \(1, 2\) \(tuple\)"),
        ("sizes", "[__import__('os')]", "is no literal; put words in quotes"),
        ("names", "[gpipe]", "'gpipe' is no literal; put words in quotes"),
        ("betas", "0.9", "of 2 items, not of 1"),
        ("weights", "a=1", r"must be a dict\[str, float\] such as \{'key': value\}"),
        ("weights", '{"a": 1, "a": 2}', "the key 'a' is given twice"),
        ("weights", "{'a': 1, 'a': 2}", "the key 'a' is given twice"),
        ("weights", '{"a": 1e999}', "too large for a float"),
        ("weights", "{'a': 1e999}", "too large for a float"),
        ("weights", "{3: 1}", "the key 3 must be a string"),
        ("weights", "{**{}}", "is no literal"),
        ("weights", "{'a': -'b'}", "a sign must stand before a number"),
        ("tables", "{'a': [1, 'x']}", r"tables\['a'\]\[1\] must be an int"),
        ("attention", "3", "holds params of type Attention.Params, not '3'; set its fields one by"),
    ],
)
def test_text_that_does_not_fit_is_refused_and_says_what_to_write(
    path: str, text: str, words: str
) -> None:
    params = Model.Params()
    with pytest.raises(ParamsTypeError, match=words):
        params.override(path, text, text=True)
    assert params == Model.Params()


def test_lists_of_lists_must_be_written_as_literals() -> None:
    class Nested(Params):
        rows: list[list[int]] = []

    params = Nested()
    params.override("rows", "[[1, 2], [3]]", text=True)
    assert params.rows == [[1, 2], [3]]
    with pytest.raises(
        ParamsTypeError, match=r"must be written as a literal in \[\], not as '1,2'"
    ):
        params.override("rows", "1,2", text=True)


def test_a_union_is_offered_the_text_in_order_and_str_last() -> None:
    class Knobs(Params):
        partition: str | list[int] | None = None

    params = Knobs()
    params.override("partition", "3,5", text=True)
    assert params.partition == [3, 5]
    params.override("partition", "measured", text=True)
    assert params.partition == "measured"
    params.override("partition", "none", text=True)
    assert params.partition is None


def test_a_child_can_be_replaced_by_the_import_path_of_its_class() -> None:
    params = Model.Params()
    params.override("attention", "tests.hyperparams.samples.LocalAttention.Params", text=True)
    params.override("attention.window", "3", text=True)
    assert params.attention == LocalAttention.Params(window=3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tests.hyperparams.samples.LocalAttention", r"did you mean '.*LocalAttention\.Params'\?"),
        ("tests.hyperparams.samples.LocalAtention.Params", "did you mean '.*LocalAttention'"),
        ("tests.hyperparams.samples.FeedForward.Params", "must be Attention.Params or a subclass"),
        ("tests.hyperparams.nowhere.X", "tests.hyperparams has no 'nowhere'"),
        ("nowhere_at_all.X", "there is no module 'nowhere_at_all'"),
        ("tests.<locals>.X", "a class inside a function, which cannot be imported"),
    ],
)
def test_a_class_that_does_not_fit_a_child_is_refused(text: str, words: str) -> None:
    with pytest.raises(ParamsTypeError, match=f"attention .*{words}"):
        Model.Params().override("attention", text, text=True)


def test_several_overrides_are_applied_in_order() -> None:
    params = sample()
    params.override_all(
        ["num_layers=4", "name=a=b", "layers=[]", "sizes=1,2,3", "sizes[2]=9", "num_layers = 5"]
    )
    assert (params.num_layers, params.name, params.layers) == (5, "a=b", [])
    assert params.sizes == [1, 2, 9]


@pytest.mark.parametrize(
    "wrong", ["num_layers=x", "num_layer=3", "num_layers", "=3", "layers[7].dropout=0.1"]
)
def test_an_error_midway_leaves_nothing_half_applied(wrong: str) -> None:
    params = sample()
    layer = params.layers[0]
    with pytest.raises(ParamsError):
        params.override_all(["layers[0].num_heads=8", "rate=0.5", wrong, "name=x"])
    assert params == sample()
    assert params.layers[0] is layer


def test_a_frozen_part_refuses_before_anything_is_applied() -> None:
    params = sample()
    params.attention.freeze()
    with pytest.raises(ParamsError, match="frozen"):
        params.override_all(["num_layers=7", "attention.dropout=0.1"])
    assert params.num_layers == 2
    with pytest.raises(ParamsError, match="frozen"):
        sample().freeze().override_all(["num_layers=7"])


def test_an_assignment_is_split_at_the_first_equals_sign_behind_the_path() -> None:
    assert split_assignment("a.b[0]=x=y") == ("a.b[0]", "x=y")
    assert split_assignment("w['a=b']=3") == ("w['a=b']", "3")
    assert split_assignment("  a = 3") == ("a", " 3")
    assert split_assignment("a b=3") == ("a b", "3")
    with pytest.raises(ParamsError, match="'a.b' has no '='; write PATH=VALUE"):
        split_assignment("a.b")


def test_a_file_of_overrides_has_one_a_line_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "overrides.txt"
    file.write_bytes(
        "\ufeff# A comment\r\n\n  num_layers=4\r\n  # Another\nname=a # b\u2028c".encode()
    )
    assert read_overrides(file) == ["num_layers=4", "name=a # b\u2028c"]
    assert read_overrides(str(file)) == read_overrides(file)


def test_a_file_of_overrides_that_cannot_be_read_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"overrides '.*absent' cannot be read: No such file"):
        read_overrides(tmp_path / "absent")
    with pytest.raises(ParamsError, match="cannot be read: Is a directory"):
        read_overrides(tmp_path)
    (tmp_path / "latin").write_bytes(b"name=\xe9")
    with pytest.raises(ParamsError, match="is not UTF-8"):
        read_overrides(tmp_path / "latin")
    (tmp_path / "wrong").write_text("a=1\n\nb", encoding="utf-8")
    with pytest.raises(ParamsError, match=r"Line 3 of '.*wrong': 'b' has no '='"):
        read_overrides(tmp_path / "wrong")


def test_a_required_field_can_be_set_and_unset_from_code() -> None:
    params = Model.Params()
    params.override("attention.model_dim", 3)
    params.override("num_layers", REQUIRED)
    assert (params.attention.model_dim, params.num_layers) == (3, REQUIRED)
    params.override("pair[0]", FeedForward.Params(hidden_dim=1))
    assert params.pair[0].hidden_dim == 1
