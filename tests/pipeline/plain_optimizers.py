"""Optimisers in plain NumPy, which say where weights and slots must be after each step.

They are written from the papers' formulas, for the random pipelines: slots show the gradients that
reached a weight, weights show that every stage and every copy was updated.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lingpipe.learner.optimizers import Adam, Momentum, Optimizer
from tests.pipeline.small_models import Recorder

RATE = 0.01
Arrays = Mapping[str, np.ndarray]


class PlainOptimizer:
    """Keeps the weights: the slot shows the gradient of the last step.

    Attributes:
      params: of the same optimiser in the library.
      slots: `<weight path>/<slot>` -> array, after the last step.
    """

    params: Optimizer.Params = Recorder.Params()

    def __init__(self) -> None:
        """Starts without slots; all of them begin at 0."""
        self.slots: dict[str, np.ndarray] = {}

    def move(self, weights: Arrays, gradients: Arrays, step: int) -> dict[str, np.ndarray]:
        """New values of the weights that have a gradient; `step` counts from 1."""
        return {
            path: weights[path] - RATE * self._direction(path, gradient, step)
            for path, gradient in gradients.items()
        }

    def _direction(self, path: str, gradient: np.ndarray, step: int) -> np.ndarray:
        self.slots[f"{path}/gradient"] = gradient
        return np.zeros_like(gradient)

    def _mean(self, slot: str, kept: float, added: np.ndarray) -> np.ndarray:
        """The slot's new value: the share `kept` of its old one, and what is `added`."""
        self.slots[slot] = kept * self.slots.get(slot, 0.0) + added
        return self.slots[slot]


class PlainMomentum(PlainOptimizer):
    """Velocity that keeps a half."""

    params = Momentum.Params(momentum=0.5)

    def _direction(self, path: str, gradient: np.ndarray, step: int) -> np.ndarray:
        return self._mean(f"{path}/velocity", 0.5, gradient)


class PlainAdam(PlainOptimizer):
    """Algorithm 1 of Kingma & Ba; epsilon is above the noise of a gradient that should be 0."""

    params = Adam.Params(beta_1=0.9, beta_2=0.99, epsilon=1e-2)

    def _direction(self, path: str, gradient: np.ndarray, step: int) -> np.ndarray:
        mean = self._mean(f"{path}/m", 0.9, 0.1 * gradient) / (1 - 0.9**step)
        square = self._mean(f"{path}/v", 0.99, 0.01 * gradient**2) / (1 - 0.99**step)
        return mean / (np.sqrt(square) + 1e-2)


OPTIMIZERS: tuple[type[PlainOptimizer], ...] = (PlainOptimizer, PlainMomentum, PlainAdam)
