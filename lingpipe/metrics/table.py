"""Scores of many language pairs as one table: a row a pair, then the averages.

Multilingual models are reported by direction, since translating into English and out of it
behave differently as languages are added: averages come into the hub language, out of it, and
over all pairs. Each pair counts once, however many lines it has.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lingpipe.metrics.errors import MetricsError
from lingpipe.metrics.mean import perplexity
from lingpipe.metrics.translation import TranslationScores


@dataclass(frozen=True)
class PairScores:
    """The scores of one direction.

    Attributes:
      source: Language code of the source.
      target: Language code of the target.
      scores: BLEU, chrF and their signatures.
      perplexity: Of the references given the sources; None where it was not computed.
    """

    source: str
    target: str
    scores: TranslationScores
    perplexity: float | None = None

    @property
    def pair(self) -> str:
        """Both codes, as in `en-fr`."""
        return f"{self.source}-{self.target}"


@dataclass(frozen=True)
class AverageScores:
    """The mean over several pairs.

    Attributes:
      name: Which pairs, in words.
      pairs: How many.
      bleu: Arithmetic mean.
      chrf: Arithmetic mean.
      perplexity: Geometric mean, which is exp of the mean loss; None unless each pair has one.
    """

    name: str
    pairs: int
    bleu: float
    chrf: float
    perplexity: float | None


def averages(rows: Sequence[PairScores], *, hub: str = "en") -> list[AverageScores]:
    """Returns the averages into the hub language, out of it, and over all pairs.

    An average over no pair is left out, and so is one over the same pairs as all.

    Args:
      rows: The scores of each pair.
      hub: Code of the language that most pairs share.
    """
    into = [row for row in rows if row.target == hub]
    out_of = [row for row in rows if row.source == hub]
    groups = [(f"into {hub}", into), (f"out of {hub}", out_of)]
    kept = [(name, group) for name, group in groups if 0 < len(group) < len(rows)]
    return [_average(name, group) for name, group in [*kept, ("all", list(rows))] if group]


def table_text(rows: Sequence[PairScores], *, hub: str = "en") -> str:
    """Returns rows, averages and signatures as text for people.

    Args:
      rows: The scores of each pair, printed in this order.
      hub: As in `averages`.

    Raises:
      MetricsError: When there is no row.
    """
    if not rows:
        raise MetricsError("There are no pairs to print scores of; evaluate at least one.")
    cells = [("pair", "lines", "BLEU", "chrF", "perplexity")]
    for row in rows:
        scores = row.scores
        numbers = _numbers(scores.bleu, scores.chrf, row.perplexity)
        cells.append((row.pair, str(scores.lines), *numbers))
    for mean in averages(rows, hub=hub):
        name = f"{mean.name} ({mean.pairs})"
        cells.append((name, "", *_numbers(mean.bleu, mean.chrf, mean.perplexity)))
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])])
        for first, *others in cells
    ]
    rule = "-" * len(lines[0])
    table = [lines[0], rule, *lines[1 : 1 + len(rows)], rule, *lines[1 + len(rows) :]]
    return "\n".join([*table, "", *_signatures(rows)]) + "\n"


def _average(name: str, rows: Sequence[PairScores]) -> AverageScores:
    perplexities = [row.perplexity for row in rows if row.perplexity is not None]
    is_complete = len(perplexities) == len(rows)
    return AverageScores(
        name=name,
        pairs=len(rows),
        bleu=math.fsum(row.scores.bleu for row in rows) / len(rows),
        chrf=math.fsum(row.scores.chrf for row in rows) / len(rows),
        perplexity=_geometric_mean(perplexities) if is_complete else None,
    )


def _geometric_mean(numbers: Sequence[float]) -> float:
    return perplexity(math.fsum(math.log(number) for number in numbers) / len(numbers))


def _numbers(bleu: float, chrf: float, perplexity: float | None) -> tuple[str, str, str]:
    # A perplexity at the start of training has many digits: five significant ones say enough.
    return f"{bleu:.2f}", f"{chrf:.2f}", "-" if perplexity is None else f"{perplexity:.5g}"


def _signatures(rows: Sequence[PairScores]) -> list[str]:
    """Returns a line for each signature, with the target languages it stands for if several."""
    lines = []
    for metric in ("bleu", "chrf"):
        targets: dict[str, set[str]] = {}
        for row in rows:
            signature = getattr(row.scores, f"{metric}_signature")
            targets.setdefault(signature, set()).add(row.target)
        name = {"bleu": "BLEU", "chrf": "chrF2"}[metric]
        for signature, languages in targets.items():
            into = "" if len(targets) == 1 else f" into {', '.join(sorted(languages))}"
            lines.append(f"{name}{into}: {signature}")
    return lines
