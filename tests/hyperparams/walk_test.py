"""Differences between two trees, and walks over their nodes."""

from lingpipe.hyperparams import Absent, format_differences, nodes
from tests.hyperparams.samples import (
    Attention,
    FeedForward,
    LocalAttention,
    Model,
    Schedule,
)

SAMPLES = "tests.hyperparams.samples"


def test_equal_trees_do_not_differ() -> None:
    assert Model.Params().diff(Model.Params().freeze()) == []


def test_a_difference_has_path_and_both_values() -> None:
    mine = Model.Params(schedule=Schedule.gpipe, attention=Attention.Params(dropout=0.5))
    theirs = Model.Params(schedule=Schedule.one_f_one_b, sizes=[])
    found = mine.diff(theirs)
    assert [(one.path, one.mine, one.theirs) for one in found] == [
        ("schedule", Schedule.gpipe, Schedule.one_f_one_b),
        ("sizes", [1, 2], []),
        ("attention.dropout", 0.5, 0.0),
    ]


def test_differences_print_one_a_line_as_text_files_write_the_values() -> None:
    mine = Model.Params(layers=[Attention.Params(), Attention.Params()], name="a b")
    theirs = Model.Params(
        layers=[LocalAttention.Params()], schedule=Schedule.none, attention=LocalAttention.Params()
    )
    assert format_differences(mine.diff(theirs)).split("\n") == [
        "name : 'a b' -> 'model'",
        "schedule : gpipe -> none",
        f"attention : {SAMPLES}.Attention.Params -> {SAMPLES}.LocalAttention.Params",
        f"layers[0] : {SAMPLES}.Attention.Params -> {SAMPLES}.LocalAttention.Params",
        f"layers[1] : {SAMPLES}.Attention.Params -> (absent)",
        "layers[1].model_dim : REQUIRED -> (absent)",
        "layers[1].num_heads : 4 -> (absent)",
        "layers[1].dropout : 0.0 -> (absent)",
        "attention.window : (absent) -> 128",
        "layers[0].window : (absent) -> 128",
    ]


def test_trees_of_different_classes_differ_in_class_first() -> None:
    first, *rest = Attention.Params().diff(FeedForward.Params())
    assert (first.path, first.mine, first.theirs) == ("class", Attention.Params, FeedForward.Params)
    assert rest[-1].mine == Absent()


def test_nodes_are_walked_with_their_paths_parents_first() -> None:
    params = Model.Params(
        layers=[LocalAttention.Params()],
        towers={"a": Attention.Params()},
        inner=Model.Params(),
    )
    paths = [path for path, _ in nodes(params)]
    assert paths == [
        "",
        "attention",
        "layers[0]",
        "pair[0]",
        "towers['a']",
        "inner",
        "inner.attention",
        "inner.pair[0]",
    ]
