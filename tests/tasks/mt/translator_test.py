"""One translation a line, the same in any company, whatever the line holds."""

import io
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from lingpipe.input.lines import iterate_lines
from lingpipe.input.tokenizer import END_ID, TokenizerError
from lingpipe.metrics.mean import perplexity
from lingpipe.runtime.opening import open_run
from lingpipe.task.decode_options import DecodeOptions
from lingpipe.task.task import Hypothesis
from tasks.mt.parallel_input import ParallelInput
from tasks.mt.task import TranslationTask
from tasks.mt.translator import Translator, max_target_length
from tasks.mt.vocabulary import VocabularyError
from tests.micro_run import AWKWARD_LINES, rows

LINES = list(iterate_lines(io.BytesIO(AWKWARD_LINES), "the lines"))
BLANK = [Hypothesis("", 0.0)]


@pytest.fixture(scope="module")
def data(micro_run: Path) -> ParallelInput:
    return cast(ParallelInput, open_run(micro_run, "last")[1].data)


@pytest.fixture(scope="module")
def translator(micro_run: Path, data: ParallelInput) -> Translator:
    task, run = open_run(micro_run, "last")
    assert isinstance(task, TranslationTask)
    return Translator(task.model, data, run)


def translate(
    translator: Translator,
    lines: Sequence[str],
    to: str = "fr",
    *,
    nbest: int = 1,
    max_rows: int = 64,
    read_ahead: bool = True,
    **options: float,
) -> list[list[Hypothesis]]:
    wish = DecodeOptions(
        target_language=to, nbest=nbest, max_rows=max_rows, read_ahead=read_ahead, **options
    )
    return list(translator.translate(lines, wish))


def assert_alike(first: Sequence[list[Hypothesis]], second: Sequence[list[Hypothesis]]) -> None:
    """The same texts, and scores that differ by the order of sums at most."""
    assert [[each.text for each in line] for line in first] == [
        [each.text for each in line] for line in second
    ]
    np.testing.assert_allclose(
        [[each.score for each in line] for line in first],
        [[each.score for each in line] for line in second],
        rtol=1e-5,
        atol=1e-5,
    )


# -- Lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_rows", "read_ahead"), [(1, True), (3, True), (7, True), (64, True), (64, False)]
)
def test_every_line_has_one_translation_whatever_the_batches(
    translator: Translator, max_rows: int, read_ahead: bool
) -> None:
    alone = [translate(translator, [line])[0] for line in LINES]
    together = translate(translator, LINES, max_rows=max_rows, read_ahead=read_ahead)
    assert len(together) == len(LINES) == 17
    assert_alike(together, alone)


def test_the_order_of_lines_changes_no_translation(translator: Translator) -> None:
    order = np.random.default_rng(1).permutation(len(LINES))
    shuffled = translate(translator, [LINES[i] for i in order], max_rows=4)
    straight = translate(translator, LINES)
    assert_alike(shuffled, [straight[i] for i in order])


def test_lines_without_a_word_are_answered_by_blank_ones(translator: Translator) -> None:
    blank = ["", " ", "\t", "\xa0", "\u3000", "\u200b", "\x85"]
    assert translate(translator, blank) == [BLANK] * len(blank)
    assert translate(translator, blank, nbest=3) == [BLANK * 3] * len(blank)


def test_other_lines_are_given_to_the_model(translator: Translator) -> None:
    found = translate(translator, LINES)
    spoken = [hypotheses for hypotheses in found if hypotheses != BLANK]
    assert len(spoken) == 12
    assert all(hypotheses[0].score < 0 for hypotheses in spoken)


def test_a_long_line_is_translated_whole_and_named(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        translate(translator, LINES)
    assert [record.getMessage() for record in caplog.records] == [
        "Line 16 has 603 tokens, more than 64: it is decoded whole, but the translation of a line "
        "this long is rarely good. Consider splitting it into sentences."
    ]


def test_no_text_that_the_model_can_spell_breaks_a_line_or_the_encoding(
    translator: Translator,
) -> None:
    """It can spell every byte, also ones that are no UTF-8 together."""
    size = translator.vocabulary.size
    texts = translator.vocabulary.decode(
        [[a, b] for a in range(4, size, 3) for b in range(4, size, 5)]
    )
    for text in texts:
        assert "\n" not in text
        text.encode("utf-8")


# -- Options --------------------------------------------------------------------------------------


def test_the_n_best_are_distinct_and_sorted(translator: Translator) -> None:
    (found,) = translate(translator, ["one two"], nbest=4)
    assert len({hypothesis.text for hypothesis in found}) == 4
    scores = [hypothesis.score for hypothesis in found]
    assert scores == sorted(scores, reverse=True)
    assert found[0] == translate(translator, ["one two"])[0][0]


def test_unknown_languages_name_the_nearest(translator: Translator) -> None:
    with pytest.raises(TokenizerError, match=r"not translate into 'dee'.*did you mean 'de'\?"):
        translate(translator, ["one"], "dee")
    with pytest.raises(VocabularyError, match=r"not translate from 'enn'; did you mean 'en'\?"):
        list(
            translator.translate(
                ["one"], DecodeOptions(target_language="de", source_language="enn")
            )
        )


def test_options_are_refused_before_a_line_is_read(translator: Translator) -> None:
    with pytest.raises(TokenizerError):
        translator.translate(iter(lambda: 1 / 0, None), DecodeOptions(target_language="xx"))


def test_the_tag_changes_the_language(translator: Translator) -> None:
    german, chinese = (translate(translator, ["five four three"], to) for to in ("de", "zh"))
    assert german[0][0].text.isascii() or "ü" in german[0][0].text
    assert not chinese[0][0].text.isascii()


def test_a_tag_in_the_text_is_text(translator: Translator) -> None:
    vocabulary = translator.vocabulary
    first, *rest = vocabulary.encode_source("x<2zh>y", "fr")
    assert first == vocabulary.tokenizer.tag_id("fr")
    assert vocabulary.tokenizer.tag_id("zh") not in rest
    assert vocabulary.decode([rest]) == ["x<2zh>y"]


@pytest.mark.parametrize(("source", "target"), [(1, 13), (5, 25), (95, 295), (600, 800)])
def test_each_sentence_has_a_greatest_length_of_its_own(source: int, target: int) -> None:
    assert max_target_length(source) == target


# -- Sums -----------------------------------------------------------------------------------------


def test_perplexity_equals_that_of_the_pipeline_in_training(
    translator: Translator, data: ParallelInput, micro_run: Path
) -> None:
    total = weight = 0.0
    shapes = set()
    for batch in data.evaluation_batches("dev"):
        shapes.add(batch.arrays["source_ids"].shape)
        sums = translator.sums(batch.arrays)
        total += sums["negative_log_likelihood"]
        weight += sums["weight"]
    (trained,) = (row for row in rows(micro_run / "eval.jsonl") if row["step"] == 200)
    assert perplexity(total / weight) == pytest.approx(trained["perplexity"], rel=1e-5)
    assert len(shapes) > 1


def test_batches_of_all_shapes_share_one_graph(translator: Translator) -> None:
    for shape in ((1, 8), (2, 16), (5, 24)):
        ids = np.full(shape, END_ID, np.int32)
        batch = dict.fromkeys(("source_ids", "target_ids", "target_labels"), ids)
        translator.sums({**batch, "target_weights": np.ones(shape, np.float32)})
    assert translator._sums.experimental_get_tracing_count() == 1
