"""The knobs of translation models, and the trees that they fill.

Importing this module imports no TensorFlow, so that models can be listed at once; the layers are
imported when a tree is filled.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from lingpipe.hyperparams import ParamsTypeError
from lingpipe.input.folder_corpus import Directions
from lingpipe.task.model_params import ModelParams

if TYPE_CHECKING:
    from lingpipe.learner.schedules import LearningRateSchedule
    from lingpipe.task.experiment import Experiment
    from tasks.mt.parallel_input import ParallelInput


class Decay(enum.Enum):
    """How the learning rate falls after its peak."""

    inverse_square_root = "inverse_square_root"  # For runs that may be prolonged.
    cosine = "cosine"  # To zero at the last step: the most from a fixed number of steps.


class TranslationKnobs(ModelParams):
    """What every translation model can turn: an encoder-decoder Transformer and its training.

    A subclass says in `input_params` what it is trained on, and adds the knobs of that.

    The learning rate grows linearly to its peak, then falls: by default as in Vaswani et al. 2017,
    section 5.3, with a peak instead of a factor.
    """

    num_layers: int = 6  # Encoder layers, and as many decoder layers.
    model_dim: int = 512  # Width of the model.
    ffn_dim: int = 2048  # Width of the feed-forward layers.
    num_heads: int = 8  # Attention heads.
    dropout: float = 0.1  # Share dropped of embeddings and of every branch's outputs.
    label_smoothing: float = 0.1  # Share of the target distribution spread over all ids.
    vocabulary_size: int = 8000  # Ids that all languages share.
    tokens_per_batch: int = 8192  # Source and target tokens of a batch, padding counted.
    length_multiple: int = 8  # Padded lengths are multiples of this.
    peak_learning_rate: float = 1e-3  # Reached at the end of warm-up.
    warmup_steps: int = 4000  # Steps over which the learning rate grows.
    decay: Decay = Decay.inverse_square_root  # How it falls afterwards.
    max_steps: int = 100_000  # Steps of training.
    num_stages: int = 2  # Stages of the pipeline.
    num_micro_batches: int = 4  # Micro-batches in flight, in each replica.
    num_replicas: int = 1  # Copies of all stages, each for a share of every batch.
    jit_compile: bool = False  # XLA compiles the stages; batches then come in few shapes.

    def experiment(self) -> Experiment.Params:
        """The tree: Transformer, Adam with warm-up and decay, clipping by global norm."""
        from lingpipe.learner.learner import Learner
        from lingpipe.learner.optimizers import Adam
        from lingpipe.pipeline.builder import Pipeline
        from lingpipe.task.experiment import Experiment, TrainParams
        from tasks.mt.model import TransformerModel
        from tasks.mt.task import TranslationTask

        return Experiment.Params(
            task=TranslationTask.Params(
                model=TransformerModel.Params(
                    num_encoder_layers=self.num_layers,
                    num_decoder_layers=self.num_layers,
                    model_dim=self.model_dim,
                    ffn_dim=self.ffn_dim,
                    num_heads=self.num_heads,
                    dropout=self.dropout,
                    label_smoothing=self.label_smoothing,
                )
            ),
            # Without XLA the order of the data shall not depend on the pipeline.
            input=self.input_params().copy(
                static_shapes=self.jit_compile,
                rows_multiple=self.num_micro_batches * self.num_replicas if self.jit_compile else 1,
            ),
            learner=Learner.Params(
                optimizer=Adam.Params(beta_2=0.98, epsilon=1e-9),
                schedule=self.schedule_params(),
                clip_global_norm=1.0,
            ),
            pipeline=Pipeline.Params(
                num_stages=self.num_stages,
                num_micro_batches=self.num_micro_batches,
                num_replicas=self.num_replicas,
                jit_compile=self.jit_compile,
            ),
            train=TrainParams(max_steps=self.max_steps),
        )

    def schedule_params(self) -> LearningRateSchedule.Params:
        """The learning rate's part of the tree."""
        from lingpipe.learner.schedules import Cosine, InverseSquareRoot

        peak, warmup_steps = self.peak_learning_rate, self.warmup_steps
        if self.decay is Decay.cosine:
            return Cosine.Params(peak=peak, warmup_steps=warmup_steps)
        return InverseSquareRoot.Params(peak=peak, warmup_steps=warmup_steps)

    def input_params(self) -> ParallelInput.Params:
        """The input's part of the tree."""
        raise ParamsTypeError(f"{type(self).__qualname__} defines no input_params().")


class TranslationModel(TranslationKnobs):
    """A Transformer for many languages, trained on a corpus folder."""

    corpus: str = "tiny"  # A corpus folder, or "tiny" for the bundled one.
    directions: Directions = Directions.both  # both, from_english or to_english.
    temperature: float = 5.0  # T of p ~ D^(1/T), the sampling of pairs of languages.

    def input_params(self) -> ParallelInput.Params:
        """The corpus folder, all pairs of it in the directions asked for."""
        from tasks.mt.input import TranslationInput

        return TranslationInput.Params(
            corpus=self.corpus,
            directions=self.directions,
            vocabulary_size=self.vocabulary_size,
            temperature=self.temperature,
            tokens_per_batch=self.tokens_per_batch,
            length_multiple=self.length_multiple,
        )
