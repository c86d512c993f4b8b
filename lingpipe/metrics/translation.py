"""BLEU and chrF of translations, computed by sacrebleu and always with its signature.

A BLEU score says nothing without the way it was computed; the signature holds that way (case,
tokenizer, smoothing, version), and two scores may be compared only where the signatures are the
same. Ours are sacrebleu's defaults: case kept, exponential smoothing, one reference. This
smoothing gives an n-gram order without any match half of one match, the next such order a
quarter; a text without one matching word scores 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from lingpipe.metrics.errors import MetricsError

_CHINESE = frozenset({"zh", "zho", "chi", "cmn", "yue", "wuu", "nan", "hak", "lzh"})
# Written without spaces between words: Japanese, Thai, Lao, Khmer, Burmese, Tibetan, Dzongkha.
_UNSPACED = frozenset(
    {"ja", "jpn", "th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur"}
    | {"bo", "bod", "tib", "dz", "dzo"}
)


@dataclass(frozen=True)
class TranslationScores:
    """How close a text's translations come to its references.

    Attributes:
      bleu: Corpus BLEU from 0 to 100 (Papineni et al. 2002).
      chrf: Corpus chrF2 from 0 to 100 (Popović 2015), which needs no tokenizer.
      bleu_signature: How `bleu` was computed, in sacrebleu's words.
      chrf_signature: How `chrf` was computed.
      lines: Number of lines scored.
    """

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    lines: int


def tokenizer_for(language: str) -> str:
    """Returns the name of sacrebleu's tokenizer for BLEU in a language.

    - Chinese: `zh`, which parts Chinese characters and treats the rest as `13a`.
    - Japanese: `char`; sacrebleu's `ja-mecab` needs a dictionary that is not installed with it.
    - Thai, Lao, Khmer, Burmese, Tibetan, Dzongkha: `char`. They put no spaces between words, so
      that `13a` would count whole clauses as words and find next to no match.
    - All others: `13a`, the tokenizer of the WMT campaigns. Korean too: it does space its words,
      although `ko-mecab` (a dictionary again) would judge its endings more kindly.

    Args:
      language: Code such as `fr`, `zh`, `zh-TW`, `zh_Hant` or `cmn`; in either case.

    Raises:
      MetricsError: When the code is empty.
    """
    first = language.strip().lower().replace("_", "-").split("-")[0]
    if not first:
        raise MetricsError(
            f"language ({language!r}) must be a code such as 'fr' or 'zh': BLEU's tokenizer "
            "depends on it."
        )
    if first in _CHINESE:
        return "zh"
    return "char" if first in _UNSPACED else "13a"


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> TranslationScores:
    """Returns BLEU and chrF of plain (not tokenized) text.

    Args:
      hypotheses: Translations, one a line; empty lines count.
      references: The right translations of the same lines.
      language: Code of the language of both, see `tokenizer_for`.

    Raises:
      MetricsError: When there are no lines or the counts differ.
    """
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise MetricsError("hypotheses and references must be lists of lines, not one string.")
    if len(hypotheses) != len(references):
        raise MetricsError(
            f"There are {len(hypotheses)} hypotheses and {len(references)} references; line n of "
            "one must translate line n of the other."
        )
    if not hypotheses:
        raise MetricsError("There are no hypotheses to score; give at least one line.")
    hypotheses, references = list(hypotheses), list(references)
    bleu = BLEU(tokenize=tokenizer_for(language))
    chrf = CHRF()
    bleu_score = bleu.corpus_score(hypotheses, [references]).score
    chrf_score = chrf.corpus_score(hypotheses, [references]).score
    return TranslationScores(
        bleu=float(bleu_score),
        chrf=float(chrf_score),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
        lines=len(hypotheses),
    )
