"""A named model is a record of knobs; a set value reaches a knob or any field below."""

import pytest

from lingpipe.hyperparams import Params, ParamsError, ParamsTypeError
from lingpipe.registry import lookup
from lingpipe.task.model_params import ModelParams, make_experiment

CORPUS = "mt.multilingual.Corpus"


class Plain(ModelParams):
    """Has knobs, and nothing that they fill."""

    num_layers: int = 2


class Other(Params):
    """Params, but not a model's."""

    num_layers: int = 2


def test_a_model_that_fills_no_tree_says_so() -> None:
    with pytest.raises(ParamsTypeError, match=r"Plain defines no experiment\(\)"):
        make_experiment(Plain)


def test_params_of_something_else_are_no_model() -> None:
    with pytest.raises(ParamsTypeError) as caught:
        make_experiment(Other)  # type: ignore[type-var,arg-type]
    assert str(caught.value) == (
        f"{__name__}.Other is a params class, but no model: it derives from "
        "lingpipe.hyperparams.params.Params. Derive it from a model, or from "
        "lingpipe.task.model_params.ModelParams, and define experiment()."
    )


def test_a_knob_is_set_before_the_tree_is_filled() -> None:
    text = make_experiment(lookup(CORPUS), ["num_layers=5", " num_heads = 8"]).to_text()
    assert "task.model.num_encoder_layers : 5\n" in text
    assert "task.model.num_decoder_layers : 5\n" in text
    assert "task.model.num_heads : 8\n" in text


def test_any_other_path_reaches_into_the_tree_and_the_last_word_counts() -> None:
    overrides = ["train.max_steps=7", "max_steps=9", "pipeline.partition=[3, 4]", "train.seed=1"]
    experiment = make_experiment(lookup(CORPUS), [*overrides, "train.seed=2"])
    assert experiment.train.max_steps == 7
    assert experiment.train.seed == 2
    assert experiment.pipeline.partition == [3, 4]


@pytest.mark.parametrize("in_order", [True, False])
def test_a_path_wins_over_the_knob_that_fills_it_whatever_their_order(in_order: bool) -> None:
    overrides = ["task.model.num_encoder_layers=3", "num_layers=5"]
    text = make_experiment(lookup(CORPUS), overrides if in_order else overrides[::-1]).to_text()
    assert "task.model.num_encoder_layers : 3\n" in text
    assert "task.model.num_decoder_layers : 5\n" in text


def test_two_experiments_share_nothing() -> None:
    first, second = (make_experiment(lookup(CORPUS)) for _ in range(2))
    first.override("input.languages", ["de"])
    first.override("task.model.dropout", 0.5)
    assert second.diff(first)
    assert second == make_experiment(lookup(CORPUS))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("num_layer=2", "num_layer"),
        ("task.model.droput=0.1", "did you mean 'task.model.dropout'"),
        ("train.max_steps=many", "train.max_steps must be an int"),
        ("train.max_steps", "train.max_steps"),
        ("train.max_steps=0", r"max_steps \(0\) must be at least 1"),
        ("num_heads=7", "num_heads"),
    ],
)
def test_what_cannot_be_set_is_refused(override: str, words: str) -> None:
    with pytest.raises(ParamsError, match=words):
        make_experiment(lookup(CORPUS), [override])
