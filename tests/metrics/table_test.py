"""Tables of many pairs: rows, averages by direction, signatures."""

import math
from dataclasses import replace

import pytest

from lingpipe.metrics.errors import MetricsError
from lingpipe.metrics.table import AverageScores, PairScores, averages, table_text
from lingpipe.metrics.translation import TranslationScores


def _row(
    source: str,
    target: str,
    bleu: float,
    chrf: float,
    perplexity: float | None,
    tokenizer: str = "13a",
) -> PairScores:
    scores = TranslationScores(bleu, chrf, f"smooth:exp|tok:{tokenizer}", "nc:6", 1000)
    return PairScores(source, target, scores, perplexity)


ROWS = [
    _row("en", "fr", 40.0, 60.0, 4.0),
    _row("en", "zh", 30.0, 20.0, 16.0, tokenizer="zh"),
    _row("fr", "en", 44.5, 64.0, 2.0),
]


def test_averages_are_taken_by_direction() -> None:
    into, out_of, every = averages(ROWS)
    assert into == AverageScores("into en", 1, 44.5, 64.0, 2.0)
    assert replace(out_of, perplexity=8.0) == AverageScores("out of en", 2, 35.0, 40.0, 8.0)
    assert out_of.perplexity == pytest.approx(8.0)
    assert (every.name, every.pairs, every.bleu) == ("all", 3, pytest.approx(114.5 / 3))
    assert every.perplexity == pytest.approx(math.exp(math.log(4 * 16 * 2) / 3))


def test_an_average_that_would_say_nothing_new_is_left_out() -> None:
    assert [mean.name for mean in averages(ROWS[:2])] == ["all"]
    assert [mean.name for mean in averages(ROWS, hub="de")] == ["all"]
    assert averages([]) == []


def test_a_missing_perplexity_leaves_its_averages_open() -> None:
    rows = [*ROWS, _row("de", "fr", 10.0, 10.0, None)]
    assert [mean.perplexity is None for mean in averages(rows)] == [False, False, True]


def test_an_infinite_perplexity_stays_infinite() -> None:
    assert averages([ROWS[0], _row("de", "fr", 1.0, 1.0, math.inf)])[-1].perplexity == math.inf


def test_the_table_reads_well() -> None:
    assert table_text(ROWS) == (
        "pair           lines   BLEU   chrF  perplexity\n"
        "----------------------------------------------\n"
        "en-fr           1000  40.00  60.00           4\n"
        "en-zh           1000  30.00  20.00          16\n"
        "fr-en           1000  44.50  64.00           2\n"
        "----------------------------------------------\n"
        "into en (1)           44.50  64.00           2\n"
        "out of en (2)         35.00  40.00           8\n"
        "all (3)               38.17  48.00      5.0397\n"
        "\n"
        "BLEU into en, fr: smooth:exp|tok:13a\n"
        "BLEU into zh: smooth:exp|tok:zh\n"
        "chrF2: nc:6\n"
    )


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(MetricsError, match="no pairs to print"):
        table_text([])
