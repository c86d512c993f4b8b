"""The translation task: its cells and figures, and the scores of every pair."""

import math
from pathlib import Path
from typing import cast

import pytest
import tensorflow as tf

from lingpipe.base.spec import Spec
from lingpipe.hyperparams import ParamsError
from lingpipe.metrics.mean import perplexity
from lingpipe.metrics.translation import translation_scores
from lingpipe.runtime.opening import open_run
from lingpipe.task.decode_options import DecodeOptions
from lingpipe.task.task import Evaluation
from tasks.mt.input import TranslationInput
from tasks.mt.model import TransformerModel
from tasks.mt.parallel_input import ParallelInput
from tasks.mt.task import TranslationTask
from tests.micro_run import LINES, PAIRS, rows


def task(tokens_per_batch: int = 1024, vocabulary_size: int = 400) -> TranslationTask:
    input_params = TranslationInput.Params(
        tokens_per_batch=tokens_per_batch, vocabulary_size=vocabulary_size, max_length=64
    )
    params = TranslationTask.Params(
        model=TransformerModel.Params(num_encoder_layers=1, num_decoder_layers=2)
    )
    return cast(TranslationTask, params.build(input_params=input_params))


def test_a_vocabulary_of_another_size_than_the_input_s_is_refused() -> None:
    data = TranslationInput.Params(vocabulary_size=400)
    for size in (400, 5):
        params = TranslationTask.Params(model=TransformerModel.Params(vocabulary_size=size))
        if size == 400:
            built = cast(TranslationTask, params.build(input_params=data))
            assert built.model.vocabulary_size == 400
        else:
            with pytest.raises(ParamsError, match=r"size \(5\) must be .* the input \(400\)"):
                params.build(input_params=data)


@pytest.fixture(scope="module")
def evaluation(micro_run: Path) -> Evaluation:
    trained, run = open_run(micro_run, "last")
    return trained.evaluate(run, "dev")


def test_the_cells_are_the_model_s_in_order() -> None:
    assert list(task().cells()) == [
        "source_embedding",
        "encoder_0",
        "target_embedding",
        "decoder_0",
        "decoder_1",
        "softmax",
    ]


def test_the_vocabulary_of_the_input_sets_that_of_the_model() -> None:
    built = task(vocabulary_size=123)
    assert built.model.vocabulary_size == 123
    weights = {
        path: weight
        for name, cell in built.cells().items()
        for path, weight in cell.all_weights(name).items()
    }
    assert weights["token_embedding/table"].shape == (123, 512)


def test_a_mistake_in_the_model_is_found_before_the_vocabulary_is_known() -> None:
    params = TranslationTask.Params()
    params.override("model.dropout", 1.5)
    params.override("model.num_heads", 7)
    with pytest.raises(ParamsError) as caught:
        params.validate()
    assert "model.dropout: dropout (1.5) must be" in str(caught.value)
    assert "model.num_heads: model_dim (512) must be a multiple of num_heads (7)" in str(
        caught.value
    )


def test_a_mistake_is_told_once() -> None:
    params = TranslationTask.Params(model=TransformerModel.Params(vocabulary_size=9))
    params.override("model.dropout", 1.5)
    with pytest.raises(ParamsError) as caught:
        params.validate()
    assert str(caught.value).count("dropout (1.5)") == 1


def test_stages_are_balanced_for_a_full_batch_of_typical_sentences() -> None:
    specs = task(tokens_per_batch=1024).micro_batch(4)
    ids, weights = Spec((8, 16), "int32"), Spec((8, 16), "float32")
    assert specs == {
        "source_ids": ids,
        "target_ids": ids,
        "target_labels": ids,
        "target_weights": weights,
    }
    assert task(tokens_per_batch=128).micro_batch(1000)["source_ids"] == Spec((1, 16), "int32")


def test_every_dimension_in_which_batches_differ_is_open() -> None:
    signature = task().signature()
    assert signature.keys() == task().micro_batch(1).keys()
    assert all(spec.shape.as_list() == [None, None] for spec in signature.values())
    assert signature["target_weights"].dtype == tf.float32


def test_figures_are_means_over_tokens() -> None:
    sums = {"loss": 30.0, "weight": 10.0, "negative_log_likelihood": 20.0, "correct": 4.0}
    assert task().metrics(sums) == {"loss": 3.0, "perplexity": math.exp(2.0), "accuracy": 0.4}


def test_a_batch_without_a_token_has_no_figures() -> None:
    sums = dict.fromkeys(("loss", "weight", "negative_log_likelihood", "correct"), 0.0)
    found = task().metrics(sums)
    assert set(found) == {"loss", "perplexity", "accuracy"}
    assert all(math.isnan(value) for value in found.values())


def test_the_table_has_every_pair_the_averages_and_the_signatures(evaluation: Evaluation) -> None:
    lines = evaluation.table.splitlines()
    first_words = [line.split()[0] for line in lines if line.strip()]
    assert set(PAIRS) < set(first_words)
    for name in ("into en (3)", "out of en (3)", "all (6)"):
        assert any(line.startswith(name) for line in lines)
    (bleu,) = (line for line in lines if line.startswith("BLEU into de, en, fr: "))
    assert "|tok:13a|" in bleu and "|version:" in bleu
    assert any(line.startswith("BLEU into zh: ") and "|tok:zh|" in line for line in lines)
    assert any(line.startswith("chrF2: ") for line in lines)


def test_the_record_has_the_figures_of_the_table(evaluation: Evaluation) -> None:
    assert evaluation.record["pairs"].keys() == set(PAIRS)
    for name, scores in evaluation.record["pairs"].items():
        assert scores["lines"] == LINES["valid"]
        (row,) = (line for line in evaluation.table.splitlines() if line.startswith(f"{name} "))
        assert row.split()[2] == f"{scores['bleu']:.2f}"
        assert row.split()[4] == f"{scores['perplexity']:.5g}"
    averages = {each["name"]: each for each in evaluation.record["averages"]}
    mean = sum(scores["bleu"] for scores in evaluation.record["pairs"].values()) / len(PAIRS)
    assert averages["all"]["bleu"] == pytest.approx(mean)


def test_scores_are_those_of_decoding_the_file(evaluation: Evaluation, micro_run: Path) -> None:
    trained, run = open_run(micro_run, "last")
    corpus = micro_run.parent / "corpus" / "en-de"
    sources, references = (
        (corpus / f"valid.{side}").read_text().splitlines() for side in ("en", "de")
    )
    found = [
        best[0].text for best in trained.decode(run, sources, DecodeOptions(target_language="de"))
    ]
    scores = translation_scores(found, references, "de")
    record = evaluation.record["pairs"]["en-de"]
    assert (record["bleu"], record["chrf"]) == (scores.bleu, scores.chrf)
    assert record["bleu_signature"] == scores.bleu_signature


def test_perplexities_make_up_the_one_that_training_noted(
    evaluation: Evaluation, micro_run: Path
) -> None:
    data = cast(ParallelInput, open_run(micro_run, "last")[1].data)
    loss = tokens = 0.0
    for pair in data.evaluation_pairs("dev"):
        for batch in data.evaluation_batches("dev", pair):
            weight = batch.arrays["target_weights"].sum()
            loss += weight * math.log(evaluation.record["pairs"][str(pair)]["perplexity"])
            tokens += weight
    noted = rows(micro_run / "eval.jsonl")[-1]
    assert noted["step"] == 200
    assert perplexity(loss / tokens) == pytest.approx(noted["perplexity"], rel=1e-5)
