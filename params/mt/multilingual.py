"""Multilingual translation: one model for all pairs of a corpus, English to others and back."""

from lingpipe.input.folder_corpus import Directions
from lingpipe.registry import register
from tasks.mt.model_params import Decay, TranslationModel


@register
class Corpus(TranslationModel):
    """Any corpus folder: `--set input.corpus=DIR`; sizes by knobs such as `--set num_layers=3`."""


@register
class Tiny(TranslationModel):
    """English into the 12 languages of the bundled corpus, 2 stages: minutes on two cores.

    Small batches and no dropout: in the few epochs that a few minutes allow, a model this small is
    still far from knowing its corpus by heart.
    """

    num_layers = 2
    model_dim = 128
    ffn_dim = 512
    num_heads = 4
    dropout = 0.0
    vocabulary_size = 2400
    directions = Directions.from_english
    tokens_per_batch = 1024
    length_multiple = 2
    peak_learning_rate = 2e-3
    warmup_steps = 200
    decay = Decay.cosine
    max_steps = 2600
