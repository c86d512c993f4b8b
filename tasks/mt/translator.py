"""Translation with a trained model on one device: text in, text and scores out."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.decode.batching import BatchLimits, LongLine, decode_stream
from lingpipe.decode.beam_search import beam_search
from lingpipe.decode.output import BeamOutput
from lingpipe.decode.step import tile_beams
from lingpipe.input.tokenizer import BEGIN_ID, END_ID, PAD_ID, UNKNOWN_ID
from lingpipe.task.decode_options import DecodeOptions
from lingpipe.task.task import Hypothesis, Run
from tasks.mt.batch import batch_signature
from tasks.mt.model import TransformerModel
from tasks.mt.parallel_input import ParallelInput
from tasks.mt.vocabulary import TranslationVocabulary

_IDS = tf.TensorSpec([None, None], tf.int32)
_logger = logging.getLogger(__name__)


class Translator:
    """A model with the weights of a checkpoint, and its vocabulary.

    Attributes:
      vocabulary: tokenizer, tags and pairs.
    """

    def __init__(self, model: TransformerModel.Params, data: ParallelInput, run: Run) -> None:
        """Builds the model on the default device and restores its weights.

        Args:
          model: params of the model, its vocabulary's size set.
          data: the input of the run.
          run: the run at a checkpoint.

        Raises:
          CheckpointError: the checkpoint does not fit the model.
        """
        scope = Scope()
        self._model = model.build(scope)
        run.restore(scope.variables)
        self._context = Context(compute_dtype=run.compute_dtype)
        self.vocabulary = data.vocabulary
        self._longest_trained = data.params.max_length
        size = model.vocabulary_size
        tokenizer = self.vocabulary.tokenizer
        tags = [tokenizer.tag_id(language) for language in tokenizer.languages]
        # Ids that no translation holds; the model may have more rows than the vocabulary has ids.
        self._forbidden = (PAD_ID, UNKNOWN_ID, BEGIN_ID, *tags, *range(tokenizer.size, size))
        self._sums = tf.function(
            self._sums_of_batch, input_signature=[batch_signature()], autograph=False
        )

    def translate(self, lines: Iterable[str], options: DecodeOptions) -> Iterator[list[Hypothesis]]:
        """Yields the n best translations of each line, in order.

        A blank line is answered by blank lines. A line that is longer than any in training is
        warned of by its number and translated whole.

        Raises:
          UserError: an unknown language.
        """
        check_languages(self.vocabulary, options)
        search = self._search(options.beam_size, options.nbest, options.length_penalty)
        limits = BatchLimits(
            max_rows=options.max_rows,
            chunk_lines=BatchLimits.chunk_lines if options.read_ahead else 1,
        )

        def decode_batch(sources: list[Sequence[int]]) -> list[list[Hypothesis]]:
            return self._hypotheses(search(*_padded(sources)))

        return decode_stream(
            lines,
            functools.partial(self.vocabulary.encode_source, to=options.target_language),
            decode_batch,
            blank=[Hypothesis("", 0.0)] * options.nbest,
            limits=limits,
            warn=_warn,
            warn_beyond_tokens=self._longest_trained,
        )

    def sums(self, arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
        """The sums of the model's last cell over a batch, such as the negative log-likelihood."""
        batch = {name: tf.constant(array) for name, array in arrays.items()}
        return {name: float(value) for name, value in self._sums(batch).items()}

    def _sums_of_batch(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        context = Context(compute_dtype=self._context.compute_dtype, batch=batch)
        return self._model(None, context)

    @functools.lru_cache(maxsize=8)  # noqa: B019 - A translator lives as long as its process.
    def _search(self, beam_size: int, nbest: int, length_penalty: float) -> Any:
        """The traced search with these options."""

        def step(ids: tf.Tensor, time: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
            return self._model.step(ids, time, state, context=self._context)

        @tf.function(input_signature=[_IDS, tf.TensorSpec([None], tf.int32)], autograph=False)
        def search(source_ids: tf.Tensor, max_lengths: tf.Tensor) -> BeamOutput:
            state = self._model.encode(source_ids, context=self._context)
            return beam_search(
                step,
                tile_beams(state, beam_size),
                batch_size=tf.shape(source_ids)[0],
                begin_id=BEGIN_ID,
                end_id=END_ID,
                max_lengths=max_lengths,
                beam_size=beam_size,
                length_penalty_alpha=length_penalty,
                nbest=nbest,
                forbidden_ids=self._forbidden,
            )

        return search

    def _hypotheses(self, output: BeamOutput) -> list[list[Hypothesis]]:
        ids, scores = output.ids.numpy(), output.scores.numpy()
        lengths = output.lengths.numpy()
        rows, nbest = lengths.shape
        flat = [
            [int(i) for i in ids[row, n, : lengths[row, n]] if i != END_ID]
            for row in range(rows)
            for n in range(nbest)
        ]
        texts = self.vocabulary.decode(flat)
        return [
            [Hypothesis(texts[row * nbest + n], float(scores[row, n])) for n in range(nbest)]
            for row in range(rows)
        ]


def check_languages(vocabulary: TranslationVocabulary, options: DecodeOptions) -> None:
    """Refuses languages that the model was not trained for.

    Raises:
      UserError: with the nearest name.
    """
    if options.source_language is not None:
        vocabulary.check_source(options.source_language)
    vocabulary.tokenizer.tag_id(options.target_language)


def max_target_length(source_length: int) -> int:
    """Most target tokens, the end counted, that a source of so many tokens may have."""
    return min(3 * source_length + 10, source_length + 200)


def _padded(sources: list[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Source ids [B, S], 0 after each end, and the greatest target length of each row."""
    ids = np.zeros([len(sources), max(map(len, sources))], np.int32)
    for row, source in enumerate(sources):
        ids[row, : len(source)] = source
    return ids, np.array([max_target_length(len(source)) for source in sources], np.int32)


def _warn(line: LongLine) -> None:
    _logger.warning("%s", line)
