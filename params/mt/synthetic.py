"""Languages without files: does a model learn at all, and does it mind its tag?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingpipe.registry import register
from tasks.mt.model_params import TranslationModel

if TYPE_CHECKING:
    from tasks.mt.parallel_input import ParallelInput


@register
class Tags(TranslationModel):
    """Letters to copy, reverse or encipher, as the tag says: minutes on two cores."""

    num_layers = 2
    model_dim = 128
    ffn_dim = 256
    num_heads = 4
    dropout = 0.0
    label_smoothing = 0.0
    vocabulary_size = 64
    temperature = 1.0
    tokens_per_batch = 4096
    peak_learning_rate = 2e-3
    warmup_steps = 200
    max_steps = 1500

    def input_params(self) -> ParallelInput.Params:
        """Lines that are made instead of read."""
        from lingpipe.input.tokenizer import TokenizerTrainer
        from tasks.mt.synthetic import TagsInput

        return TagsInput.Params(
            vocabulary_size=self.vocabulary_size,
            # The text is letters and nothing else: pieces for single bytes would never be used.
            tokenizer=TokenizerTrainer.Params(byte_fallback=False),
            temperature=self.temperature,
            tokens_per_batch=self.tokens_per_batch,
        )
