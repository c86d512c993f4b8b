"""The translation task: cells, metrics, evaluation per pair, decoding."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import tensorflow as tf

from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec
from lingpipe.hyperparams import ParamsError
from lingpipe.layers.checks import check_size
from lingpipe.metrics.mean import mean, perplexity
from lingpipe.metrics.table import PairScores, averages, table_text
from lingpipe.metrics.translation import translation_scores
from lingpipe.task.decode_options import DecodeOptions
from lingpipe.task.task import Evaluation, Hypothesis, Run, Task
from tasks.mt.batch import batch_signature, batch_specs
from tasks.mt.model import TransformerModel
from tasks.mt.parallel_input import ParallelInput
from tasks.mt.translator import Translator, check_languages


class TranslationTask(Task):
    """Translation by an encoder-decoder Transformer, in any pairs of languages."""

    class Params(Task.Params):
        """The model; its vocabulary size is the input's."""

        model: TransformerModel.Params = TransformerModel.Params()  # Layers, widths, dropout.
        typical_length: int = 16  # Tokens a side, by which the cost of stages is balanced.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_size(self, "typical_length")
            if self.model.required_fields() == ["vocabulary_size"]:
                # The input decides that one, later; a mistake in the others is found at once.
                for field, message in self.model.copy(vocabulary_size=1).inconsistencies():
                    yield f"model.{field}", message

    params: Params

    def __init__(self, params: Params, *, input_params: ParallelInput.Params) -> None:
        """Hands the vocabulary's size down to the model.

        Raises:
          ParamsError: the model names another one.
        """
        super().__init__(params, input_params=input_params)
        size = input_params.vocabulary_size
        is_named = "vocabulary_size" not in params.model.required_fields()
        if is_named and params.model.vocabulary_size != size:
            raise ParamsError(
                f"task.model.vocabulary_size ({params.model.vocabulary_size}) must be that of the "
                f"input ({size}), which hands it down; set input.vocabulary_size instead."
            )
        self._tokens_per_batch = input_params.tokens_per_batch
        self.model = params.model.copy(vocabulary_size=size)

    def cells(self) -> dict[str, Layer.Params]:
        """Embeddings, encoder, decoder and softmax."""
        return self.model.cells()

    def micro_batch(self, num_micro_batches: int) -> dict[str, Spec]:
        """A full batch of sentences of the typical length, divided."""
        length = self.params.typical_length
        rows = max(1, self._tokens_per_batch // (2 * length) // num_micro_batches)
        return batch_specs(rows, length)

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Number and length of sentences stay open, so that nothing retraces."""
        return batch_signature()

    def metrics(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Loss (label-smoothed) and perplexity (not), and the share of right next tokens."""
        weight = sums["weight"]
        return {
            "loss": mean(sums["loss"], weight),
            "perplexity": perplexity(mean(sums["negative_log_likelihood"], weight)),
            "accuracy": mean(sums["correct"], weight),
        }

    def evaluate(self, run: Run, split: str) -> Evaluation:
        """BLEU, chrF and perplexity of every pair that has the split, and their averages."""
        data = cast(ParallelInput, run.data)
        pairs = data.evaluation_pairs(split)
        translator = Translator(self.model, data, run)
        rows = []
        for pair in pairs:
            lines = data.evaluation_set(pair, split)
            options = DecodeOptions(target_language=pair.target_language)
            hypotheses = [best[0].text for best in translator.translate(lines.sources, options)]
            rows.append(
                PairScores(
                    source=pair.source_language,
                    target=pair.target_language,
                    scores=translation_scores(hypotheses, lines.references, pair.target_language),
                    perplexity=self._perplexity(translator, data.evaluation_batches(split, pair)),
                )
            )
        return Evaluation(table_text(rows), _record(rows))

    def _perplexity(self, translator: Translator, batches: Iterable[Any]) -> float:
        loss = weight = 0.0
        for batch in batches:
            sums = translator.sums(batch.arrays)
            loss += sums["negative_log_likelihood"]
            weight += sums["weight"]
        return perplexity(mean(loss, weight))

    def decode(
        self, run: Run, lines: Iterable[str], options: DecodeOptions
    ) -> Iterator[Sequence[Hypothesis]]:
        """Translates lines as they come."""
        data = cast(ParallelInput, run.data)
        check_languages(data.vocabulary, options)  # Before the model is built.
        return Translator(self.model, data, run).translate(lines, options)


def _record(rows: Sequence[PairScores]) -> dict[str, Any]:
    """The scores as JSON-able data."""
    return {
        "pairs": {
            row.pair: {**dataclasses.asdict(row.scores), "perplexity": row.perplexity}
            for row in rows
        },
        "averages": [dataclasses.asdict(average) for average in averages(rows)],
    }
