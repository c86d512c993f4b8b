"""The text form: written readably, read back exactly, refused with the line at fault."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lingpipe.hyperparams import (
    REQUIRED,
    Params,
    ParamsError,
    ParamsNameError,
    ParamsTypeError,
)
from tests.hyperparams.samples import (
    Attention,
    FeedForward,
    Level,
    LocalAttention,
    Model,
    PlainAttention,
    Schedule,
)

SAMPLES = "tests.hyperparams.samples"


def test_text_has_one_line_a_leaf_in_order_of_declaration() -> None:
    params = Model.Params(
        schedule=Schedule.one_f_one_b,
        layers=[LocalAttention.Params()],
        weights={"en": math.inf, "it's": 1},
        towers={"a.b": Attention.Params()},
        note="two\nlines",
    )
    assert params.to_text().split("\n") == [
        f"class : {SAMPLES}.Model.Params",
        "model_dim : 8",
        "num_layers : 2",
        "rate : 0.1",
        "is_causal : True",
        "name : 'model'",
        "schedule : 1f1b",
        "level : low",
        "rounding : REQUIRED",
        "limit : None",
        "note : 'two\\nlines'",
        "count_or_share : 1",
        "sizes : [1, 2]",
        "names : []",
        "betas : (0.9, 0.98)",
        "words : ()",
        "schedules : ['gpipe']",
        "weights : {'en': inf, \"it's\": 1.0}",
        "tables : {}",
        f"attention : {SAMPLES}.Attention.Params",
        "attention.model_dim : REQUIRED",
        "attention.num_heads : 4",
        "attention.dropout : 0.0",
        "extra : None",
        "layers : [1 item]",
        f"layers[0] : {SAMPLES}.LocalAttention.Params",
        "layers[0].model_dim : REQUIRED",
        "layers[0].num_heads : 4",
        "layers[0].dropout : 0.0",
        "layers[0].window : 128",
        "cells : []",
        "pair : (2 items)",
        f"pair[0] : {SAMPLES}.FeedForward.Params",
        "pair[0].hidden_dim : 16",
        "pair[1] : 1",
        "towers : {1 item}",
        f"towers['a.b'] : {SAMPLES}.Attention.Params",
        "towers['a.b'].model_dim : REQUIRED",
        "towers['a.b'].num_heads : 4",
        "towers['a.b'].dropout : 0.0",
        "inner : None",
        "",
    ]


def attentions() -> st.SearchStrategy[Attention.Params]:
    classes = st.sampled_from([Attention.Params, LocalAttention.Params, PlainAttention.Params])
    dims = st.integers() | st.just(REQUIRED)
    return st.builds(
        lambda cls, dim, rate: cls(model_dim=dim, dropout=rate), classes, dims, st.floats()
    )


def models(inner: st.SearchStrategy[Model.Params | None]) -> st.SearchStrategy[Model.Params]:
    forward = st.builds(FeedForward.Params, hidden_dim=st.integers())
    return st.builds(
        Model.Params,
        num_layers=st.integers() | st.just(REQUIRED),
        rate=st.floats(),
        is_causal=st.booleans(),
        name=st.text(st.characters()),
        schedule=st.sampled_from(Schedule),
        level=st.sampled_from(Level),
        rounding=st.sampled_from(Model.Rounding),
        limit=st.none() | st.floats(),
        note=st.none() | st.text(st.characters()) | st.sampled_from(["None", "REQUIRED", "a.b"]),
        count_or_share=st.integers() | st.floats(),
        sizes=st.lists(st.integers()),
        names=st.lists(st.text()),
        betas=st.tuples(st.floats(), st.floats()),
        words=st.lists(st.text(), max_size=3).map(tuple),
        schedules=st.lists(st.sampled_from(Schedule)),
        weights=st.dictionaries(st.text(st.characters()), st.floats(), max_size=3),
        tables=st.dictionaries(st.text(), st.lists(st.integers()), max_size=3),
        attention=attentions(),
        extra=st.none() | attentions(),
        layers=st.lists(attentions(), max_size=2),
        cells=st.lists(attentions() | forward, max_size=2),
        pair=st.tuples(forward, st.integers()),
        towers=st.dictionaries(st.text(st.characters()), attentions(), max_size=2),
        inner=inner,
    )  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models(st.none() | models(st.none())))
def test_every_tree_reads_back_exactly(params: Model.Params) -> None:
    text = params.to_text()
    read = Model.Params.from_text(text)
    assert read == params
    assert read.diff(params) == []
    assert read.to_text() == text
    assert Params.from_text(text.replace("\n", "\r\n")) == params


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_with_a_params_error(text: str) -> None:
    params = Model.Params()
    for path in ("num_layers", "rate", "is_causal", "schedule", "limit", "betas", "weights"):
        try:
            params.override(path, text, text=True)
        except ParamsError:
            assert getattr(params, path) == getattr(Model.Params(), path)
        params = Model.Params()
    for line in (text, f"sizes : {text}", f"{text} : 3"):
        try:
            Model.Params.from_text(line)
        except ParamsError as error:
            assert str(error)


def test_text_of_a_frozen_tree_reads_back_thawed() -> None:
    read = Model.Params.from_text(Model.Params().freeze().to_text())
    assert not read.frozen
    read.sizes.append(3)


def test_a_base_class_reads_what_its_subclass_wrote() -> None:
    text = LocalAttention.Params(window=3).to_text()
    assert type(Attention.Params.from_text(text)) is LocalAttention.Params
    assert Params.from_text(text) == LocalAttention.Params(window=3)


def test_text_may_leave_fields_out_and_have_comments_and_blank_lines() -> None:
    text = "# Only what differs.\n\n  num_layers : 3\nattention.dropout:0.5\nweights : {'a': 1}"
    params = Model.Params.from_text(text)
    assert params == Model.Params(
        num_layers=3, attention=Attention.Params(dropout=0.5), weights={"a": 1.0}
    )


def test_the_values_of_a_childs_default_are_kept_where_the_text_has_none() -> None:
    class Root(Params):
        child: Attention.Params = Attention.Params(num_heads=7)

    text = f"child : {SAMPLES}.Attention.Params\nchild.dropout : 0.5"
    assert Root.from_text(text).child == Attention.Params(num_heads=7, dropout=0.5)
    text = f"child : {SAMPLES}.LocalAttention.Params"
    assert Root.from_text(text).child == LocalAttention.Params()


def test_params_of_a_class_inside_a_function_read_back_where_their_class_is_known() -> None:
    class Local(Params):
        x: int = 1

    class Root(Params):
        one: Local = Local()
        many: list[Local] = [Local(x=2)]

    params = Root(one=Local(x=3))
    assert Root.from_text(params.to_text()) == params
    with pytest.raises(ParamsError, match="inside a function, which cannot be imported"):
        Params.from_text(params.to_text())


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("num_layer : 3", ParamsNameError, "Line 1: .*no field 'num_layer'; did you mean 'num_la"),
        ("\nattention.drop : 1", ParamsNameError, "Line 2: .*did you mean 'attention.dropout'"),
        ("num_layers 3", ParamsError, "Line 1: 'num_layers 3' cannot be read; write 'path : v"),
        ("num_layers = 3", ParamsError, "cannot be read; write 'path : value'"),
        (": 3", ParamsError, "cannot be read"),
        ("num_layers : 3\nnum_layers : 4", ParamsError, "Line 2: num_layers was given in line 1"),
        ("num_layers : 'x'", ParamsTypeError, r"Line 1: num_layers must be an int, not 'x'"),
        ("num_layers :", ParamsTypeError, "Line 1: num_layers '' cannot be read as a literal"),
        ("num_layers : 1e3", ParamsTypeError, r"must be an int, not 1000\.0 .*write 1000"),
        ("is_causal : 1", ParamsTypeError, "is_causal must be a bool"),
        ("name : model", ParamsTypeError, "name 'model' is no literal; put words in quotes"),
        ("schedule : gpip", ParamsTypeError, "did you mean 'gpipe'"),
        ("schedule : None", ParamsTypeError, "schedule must be a Schedule, not None"),
        ("sizes : [1, 'x']", ParamsTypeError, r"Line 1: sizes\[1\] must be an int"),
        ("sizes[0] : 3", ParamsError, "write the whole value of sizes in one line"),
        ("sizes[9] : 3", ParamsNameError, r"Line 1: sizes has 2 items and no \[9\]"),
        ("sizes.0 : 3", ParamsNameError, r"Line 1: write sizes\.0 as sizes\[0\]"),
        ("sizes : [2 items]", ParamsTypeError, r"says 2 items, but there is no line for sizes\[0"),
        ("sizes : [1 item]\nsizes[0] : REQUIRED", ParamsTypeError, r"Line 2: .*sizes\[0\] '?"),
        ("num_layers : [1 item]", ParamsTypeError, r"must be int, not items in \[\]"),
        ("towers : {1 item}", ParamsTypeError, "says 1 items, but 0 follow"),
        ("pair : (1 item)\npair[0] : 3", ParamsTypeError, "of 2 items, not of 1"),
        ("layers : [1 item]\nlayers[0] : 3", ParamsTypeError, r"Line 2: layers\[0\] must be Att"),
        (
            f"attention : {SAMPLES}.FeedForward.Params",
            ParamsTypeError,
            "Line 1: attention must be Attention.Params or a subclass of it",
        ),
        (f"attention : {SAMPLES}.Nobody.Params", ParamsTypeError, "has no 'Nobody'"),
        ("class : nowhere.X", ParamsTypeError, "Line 1: class nowhere.X cannot be imported"),
        (f"class : {SAMPLES}.FeedForward.Params", ParamsTypeError, "must be Model.Params or a sub"),
        ("class : os.path.join", ParamsTypeError, "must be Model.Params or a subclass of it"),
        ("extra.dropout : 0.5", ParamsNameError, "extra is None and has nothing inside"),
    ],
)  # fmt: skip
def test_text_that_cannot_be_read_is_refused_with_its_line(
    text: str, error: type[ParamsError], words: str
) -> None:
    with pytest.raises(error, match=words):
        Model.Params.from_text(text)


def test_reading_text_runs_none_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ParamsError):
        Model.Params.from_text("sizes : [print('run')]")
    assert capsys.readouterr().out == ""


def test_a_fault_inside_an_imported_module_is_shown_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_with_a_fault.py").write_text("1 / 0", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ZeroDivisionError):
        Model.Params.from_text("attention : module_with_a_fault.X.Params")
    assert "module_with_a_fault" not in sys.modules
