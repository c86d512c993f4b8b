"""The loss scale: what keeps small gradients from vanishing in float16, as a pure state machine.

Float16 knows no number between 0 and 6e-8, and many gradients of activations lie there. So the
backward pass starts from a gradient of S instead of 1: every gradient on the way is S times as
large, and the sums of the weights' gradients, in float32, are divided by S in the end. Where S is
too large, gradients leave the range of float16 (65,504) and are infinite or not numbers; then no
weight moves, S is halved, and training goes on. After many steps without such an overflow S is
doubled, since gradients shrink as training goes on:

    32,768  --overflow-->  16,384  --2,000 good steps-->  32,768  --2,000 good steps-->  65,536

S is always a power of two. Multiplying by one and dividing by it again is exact, so that the
scale decides which gradients survive and nothing else.

Source: Micikevicius et al. 2018, "Mixed Precision Training", sections 3.2 and 4.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from lingpipe.hyperparams import Parameterized

_FACTOR = 2.0  # By which the scale grows and shrinks.


@dataclasses.dataclass(frozen=True)
class LossScaleState:
    """Where the loss scale of a run stands; plain data, for a checkpoint to keep.

    Attributes:
      scale: S, what the gradient of the loss is multiplied by in the next step.
      good_steps: steps without an overflow since S last changed.
    """

    scale: float
    good_steps: int = 0

    def to_record(self) -> dict[str, float | int]:
        """As data for JSON; `LossScale.restored` reads it back."""
        return dataclasses.asdict(self)


class LossScale(Parameterized):
    """How the scale moves. It holds no state: every method makes a new state of the one before."""

    class Params(Parameterized.Params):
        """Where the scale starts, when it grows, and its limits, all powers of two."""

        initial: float = 2.0**15  # The scale of the first step.
        growth_steps: int = 2000  # Good steps in a row after which the scale is doubled.
        smallest: float = 1.0  # An overflow at this scale ends the run.
        largest: float = 2.0**24  # The scale grows no further.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            """Scales that are no powers of two, limits out of order, or no steps to grow after."""
            scales = ("initial", "smallest", "largest")
            odd = [name for name in scales if not _is_power_of_two(getattr(self, name))]
            for name in odd:
                yield (
                    name,
                    f"{name} ({getattr(self, name)}) must be a power of two of at most 2**60, such "
                    "as 32768.0, so that scaling rounds nothing.",
                )
            if not odd and not self.smallest <= self.initial <= self.largest:
                yield (
                    "initial",
                    f"initial ({self.initial}) must lie between smallest ({self.smallest}) and "
                    f"largest ({self.largest}).",
                )
            if self.growth_steps < 1:
                yield (
                    "growth_steps",
                    f"growth_steps ({self.growth_steps}) must be at least 1; for a scale that "
                    "never grows set largest to initial.",
                )

    def __init__(self, params: Params) -> None:
        """Keeps the params; they are checked when built."""
        self.params = params

    def start(self) -> LossScaleState:
        """The state before the first step."""
        return LossScaleState(self.params.initial)

    def after_good_step(self, state: LossScaleState) -> LossScaleState:
        """The state after a step whose gradients were all finite."""
        good_steps = state.good_steps + 1
        if good_steps < self.params.growth_steps:
            return LossScaleState(state.scale, good_steps)
        return LossScaleState(min(state.scale * _FACTOR, self.params.largest))

    def after_overflow(self, state: LossScaleState) -> LossScaleState | None:
        """The state after a step with gradients that were not; None if it is at its smallest."""
        if state.scale <= self.params.smallest:
            return None
        return LossScaleState(state.scale / _FACTOR)

    def restored(self, record: Mapping[str, Any] | None) -> LossScaleState:
        """The state of a checkpoint, within the limits of these params.

        Args:
          record: what `LossScaleState.to_record` returned; None, of a run in another dtype, gives
            the start.
        """
        if record is None:
            return self.start()
        scale = min(max(float(record["scale"]), self.params.smallest), self.params.largest)
        return LossScaleState(scale, int(record["good_steps"]))


def _is_power_of_two(value: float) -> bool:
    """Whether it is one whose products with gradients stay within float32."""
    return 2.0**-60 <= value <= 2.0**60 and math.frexp(value)[0] == 0.5
