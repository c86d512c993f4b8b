"""BLEU and chrF against sacrebleu called directly and against their formulas, written plainly."""

import math
from collections import Counter
from collections.abc import Sequence

import pytest
import sacrebleu

from lingpipe.metrics.errors import MetricsError
from lingpipe.metrics.translation import TranslationScores, tokenizer_for, translation_scores

# Words and punctuation are spaced already, so that splitting at spaces is what 13a does.
HYPOTHESES = ["the cat sat on the mat .", "a dog ran .", ""]
REFERENCES = ["the cat sat on a mat .", "the dog ran away .", "birds fly"]


def _ngrams(items: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(items[i : i + order]) for i in range(len(items) - order + 1))


def _plain_bleu(hypotheses: list[str], references: list[str]) -> float:
    """Papineni et al. 2002 with the n-th order without a match counted as 2^-n of one."""
    pairs = [(h.split(), r.split()) for h, r in zip(hypotheses, references, strict=True)]
    log_precisions, without_match = [], 0
    for order in (1, 2, 3, 4):
        matches = sum((_ngrams(h, order) & _ngrams(r, order)).total() for h, r in pairs)
        total = sum(_ngrams(h, order).total() for h, _ in pairs)
        if matches == 0:
            without_match += 1
        log_precisions.append(math.log((matches or 0.5**without_match) / total))
    ours, theirs = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    brevity = min(0.0, 1 - theirs / ours)
    return 100 * math.exp(brevity + sum(log_precisions) / 4)


def _plain_chrf(hypotheses: list[str], references: list[str]) -> float:
    """Popović 2015: mean precision and recall of 1- to 6-grams of characters, recall twice."""
    pairs = [
        (h.replace(" ", ""), r.replace(" ", ""))
        for h, r in zip(hypotheses, references, strict=True)
    ]
    precisions, recalls = [], []
    for order in range(1, 7):
        matches = sum((_ngrams(h, order) & _ngrams(r, order)).total() for h, r in pairs)
        # An order that the reference is too short for does not count against the hypothesis.
        precisions.append(
            matches / sum(_ngrams(h, order).total() for h, r in pairs if len(r) >= order)
        )
        recalls.append(matches / sum(_ngrams(r, order).total() for _, r in pairs))
    precision, recall = sum(precisions) / 6, sum(recalls) / 6
    return 100 * 5 * precision * recall / (4 * precision + recall)


def test_scores_follow_the_published_formulas() -> None:
    scores = translation_scores(HYPOTHESES, REFERENCES, "en")
    assert scores.bleu == pytest.approx(_plain_bleu(HYPOTHESES, REFERENCES))
    assert scores.chrf == pytest.approx(_plain_chrf(HYPOTHESES, REFERENCES))
    assert 20 < scores.bleu < 60
    assert scores.lines == 3


@pytest.mark.parametrize(
    ("language", "tokenizer", "hypotheses", "references"),
    [
        ("fr", "13a", ["Le chat, assis.", "Non"], ["Le chat est assis.", "Non !"]),
        ("zh-TW", "zh", ["貓坐在墊子上。"], ["貓坐在地墊上。"]),
        ("ja", "char", ["猫が座った。"], ["猫が座っている。"]),
        ("th", "char", ["แมวนั่งบนเสื่อ"], ["แมวนั่งอยู่บนเสื่อ"]),
    ],
)
def test_scores_are_those_of_sacrebleu(
    language: str, tokenizer: str, hypotheses: list[str], references: list[str]
) -> None:
    scores = translation_scores(hypotheses, references, language)
    bleu = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenizer)
    chrf = sacrebleu.corpus_chrf(hypotheses, [references])
    assert (scores.bleu, scores.chrf) == (bleu.score, chrf.score)
    assert scores.bleu > 10


def test_signatures_tell_how_scores_were_computed() -> None:
    scores = translation_scores(["a"], ["a"], "th")
    version = sacrebleu.__version__
    assert scores == TranslationScores(
        bleu=scores.bleu,
        chrf=100.0,
        bleu_signature=f"nrefs:1|case:mixed|eff:no|tok:char|smooth:exp|version:{version}",
        chrf_signature=f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}",
        lines=1,
    )


def test_an_order_without_match_gets_the_points_of_the_smoothing_in_the_signature() -> None:
    hypotheses, references = ["one two three five four"], ["one two three four five"]
    scores = translation_scores(hypotheses, references, "en")
    # 5/5 words, 2/4 pairs, 1/3 triples, and half a match of the 2 groups of four.
    assert scores.bleu == pytest.approx(100 * (1 * 2 / 4 * 1 / 3 * 0.5 / 2) ** 0.25)
    assert "smooth:exp" in scores.bleu_signature
    unsmoothed = sacrebleu.corpus_bleu(hypotheses, [references], smooth_method="none")
    assert unsmoothed.score == 0.0


def test_a_text_without_one_right_word_scores_nothing() -> None:
    scores = translation_scores(["x y z w v", ""], ["a b c d e", "f g"], "en")
    assert (scores.bleu, scores.chrf) == (0.0, 0.0)


def test_a_perfect_text_scores_a_hundred() -> None:
    scores = translation_scores(REFERENCES, REFERENCES, "en")
    assert (scores.bleu, scores.chrf) == (pytest.approx(100.0), pytest.approx(100.0))


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("en", "13a"),
        ("ko", "13a"),
        ("jv", "13a"),
        ("zha", "13a"),
        ("zh", "zh"),
        ("ZH_Hant", "zh"),
        ("cmn", "zh"),
        ("yue-HK", "zh"),
        ("ja", "char"),
        ("th", "char"),
        ("lo-LA", "char"),
        ("khm", "char"),
        ("my", "char"),
    ],
)
def test_the_tokenizer_follows_the_script(language: str, tokenizer: str) -> None:
    assert tokenizer_for(language) == tokenizer


@pytest.mark.parametrize("language", ["", " ", "-"])
def test_scores_without_a_language_are_refused(language: str) -> None:
    with pytest.raises(MetricsError, match="must be a code such as"):
        tokenizer_for(language)


def test_unequal_counts_are_refused_with_both() -> None:
    with pytest.raises(MetricsError, match="100 hypotheses and 101 references"):
        translation_scores(["a"] * 100, ["a"] * 101, "fr")


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(MetricsError, match="no hypotheses to score"):
        translation_scores([], [], "fr")


def test_one_string_in_place_of_lines_is_refused() -> None:
    with pytest.raises(MetricsError, match="lists of lines, not one string"):
        translation_scores("abc", "abc", "fr")
