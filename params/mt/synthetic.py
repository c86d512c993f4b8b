"""Languages without files: does a model learn at all, and does it mind its tag?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingpipe.registry import register
from tasks.mt.model_params import TranslationKnobs

if TYPE_CHECKING:
    from tasks.mt.parallel_input import ParallelInput


@register
class Tags(TranslationKnobs):
    """Letters to copy, reverse or encipher, as the tag says: minutes on two cores."""

    num_layers = 2
    model_dim = 128
    ffn_dim = 256
    num_heads = 4
    dropout = 0.0
    label_smoothing = 0.0
    vocabulary_size = 64
    tokens_per_batch = 4096
    peak_learning_rate = 2e-3
    warmup_steps = 200
    max_steps = 1500
    train_lines: int = 100_000  # Lines to train on, each in all three tasks.
    num_letters: int = 26  # Size of the alphabet.

    def input_params(self) -> ParallelInput.Params:
        """Lines that are made instead of read."""
        from tasks.mt.synthetic import TagsInput

        return TagsInput.Params(
            vocabulary_size=self.vocabulary_size,
            tokens_per_batch=self.tokens_per_batch,
            length_multiple=self.length_multiple,
            train_lines=self.train_lines,
            num_letters=self.num_letters,
        )
