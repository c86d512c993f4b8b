"""A task: the list of cells to train and what its sums, sentences and scores mean.

The trainer knows nothing of translation or images. It asks the task for cells, for the shapes of a
typical micro-batch, and for readable metrics; evaluation and decoding belong to the task entirely.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec
from lingpipe.hyperparams import Parameterized
from lingpipe.input.input import Input
from lingpipe.metrics.mean import mean
from lingpipe.task.decode_options import DecodeOptions


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One decoded line and its score (higher is better)."""

    text: str
    score: float


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores of a checkpoint on a split.

    Attributes:
      table: the scores for people, as text.
      record: the scores for programs, as JSON-able data.
    """

    table: str
    record: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run directory opened for reading, at one checkpoint.

    Attributes:
      data: the run's input, its vocabulary loaded.
      restore: sets variables, given by the paths of their weights, to the checkpoint's values.
      step: step of the checkpoint.
      compute_dtype: dtype of activations.
    """

    data: Input
    restore: Callable[[Mapping[str, tf.Variable]], None]
    step: int
    compute_dtype: tf.DType


class Task(Parameterized):
    """Base of all tasks."""

    class Params(Parameterized.Params):
        """Declares the model of the task."""

    def __init__(self, params: Params, *, input_params: Input.Params) -> None:
        """Keeps params; a task hands dimensions of the input (vocabulary) down to its model."""
        self.params = params
        self.input_params = input_params

    def cells(self) -> dict[str, Layer.Params]:
        """Name -> params of each cell, in order; the last one returns the loss."""
        raise TypeError(f"{type(self).__qualname__} defines no cells().")

    def micro_batch(self, num_micro_batches: int) -> dict[str, Spec]:
        """Shapes of a typical micro-batch, by which stages are balanced."""
        raise TypeError(f"{type(self).__qualname__} defines no micro_batch(num_micro_batches).")

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Specs of the batch entries; None for every dimension in which batches differ."""
        raise TypeError(f"{type(self).__qualname__} defines no signature().")

    def metrics(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Readable metrics from the last cell's sums."""
        return {"loss": mean(sums["loss"], sums["weight"])}

    def evaluate(self, run: Run, split: str) -> Evaluation:
        """Scores restored weights on a split as users see it (sentences, not teacher forcing)."""
        raise TypeError(f"{type(self).__qualname__} defines no evaluate(run, split).")

    def decode(
        self, run: Run, lines: Iterable[str], options: DecodeOptions
    ) -> Iterator[Sequence[Hypothesis]]:
        """Decodes lines as they come, in order: the n best of each."""
        raise TypeError(f"{type(self).__qualname__} defines no decode(run, lines, options).")
