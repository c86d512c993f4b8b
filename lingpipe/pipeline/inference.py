"""The kinds of forward passes without dropout: evaluation and prediction."""

from __future__ import annotations

import enum


class Inference(enum.Enum):
    """A forward pass without dropout, and how far it goes."""

    evaluation = "evaluation"  # All cells: the sums that the last one returns.
    prediction = "prediction"  # All but the last cell, the loss: what that is given.
