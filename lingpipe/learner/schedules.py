r"""Learning-rate schedules: the number of an update -> its learning rate, in plain Python.

Updates count from 1: `learning_rate(1)` is the rate of the first update a run makes, and
`learning_rate(n)` that of the n-th, the one that turns the weights of step n - 1 into those of step
n. A schedule keeps no state, so a resumed run asks with its step and goes on exactly; the trainer
hands the answer to the stages as a tensor, so that nothing is traced again when it changes.

    rate
    peak |      /\_                   InverseSquareRoot: up along a line to warmup_steps,
         |     /   \__                 then down as 1 / sqrt(step).
         |    /       \_____
         |   /              \_______
         +--+---+--------------------- step
            1   warmup_steps
"""

from __future__ import annotations

import abc
import bisect
import itertools
import math
from collections.abc import Iterable

from lingpipe.hyperparams import REQUIRED, Parameterized


class LearningRateSchedule(Parameterized, abc.ABC):
    """Base of all schedules; a subclass defines `_rate`."""

    class Params(Parameterized.Params):
        """The params of a schedule; each kind adds its own fields."""

        def for_run(self, max_steps: int) -> LearningRateSchedule.Params:
            """The schedule of a run of `max_steps` updates; most kinds do not depend on it."""
            return self

    def __init__(self, params: Params) -> None:
        """Keeps the params; they are checked when built."""
        self.params = params

    def learning_rate(self, step: int) -> float:
        """The learning rate of one update.

        Args:
          step: number of the update, 1 for the first.

        Raises:
          ValueError: step is less than 1.
        """
        if step < 1:
            raise ValueError(
                f"step ({step}) must be at least 1: updates count from 1, and the first one of a "
                "run asks for learning_rate(1)."
            )
        return self._rate(int(step))

    @abc.abstractmethod
    def _rate(self, step: int) -> float:
        """The learning rate of update `step`, which is at least 1."""


class Constant(LearningRateSchedule):
    """The same rate for every update."""

    class Params(LearningRateSchedule.Params):
        """One number."""

        value: float = REQUIRED  # The learning rate.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            """A rate below zero."""
            yield from _unless_rate("value", self.value)

    params: Params

    def _rate(self, step: int) -> float:
        return self.params.value


class InverseSquareRoot(LearningRateSchedule):
    """A line up to the peak, then down with the inverse square root of the step.

    `peak * min(step / warmup_steps, sqrt(warmup_steps / step))`, which is eq. 3 of Vaswani et al.
    2017 ("Attention Is All You Need", section 5.3) with
    `peak = 1 / sqrt(model_dim * warmup_steps)`.
    """

    class Params(LearningRateSchedule.Params):
        """Height and place of the peak."""

        peak: float = REQUIRED  # The highest learning rate, that of update `warmup_steps`.
        warmup_steps: int = REQUIRED  # Updates up to the peak; 1 starts at the peak.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            """A rate below zero, or no place for the peak."""
            yield from _unless_rate("peak", self.peak)
            if self.warmup_steps < 1:
                yield (
                    "warmup_steps",
                    f"warmup_steps ({self.warmup_steps}) must be at least 1: the rate falls from "
                    "its peak there. Use 1 to start at the peak.",
                )

    params: Params

    def _rate(self, step: int) -> float:
        peak, warmup_steps = self.params.peak, self.params.warmup_steps
        return peak * min(step / warmup_steps, math.sqrt(warmup_steps / step))


class Cosine(LearningRateSchedule):
    """A line up to the peak, half a cosine wave down to the floor, then the floor.

    Eq. 5 of Loshchilov & Hutter 2017 ("SGDR", one period) with a warm-up in front. Update
    `total_steps` and all later ones run at the floor.
    """

    class Params(LearningRateSchedule.Params):
        """Peak, floor and when each is reached."""

        peak: float = REQUIRED  # The highest learning rate, that of update `warmup_steps`.
        # The update from which on the rate is the floor; None: the last of the run.
        total_steps: int | None = None
        warmup_steps: int = 0  # Updates up to the peak; 0 and 1 both start next to or at it.
        floor: float = 0.0  # The lowest learning rate after the warm-up.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            """Rates or steps out of order."""
            yield from _unless_rate("peak", self.peak)
            yield from _unless_rate("floor", self.floor)
            if self.floor > self.peak:
                yield "floor", f"floor ({self.floor}) must not be above peak ({self.peak})."
            if self.warmup_steps < 0:
                yield (
                    "warmup_steps",
                    f"warmup_steps ({self.warmup_steps}) must not be negative; use 0 for none.",
                )
            if self.total_steps is not None and self.total_steps <= max(self.warmup_steps, 0):
                yield (
                    "total_steps",
                    f"total_steps ({self.total_steps}) must be greater than warmup_steps "
                    f"({self.warmup_steps}): the rate falls in between. It is usually the number "
                    "of steps of the whole run, train.max_steps.",
                )

        def for_run(self, max_steps: int) -> LearningRateSchedule.Params:
            if self.total_steps is not None:
                return self
            # A run that ends in its warm-up never sees the wave.
            return self.copy(total_steps=max(max_steps, self.warmup_steps + 1))

    params: Params

    def _rate(self, step: int) -> float:
        params = self.params
        if params.total_steps is None:
            raise ValueError("total_steps is None; set it, or let for_run(max_steps) set it.")
        if step < params.warmup_steps:
            return params.peak * step / params.warmup_steps
        done = (step - params.warmup_steps) / (params.total_steps - params.warmup_steps)
        height = 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
        return params.floor + (params.peak - params.floor) * height


class Piecewise(LearningRateSchedule):
    """Constant between boundaries: the steps of a staircase.

    With boundaries [100, 200] and values [a, b, c], updates 1 to 100 run at a, 101 to 200 at b, and
    all later ones at c.
    """

    class Params(LearningRateSchedule.Params):
        """The last update of every stair but the last, and every stair's height."""

        boundaries: list[int] = REQUIRED  # The last update of each value but the last; increasing.
        values: list[float] = REQUIRED  # Learning rates; one more than boundaries.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            """Stairs that do not fit their boundaries."""
            for index, value in enumerate(self.values):
                yield from _unless_rate(f"values[{index}]", value)
            if len(self.values) != len(self.boundaries) + 1:
                yield (
                    "values",
                    f"values ({len(self.values)} of them) must be one more than boundaries "
                    f"({len(self.boundaries)}): one before the first boundary and one after each.",
                )
            steps = [0, *self.boundaries]
            if any(after <= before for before, after in itertools.pairwise(steps)):
                yield (
                    "boundaries",
                    f"boundaries ({list(self.boundaries)}) must increase, from 1 or more; each is "
                    "the number of the last update of its value.",
                )

    params: Params

    def _rate(self, step: int) -> float:
        return self.params.values[bisect.bisect_left(self.params.boundaries, step)]


def _unless_rate(field: str, value: float) -> Iterable[tuple[str, str]]:
    """An inconsistency, unless `value` can be a learning rate."""
    if not (math.isfinite(value) and value >= 0):
        yield field, f"{field} ({value}) must be a finite number, zero or more."
