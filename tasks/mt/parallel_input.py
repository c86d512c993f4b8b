"""The input of every translation task, whatever its corpus: vocabulary, training order, batches.

A subclass says which corpus (`open_corpus`), and this does the rest. The vocabulary is trained the
first time and kept in the run directory; after that a corpus is only opened where its text is
needed, so that a finished run can decode without it.
"""

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from lingpipe.input.batch import Batch, Cursor
from lingpipe.input.batching import (
    BatchingError,
    Budget,
    evaluation_batches,
    plan_batches,
    short_enough,
    training_batches,
)
from lingpipe.input.corpus import Corpus, CorpusError, Pair, ParallelText, check_split
from lingpipe.input.input import Input
from lingpipe.input.mixing import MixedOrder
from lingpipe.input.permutation import Int64s
from lingpipe.input.tokenizer import TokenizerTrainer
from lingpipe.layers.checks import MAX_VOCABULARY, check_size
from tasks.mt.examples import Examples, Int32s, Sentences
from tasks.mt.pair_table import pair_table
from tasks.mt.vocabulary import TranslationVocabulary, VocabularyError

# Padding falls with the window: on the tiny corpus it is 36 % at 4,096 examples and 33 % at 16,384,
# where the first batch is ready in a quarter of a second.
_MIN_WINDOW = 16_384
# A window is held in memory; this one takes a minute and some gigabytes.
_MAX_WINDOW = 2**22
_MAX_TOKENS = 4 * _MAX_WINDOW  # Of a batch, whose window has a quarter as many examples.
# Runs that differ in their seed alone have one vocabulary, so that they can be compared.
_VOCABULARY_SEED = 0
_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """The lines of one pair and split, for scores that compare text.

    Attributes:
        pair: the direction.
        split: train, dev or test.
        sources: source lines.
        references: their translations, one each.
    """

    pair: Pair
    split: str
    sources: Sequence[str]
    references: Sequence[str]


