"""How long a step would take: a schedule with costs, played through without a device.

Every action starts as soon as its device is free and what it waits for has ended, and, if that
crossed from another device, has arrived. So the times follow from the rows by one pass over the
actions, in any order in which they could run:

    start = max(end of the action before it in its row, end + transfer of each that it needs)

    F0 F1 .  .  B0 B0 .  B1 B1       one column a second; a forward pass takes one,
    .  F0 B0 B0 F1 B1 B1             a backward pass two

The result is plain data, for a plan, a test or a picture.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from lingpipe.errors import UserError
from lingpipe.pipeline.schedule import Action, Phase, Schedule


class SimulationError(UserError, ValueError):
    """Costs that do not fit the schedule."""


@dataclasses.dataclass(frozen=True)
class StageCost:
    """Seconds that a stage takes for one micro-batch, and for its update.

    Attributes:
      forward_seconds: of F.
      backward_seconds: of B, the time to compute activations again included.
      backward_input_seconds: of I; None for half of `backward_seconds`, since a product of matrices
        has two gradients of equal cost.
      backward_weight_seconds: of W; None likewise.
      transfer_seconds: from the end of a pass until what it sends has arrived on the next stage
        (or, going backward, has arrived from it), if that lies on another device. No device is
        busy with it.
      update_seconds: of the update that ends a step.
    """

    forward_seconds: float
    backward_seconds: float
    backward_input_seconds: float | None = None
    backward_weight_seconds: float | None = None
    transfer_seconds: float = 0.0
    update_seconds: float = 0.0

    def seconds(self, phase: Phase) -> float:
        """Time of an action of the given phase."""
        half = self.backward_seconds / 2
        times = {
            Phase.forward: self.forward_seconds,
            Phase.backward: self.backward_seconds,
            Phase.backward_input: self.backward_input_seconds,
            Phase.backward_weight: self.backward_weight_seconds,
        }
        time = times[phase]
        return half if time is None else time


class Span(NamedTuple):
    """When an action starts and ends, in seconds from the start of the step."""

    start: float
    end: float


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A step played through.

    Attributes:
      spans: start and end of every action.
      step_seconds: time from the first action to the end of the last update.
      busy_seconds: for each device the time in which it computes, updates included.
      peak_live_micro_batches: see `Schedule`.
    """

    spans: dict[Action, Span]
    step_seconds: float
    busy_seconds: tuple[float, ...]
    peak_live_micro_batches: tuple[int, ...]

    @property
    def bubble_share(self) -> float:
        """Share of all devices' time that they idle, from 0 to 1."""
        whole = self.step_seconds * len(self.busy_seconds)
        return 1.0 - sum(self.busy_seconds) / whole if whole else 0.0


def simulate(schedule: Schedule, costs: Sequence[StageCost]) -> Simulation:
    """Plays a step through.

    Args:
      schedule: a valid schedule.
      costs: of each stage.

    Raises:
      SimulationError: as many costs as stages are needed, none negative.
      ScheduleError: the schedule is stuck.
    """
    _check(schedule, costs)
    spans: dict[Action, Span] = {}
    free = [0.0] * schedule.num_devices
    busy = [0.0] * schedule.num_devices
    for slot in schedule.slots():
        for device, action in slot.items():
            arrivals = (
                _arrival(schedule, costs, spans, need, action) for need in schedule.needs(action)
            )
            start = max(free[device], *arrivals, 0.0)
            seconds = costs[action.stage].seconds(action.phase)
            spans[action] = Span(start, start + seconds)
            free[device] = start + seconds
            busy[device] += seconds
    updates = [0.0] * schedule.num_devices
    for device, cost in zip(schedule.placement, costs, strict=True):
        updates[device] += cost.update_seconds
    # The norm of the gradient is that of all stages: no update starts before the last pass ends.
    return Simulation(
        spans=spans,
        step_seconds=max(free) + max(updates),
        busy_seconds=tuple(b + u for b, u in zip(busy, updates, strict=True)),
        peak_live_micro_batches=schedule.peak_live_micro_batches(),
    )


def _arrival(
    schedule: Schedule,
    costs: Sequence[StageCost],
    spans: dict[Action, Span],
    need: Action,
    action: Action,
) -> float:
    """When what an action needs of another is there."""
    end = spans[need].end
    if schedule.placement[need.stage] == schedule.placement[action.stage]:
        return end
    return end + costs[min(need.stage, action.stage)].transfer_seconds


def _check(schedule: Schedule, costs: Sequence[StageCost]) -> None:
    if len(costs) != schedule.num_stages:
        raise SimulationError(
            f"Schedule {schedule.name!r} has {schedule.num_stages} stages, but there are costs of "
            f"{len(costs)}. Give one StageCost for each stage."
        )
    for stage, cost in enumerate(costs):
        for name, value in dataclasses.asdict(cost).items():
            if value is not None and not 0.0 <= value < float("inf"):
                raise SimulationError(
                    f"{name} ({value}) of stage {stage} must be a number of seconds, 0 or more."
                )
