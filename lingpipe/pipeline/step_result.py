"""What a training step reports, and what it refuses to apply."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from lingpipe.pipeline.errors import CellError
from lingpipe.pipeline.stage import Stage


class NonFiniteError(ArithmeticError):
    """A step that came to numbers that are not finite; no update was applied."""


@dataclasses.dataclass(frozen=True)
class StepResult:
    """What a training step reports.

    Attributes:
      step: number of the step, counted from 1.
      loss: loss per unit of weight (per target token in translation); NaN if there was none, in
        which case nothing was updated.
      weight: total weight of the mini-batch.
      grad_norm: global norm of the gradient before clipping; not finite if the step was skipped.
      learning_rate: the rate that was applied.
      sums: all that the last cell returned, summed over the mini-batch.
      loss_scale: what gradients were multiplied by on their way; 1 but in float16.
      is_skipped: True if gradients overflowed float16. Then no stage updated anything, and the
        loss scale was halved.
    """

    step: int
    loss: float
    weight: float
    grad_norm: float
    learning_rate: float
    sums: dict[str, float]
    loss_scale: float = 1.0
    is_skipped: bool = False

    @property
    def is_without_weight(self) -> bool:
        """True if the mini-batch has no weight, and therefore no gradient."""
        return self.weight == 0 and math.isfinite(self.sums["loss"])


def result_of(
    step: int,
    sums: dict[str, float],
    squared_norm: float,
    learning_rate: float,
    loss_scale: float,
) -> StepResult:
    """What a step comes to, before it is known whether it may be applied.

    Args:
      step: number of the step.
      sums: of the last cell, over the mini-batch.
      squared_norm: of the gradient of the sum of losses, times the loss scale.
      learning_rate: the rate of this step.
      loss_scale: what gradients were multiplied by.

    Raises:
      CellError: the weight is negative.
    """
    weight = sums["weight"]
    if weight < 0:
        raise CellError(
            f"Step {step}: the last cell's weights add up to {weight}; gradients are divided "
            "by their sum, so it must not be negative. No update was applied."
        )
    if weight == 0 and math.isfinite(sums["loss"]):
        return StepResult(step, math.nan, 0.0, 0.0, learning_rate, sums, loss_scale)
    share = 1.0 / weight if weight else math.inf
    grad_norm = math.sqrt(squared_norm) / loss_scale * share
    return StepResult(
        step, sums["loss"] * share, weight, grad_norm, learning_rate, sums, loss_scale
    )


def check_finite(result: StepResult, stages: Sequence[Stage], *, is_scaled: bool) -> None:
    """Refuses a step that would spoil weights or state.

    Args:
      result: what the step would report.
      stages: with the statistics that their layers reported.
      is_scaled: whether activations are float16, whose gradients are scaled.

    Raises:
      NonFiniteError: with what is not finite.
    """
    step, loss, grad_norm = result.step, result.loss, result.grad_norm
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        at_scale = f" at a loss scale of {result.loss_scale:,.12g}" if is_scaled else ""
        advice = " So does bfloat16, whose range is that of float32." if is_scaled else ""
        raise NonFiniteError(
            f"Step {step}: loss {loss}, gradient norm {grad_norm}{at_scale}. No update was "
            "applied. A lower learning rate, a longer warm-up, clip_global_norm or logit clipping "
            f"helps.{advice}"
        )
    layers = [path for stage in stages for path in stage.state.not_finite()]
    if layers:
        raise NonFiniteError(
            f"Step {step}: the statistics of {', '.join(layers)} are not finite, although loss "
            "and gradient are. No update was applied. Look for huge values in the batch."
        )