class ParallelInput(Input):
    """Batches of sentence pairs; see examples.py for their arrays."""

    class Params(Input.Params):
        """Everything about the input but its corpus."""

        vocabulary_size: int = 8000  # Most ids of the vocabulary that all languages share.
        tokenizer: TokenizerTrainer.Params = TokenizerTrainer.Params()  # How it is trained.
        temperature: float = 1.0  # T of p ~ D^(1/T): 1 follows the text, more helps small pairs.
        tokens_per_batch: int = 8192  # Source and target tokens of a batch, padding counted.
        max_length: int = 256  # Training leaves out examples with more tokens on a side.
        length_multiple: int = 8  # Padded lengths are multiples of this.
        static_shapes: bool = (
            False  # Few shapes of batches, for pipeline.jit_compile; more padding.
        )
        rows_multiple: int = 1  # Rows of such batches divide by it: the number of micro-batches.
        window_examples: int | None = None  # Sorted together; None: tokens_per_batch / 4, >= 16384.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            """Values that cannot work, alone or together."""
            yield from super().inconsistencies()
            if not self.temperature > 0:
                yield "temperature", f"temperature ({self.temperature}) must be greater than 0."
            yield from check_size(self, "vocabulary_size", most=MAX_VOCABULARY)
            yield from check_size(self, "window_examples", most=_MAX_WINDOW)
            sizes = ("tokens_per_batch", "max_length", "length_multiple", "rows_multiple")
            if self.rows_multiple > 1 and not self.static_shapes:
                yield (
                    "rows_multiple",
                    f"rows_multiple ({self.rows_multiple}) has no effect without static_shapes; "
                    "set static_shapes to true, or leave it out.",
                )
            impossible = list(check_size(self, *sizes, most=_MAX_TOKENS))
            yield from impossible or self._unfit_budget()

        def _unfit_budget(self) -> Iterator[tuple[str, str]]:
            try:
                self.budget()
            except BatchingError as error:
                yield "tokens_per_batch", str(error)

        def budget(self) -> Budget:
            """What a batch may hold."""
            return Budget(
                self.tokens_per_batch,
                self.max_length,
                self.length_multiple,
                self.static_shapes,
                self.rows_multiple,
            )

        def has_few_shapes(self) -> bool:
            return self.static_shapes

    params: Params

    def __init__(self, params: Params, *, vocab_dir: Path, seed: int) -> None:
        """Loads the vocabulary, or trains it and writes it to `vocab_dir`.

        Raises:
            UserError: the corpus or the vocabulary cannot be used, or none of the examples that
                training begins with is short enough. Nothing is written then.
        """
        super().__init__(params, vocab_dir=vocab_dir, seed=seed)
        if TranslationVocabulary.exists(vocab_dir):
            self.vocabulary = TranslationVocabulary.load(vocab_dir)
        else:
            self.corpus.check()
            self.vocabulary = self._train_vocabulary()
            short_enough(self._training_window(0).lengths, params.budget())
            self.vocabulary.save(vocab_dir)
        if self.vocabulary.size > params.vocabulary_size:
            raise VocabularyError(
                f"The vocabulary in {vocab_dir} has {self.vocabulary.size} ids, more than "
                f"vocabulary_size ({params.vocabulary_size}); set vocabulary_size back, or start "
                "a new run."
            )

    @classmethod
    def is_prepared(cls, vocab_dir: Path) -> bool:
        """Whether the folder holds a vocabulary."""
        return TranslationVocabulary.exists(vocab_dir)

    def open_corpus(self) -> Corpus:
        """The corpus of the params."""
        raise TypeError(f"{type(self).__qualname__} defines no open_corpus().")

    @functools.cached_property
    def corpus(self) -> Corpus:
        """The corpus, opened when first used."""
        return self.open_corpus()

    # -- Training ------------------------------------------------------------------------------

    def train_batches(self, cursor: Cursor) -> Iterator[Batch]:
        """The endless training batches from `cursor` on.

        Raises:
            UserError: the corpus cannot be read, or is not the one that the vocabulary is of.
        """
        self._refuse_other_pairs()
        return training_batches(
            self._training_window,
            cursor,
            budget=self.params.budget(),
            seed=self.seed,
            report_dropped=_DropReport(self.params.max_length, self.name_example),
        )

    def name_example(self, position: int) -> str:
        """`en-de train line 17`."""
        drawn = self._order.draws(np.array([position]))
        return f"{self.corpus.pairs()[drawn.pairs[0]]} train line {drawn.lines[0] + 1}"

    @property
    def window_examples(self) -> int:
        """How many examples are sorted together."""
        return self.params.window_examples or max(_MIN_WINDOW, self.params.tokens_per_batch // 4)

    @functools.cached_property
    def _texts(self) -> tuple[ParallelText, ...]:
        return tuple(self.corpus.text(pair, "train") for pair in self.corpus.pairs())

    @functools.cached_property
    def _order(self) -> MixedOrder:
        return MixedOrder([len(text) for text in self._texts], self.params.temperature, self.seed)

    @functools.cached_property
    def _tags(self) -> Int32s:
        tag_id = self.vocabulary.tokenizer.tag_id
        return np.array([tag_id(p.target_language) for p in self.corpus.pairs()], np.int32)

    @functools.cached_property
    def _training_window(self) -> Callable[[int], Examples]:
        """The examples of a window; the last one is kept, as a start asks for the first thrice."""
        return functools.lru_cache(maxsize=1)(self._make_window)

    def _make_window(self, window: int) -> Examples:
        size = self.window_examples
        return self._examples(np.arange(window * size, (window + 1) * size, dtype=np.int64))

    def _examples(self, positions: Int64s) -> Examples:
        drawn = self._order.draws(positions)
        # A window may hold a small corpus many times over; each line of it is tokenised once.
        numbers = drawn.pairs * (1 + drawn.lines.max()) + drawn.lines
        _, first, rows = np.unique(numbers, return_index=True, return_inverse=True)
        sources, targets = _fetch(self._texts, drawn.pairs[first], drawn.lines[first])
        tokenizer = self.vocabulary.tokenizer
        return Examples(
            sources=Sentences.tokenize(sources, tokenizer).take(rows),
            targets=Sentences.tokenize(targets, tokenizer).take(rows),
            tags=self._tags[drawn.pairs],
            positions=positions,
        )

    def _refuse_other_pairs(self) -> None:
        pairs = self.corpus.pairs()
        if tuple(pairs) != self.vocabulary.pairs:
            new = sorted(set(pairs) - set(self.vocabulary.pairs))
            gone = sorted(set(self.vocabulary.pairs) - set(pairs))
            raise VocabularyError(
                f"The corpus does not have the pairs that the vocabulary in {self.vocab_dir} was "
                f"trained for: it adds {', '.join(map(str, new)) or 'none'} and lacks "
                f"{', '.join(map(str, gone)) or 'none'}. Start a new run, in a new logdir."
            )

    # -- Evaluation ----------------------------------------------------------------------------

    def evaluation_pairs(self, split: str) -> list[Pair]:
        """The pairs that have this split.

        Raises:
            CorpusError: there is no such split, or no pair has it.
        """
        check_split(split)
        pairs = [pair for pair in self.corpus.pairs() if self.corpus.has(pair, split)]
        if not pairs:
            raise CorpusError(f"No pair of the corpus has a {split} split.")
        return pairs

    def evaluation_set(self, pair: Pair, split: str) -> EvaluationSet:
        """The lines of a pair and split.

        Raises:
            CorpusError: there are none.
        """
        text = self.corpus.text(pair, split)
        every = range(len(text))
        return EvaluationSet(pair, split, text.sources.take(every), text.targets.take(every))

    def evaluation_batches(self, split: str, pair: Pair | None = None) -> Iterator[Batch]:
        """All examples of a split, each once, in a fixed order, however long.

        Args:
            split: train, dev or test.
            pair: only this one; `Batch.positions` are then its line numbers, from 0.

        Raises:
            CorpusError: there are none.
        """
        pairs = self.evaluation_pairs(split) if pair is None else [pair]
        texts = [self.corpus.text(each, split) for each in pairs]
        return self._evaluate(pairs, texts)

    def _evaluate(self, pairs: Sequence[Pair], texts: Sequence[ParallelText]) -> Iterator[Batch]:
        for pair, text in zip(pairs, texts, strict=True):

            def load(window: int, pair: Pair = pair, text: ParallelText = text) -> Examples | None:
                rows = range(len(text))[window * _MIN_WINDOW : (window + 1) * _MIN_WINDOW]
                if not rows:
                    return None
                sources, targets = text.sources.take(rows), text.targets.take(rows)
                examples = self.vocabulary.encode_pairs(sources, targets, pair.target_language)
                return dataclasses.replace(examples, positions=examples.positions + rows.start)

            yield from evaluation_batches(load, self.params.budget())

    # -- Words and vocabulary ------------------------------------------------------------------

    def describe(self, steps: int) -> str:
        """A table of the pairs: lines, probability, epochs that `steps` steps are expected to see.

        How many fill a batch is known from the first window.

        Raises:
            UserError: the corpus cannot be read, is not the one that the vocabulary is of, or has
                no example in its first window that is short enough.
        """
        self._refuse_other_pairs()
        budget = self.params.budget()
        lengths = self._training_window(0).lengths
        lengths = lengths[short_enough(lengths, budget)]
        plan = plan_batches(lengths, budget)
        padded = sum(budget.padded_tokens(lengths[rows]) for rows in plan)
        examples_per_batch = len(lengths) / len(plan)
        table = pair_table(
            [str(pair) for pair in self.corpus.pairs()],
            [len(text) for text in self._texts],
            self._order.probabilities,
            draws=steps * examples_per_batch,
        )
        return (
            f"{table}\n"
            f"A vocabulary of {self.vocabulary.size} ids. A batch of {budget.tokens_per_batch} "
            f"tokens holds about {examples_per_batch:.0f} examples, and "
            f"{1 - lengths.sum() / padded:.0%} of it is padding. Epochs: expected in {steps} steps."
        )

    def _train_vocabulary(self) -> TranslationVocabulary:
        pairs = self.corpus.pairs()
        trained = self.params.tokenizer.build().train(
            self._vocabulary_lines(),
            languages=sorted({pair.target_language for pair in pairs}),
            vocabulary_size=self.params.vocabulary_size,
        )
        return TranslationVocabulary(trained, pairs)

    def _vocabulary_lines(self) -> Iterator[str]:
        """Text sampled like training's, but each pair of languages in one direction only."""
        seen: set[frozenset[str]] = set()
        texts = []
        for pair, text in zip(self.corpus.pairs(), self._texts, strict=True):
            languages = frozenset((pair.source_language, pair.target_language))
            if languages not in seen:
                texts.append(text)
            seen.add(languages)
        counts = [len(text) for text in texts]
        order = MixedOrder(counts, self.params.temperature, _VOCABULARY_SEED)
        total = min(sum(counts), max(self.params.tokenizer.max_lines // 2, 1))
        for start in range(0, total, _MIN_WINDOW):
            drawn = order.draws(np.arange(start, min(start + _MIN_WINDOW, total)))
            for lines in zip(*_fetch(texts, drawn.pairs, drawn.lines), strict=True):
                yield from lines


def _fetch(
    texts: Sequence[ParallelText], pairs: Int64s, lines: Int64s
) -> tuple[list[str], list[str]]:
    """The source and target lines of some examples, each file opened once."""
    sources, targets = [""] * len(pairs), [""] * len(pairs)
    for pair in np.unique(pairs):
        # In the order of the file, so that neighbours are read together.
        rows = np.flatnonzero(pairs == pair)
        rows = rows[np.argsort(lines[rows], kind="stable")]
        wanted, places, text = lines[rows].tolist(), rows.tolist(), texts[pair]
        for side, found in ((sources, text.sources), (targets, text.targets)):
            for place, line in zip(places, found.take(wanted), strict=True):
                side[place] = line
    return sources, targets


class _DropReport:
    """Warns of examples that training leaves out.

    It does so the first time and whenever their number has doubled: a log stays readable, and
    nothing is silent.
    """

    def __init__(self, max_length: int, name_example: Callable[[int], str]) -> None:
        self._max_length = max_length
        self._name_example = name_example
        self._total = 0
        self._next_warning = 1

    def __call__(self, positions: Int64s, lengths: Int64s) -> None:
        self._total += len(positions)
        if self._total < self._next_warning:
            return
        self._next_warning = 2 * self._total
        worst = int(lengths.max(axis=1).argmax())
        _logger.warning(
            "Training leaves out examples with more than max_length (%d) tokens on a side: so far "
            "%d, such as %s with %d source and %d target tokens. Raise max_length, or split them.",
            self._max_length,
            self._total,
            self._name_example(int(positions[worst])),
            *lengths[worst].tolist(),
        )
