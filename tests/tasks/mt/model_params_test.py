"""The knobs of translation models, and where each of them ends up."""

import enum

import pytest

from lingpipe.hyperparams import Params, ParamsError, ParamsTypeError
from lingpipe.input.folder_corpus import Directions
from lingpipe.learner.schedules import Cosine, InverseSquareRoot
from lingpipe.task.model_params import make_experiment
from tasks.mt.model_params import TranslationKnobs, TranslationModel


class Homeless(TranslationKnobs):
    """Does not say what it is trained on."""


def at(params: Params, path: str) -> object:
    value: object = params
    for name in path.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("knob", "value", "paths"),
    [
        ("num_layers", 3, ["task.model.num_encoder_layers", "task.model.num_decoder_layers"]),
        ("model_dim", 64, ["task.model.model_dim"]),
        ("ffn_dim", 96, ["task.model.ffn_dim"]),
        ("num_heads", 4, ["task.model.num_heads"]),
        ("dropout", 0.25, ["task.model.dropout"]),
        ("label_smoothing", 0.2, ["task.model.label_smoothing"]),
        ("vocabulary_size", 500, ["input.vocabulary_size"]),
        ("corpus", "my/corpus", ["input.corpus"]),
        ("directions", Directions.to_english, ["input.directions"]),
        ("length_multiple", 4, ["input.length_multiple"]),
        ("temperature", 2.0, ["input.temperature"]),
        ("tokens_per_batch", 4096, ["input.tokens_per_batch"]),
        ("peak_learning_rate", 0.5, ["learner.schedule.peak"]),
        ("warmup_steps", 7, ["learner.schedule.warmup_steps"]),
        ("max_steps", 11, ["train.max_steps"]),
        ("num_stages", 3, ["pipeline.num_stages"]),
        ("num_micro_batches", 6, ["pipeline.num_micro_batches"]),
        ("num_replicas", 2, ["pipeline.num_replicas"]),
    ],
)
def test_a_knob_fills_its_fields_and_no_other(knob: str, value: object, paths: list[str]) -> None:
    plain = make_experiment(TranslationModel)
    text = value.value if isinstance(value, enum.Enum) else value
    turned = make_experiment(TranslationModel, [f"{knob}={text}"])
    assert [difference.path for difference in plain.diff(turned)] == paths
    assert all(at(turned, path) == value for path in paths)


def test_a_model_must_say_what_it_is_trained_on() -> None:
    with pytest.raises(ParamsTypeError, match=r"Homeless defines no input_params\(\)"):
        make_experiment(Homeless)


def test_every_knob_is_tested_here() -> None:
    marks = test_a_knob_fills_its_fields_and_no_other.pytestmark  # type: ignore[attr-defined]
    tested = {case[0] for case in marks[0].args[1]}
    others = {"decay", "jit_compile"}
    assert {field.name for field in TranslationModel().fields()} == {*tested, *others}


def test_compiled_stages_get_batches_of_few_shapes_and_equal_micro_batches() -> None:
    plain = make_experiment(TranslationModel)
    turned = make_experiment(TranslationModel, ["jit_compile=true", "num_micro_batches=6"])
    paths = ["input.static_shapes", "input.rows_multiple", "pipeline.num_micro_batches"]
    paths.append("pipeline.jit_compile")
    assert [difference.path for difference in plain.diff(turned)] == paths
    assert at(turned, "input.rows_multiple") == 6


def test_compiled_stages_without_static_shapes_are_refused() -> None:
    with pytest.raises(ParamsError) as caught:
        make_experiment(TranslationModel, ["pipeline.jit_compile=true"])
    for words in (
        "compiles every stage anew for each shape of a batch, and this input's batches come in",
        "Set input.static_shapes=true, and input.rows_multiple=4, the number of micro-batches; the",
    ):
        assert words in str(caught.value)
    make_experiment(TranslationModel, ["pipeline.jit_compile=true", "input.static_shapes=true"])


def test_a_cosine_reaches_zero_at_the_last_step() -> None:
    plain = make_experiment(TranslationModel).learner
    turned = make_experiment(TranslationModel, ["decay=cosine", "max_steps=9000"]).learner
    assert isinstance(at(plain, "schedule"), InverseSquareRoot.Params)
    assert isinstance(at(turned, "schedule"), Cosine.Params)
    assert at(turned, "schedule").for_run(9000).total_steps == 9000
    for field in ("peak", "warmup_steps"):
        assert at(turned, f"schedule.{field}") == at(plain, f"schedule.{field}")


def test_the_optimiser_is_that_of_the_paper() -> None:
    learner = make_experiment(TranslationModel).learner
    assert at(learner, "optimizer.beta_2") == 0.98
    assert at(learner, "optimizer.epsilon") == 1e-9
