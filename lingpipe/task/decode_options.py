"""What a user may ask of decoding, with the defaults that the command line shows.

Importing this module imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses

from lingpipe.errors import UserError

# Beyond it the penalty of a long sentence leaves the range of float32: scores are 0 or infinite.
MAX_LENGTH_PENALTY = 10.0

MAX_BEAM_SIZE = 1_000  # A step of the search costs as much as that many sentences.
MAX_ROWS = 100_000


class DecodeOptionsError(UserError, ValueError):
    """Options of decoding that cannot be honoured."""


@dataclasses.dataclass(frozen=True)
class DecodeOptions:
    """What a user may ask of decoding.

    Attributes:
      target_language: language to translate into.
      source_language: language of the input; None where the model does not need to know.
      beam_size: hypotheses kept alive; 1 is greedy search.
      nbest: hypotheses returned for each line.
      length_penalty: alpha of the length penalty of Wu et al. 2016, equation 14; -10 to 10.
      max_rows: lines decoded together.
      read_ahead: whether many lines may be read before the first is answered.

    Raises:
      DecodeOptionsError: a number is out of its range.
    """

    target_language: str
    source_language: str | None = None
    beam_size: int = 4
    nbest: int = 1
    length_penalty: float = 0.6
    max_rows: int = 64
    read_ahead: bool = True

    def __post_init__(self) -> None:
        """Checks the numbers, also against each other."""
        for name, most in (
            ("beam_size", MAX_BEAM_SIZE),
            ("nbest", MAX_BEAM_SIZE),
            ("max_rows", MAX_ROWS),
        ):
            if not 1 <= getattr(self, name) <= most:
                raise DecodeOptionsError(
                    f"{name} ({getattr(self, name)}) must be at least 1 and at most {most:,}."
                )
        if self.nbest > self.beam_size:
            raise DecodeOptionsError(
                f"nbest ({self.nbest}) must be at most beam_size ({self.beam_size}); widen the "
                "beam, or ask for fewer."
            )
        if not -MAX_LENGTH_PENALTY <= self.length_penalty <= MAX_LENGTH_PENALTY:
            raise DecodeOptionsError(
                f"length_penalty ({self.length_penalty}) must be in [-{MAX_LENGTH_PENALTY:.0f}, "
                f"{MAX_LENGTH_PENALTY:.0f}]; usual values are 0 to 1."
            )
