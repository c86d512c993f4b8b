"""Multilingual translation: one model for all pairs of a corpus, English to others and back."""

from lingpipe.registry import register
from tasks.mt.model_params import TranslationModel


@register
class Corpus(TranslationModel):
    """Any corpus folder: `--set input.corpus=DIR`; sizes by knobs such as `--set num_layers=3`."""


@register
class Tiny(TranslationModel):
    """The bundled corpus of 12 languages, 2 stages: a few minutes on two cores."""

    num_layers = 2
    model_dim = 128
    ffn_dim = 512
    num_heads = 4
    vocabulary_size = 4000
    tokens_per_batch = 2048
    peak_learning_rate = 2e-3
    warmup_steps = 300
    max_steps = 1200
