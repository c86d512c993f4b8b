"""Simulated steps against tables drawn by hand, closed forms, and a second, slower simulation.

The second one moves a clock from moment to moment, and asks every idle device at each whether its
next action may start.
"""

from __future__ import annotations

import random
import textwrap

import pytest

from lingpipe.errors import UserError
from lingpipe.pipeline.schedule import Action, Phase, Schedule, ScheduleError
from lingpipe.pipeline.schedules import ScheduleKind, make_schedule
from lingpipe.pipeline.simulate import Simulation, SimulationError, StageCost, simulate
from tests.pipeline.drawn_schedules import make_schedule_of

SCHEDULES = [
    make_schedule(kind, num_stages, num_micro_batches, stages_per_device)
    for kind in ScheduleKind
    for num_stages, num_micro_batches in ((1, 1), (1, 3), (2, 2), (4, 1), (4, 6), (6, 7))
    for stages_per_device in ((1, 2, 3) if kind is ScheduleKind.interleaved else (1,))
    if num_stages % stages_per_device == 0
]


def simulate_equal(
    kind: str, num_stages: int, num_micro_batches: int, stages_per_device: int = 1, **values: float
) -> Simulation:
    """A step in which all stages cost the same."""
    schedule = make_schedule(ScheduleKind(kind), num_stages, num_micro_batches, stages_per_device)
    return simulate(schedule, [StageCost(**values)] * num_stages)


# ------------------------------------------------------------------ tables drawn by hand


def drawn(simulation: Simulation, schedule: Schedule) -> list[str]:
    """One row a device; an action is written once for every second that it takes."""
    rows = []
    for row in schedule.rows:
        cells = ["."] * round(max(simulation.spans[action].end for action in row))
        for action in row:
            start, end = simulation.spans[action]
            cells[round(start) : round(end)] = [str(action)] * round(end - start)
        rows.append(" ".join(f"{cell:<4}" for cell in cells).rstrip())
    return rows


TABLES: dict[str, tuple[Schedule, list[StageCost], str]] = {
    "backward takes twice as long": (
        make_schedule(ScheduleKind.gpipe, 2, 2),
        [StageCost(1, 2)] * 2,
        """
        F0.0 F0.1 .    .    B0.0 B0.0 .    B0.1 B0.1
        .    F1.0 B1.0 B1.0 F1.1 B1.1 B1.1
        """,
    ),
    "the second stage is slow": (
        make_schedule(ScheduleKind.one_forward_one_backward, 2, 2),
        [StageCost(1, 1), StageCost(2, 3)],
        """
        F0.0 F0.1 .    .    .    .    B0.0 .    .    .    .    B0.1
        .    F1.0 F1.0 B1.0 B1.0 B1.0 F1.1 F1.1 B1.1 B1.1 B1.1
        """,
    ),
    "a boundary takes two seconds each way": (
        make_schedule(ScheduleKind.one_forward_one_backward, 2, 2),
        [StageCost(1, 1, transfer_seconds=2), StageCost(1, 1)],
        """
        F0.0 F0.1 .    .    .    .    .    B0.0 .    B0.1
        .    .    .    F1.0 B1.0 F1.1 B1.1
        """,
    ),
    "a backward pass in two parts": (
        make_schedule_of("F0 F1 B0 B1", "F0 I0 F1 I1 W0 W1"),
        [StageCost(1, 2), StageCost(1, 3, 1, 2)],
        """
        F0.0 F0.1 .    B0.0 B0.0 B0.1 B0.1
        .    F1.0 I1.0 F1.1 I1.1 W1.0 W1.0 W1.1 W1.1
        """,
    ),
    "two stages on each device": (
        make_schedule(ScheduleKind.interleaved, 4, 2, 2),
        [StageCost(1, 1)] * 3 + [StageCost(1, 2)],
        """
        F0.0 F0.1 F2.0 F2.1 .    .    B2.0 .    .    B2.1 B0.0 B0.1
        .    F1.0 F1.1 F3.0 B3.0 B3.0 F3.1 B3.1 B3.1 B1.0 B1.1
        """,
    ),
}


@pytest.mark.parametrize("title", TABLES)
def test_a_step_is_the_table_drawn_by_hand(title: str) -> None:
    schedule, costs, table = TABLES[title]
    simulation = simulate(schedule, costs)
    assert drawn(simulation, schedule) == textwrap.dedent(table).strip().splitlines()
    assert simulation.step_seconds == max(span.end for span in simulation.spans.values())


def test_what_stays_on_a_device_is_not_transferred() -> None:
    schedule = make_schedule(ScheduleKind.interleaved, 3, 2, 3)
    simulation = simulate(schedule, [StageCost(1, 1, transfer_seconds=5)] * 3)
    assert (simulation.step_seconds, simulation.bubble_share) == (12, 0)


def test_a_step_ends_with_the_slowest_update_once_all_passes_have_ended() -> None:
    costs = [StageCost(1, 1, update_seconds=u) for u in (0.5, 2, 1, 1)]
    plain = simulate(make_schedule(ScheduleKind.gpipe, 4, 1), costs)
    assert plain.step_seconds == 8 + 2
    assert plain.busy_seconds == (2.5, 4, 3, 3)
    assert plain.bubble_share == pytest.approx(1 - 12.5 / 40)
    # Stages 0 and 2 share a device, and so do 1 and 3: a device updates its stages in turn.
    shared = simulate(make_schedule(ScheduleKind.interleaved, 4, 1, 2), costs)
    assert shared.step_seconds == 8 + 3
    assert shared.busy_seconds == (5.5, 7)


def test_halves_of_a_backward_pass_take_half_its_time_unless_told() -> None:
    cost = StageCost(1, 3)
    assert [cost.seconds(phase) for phase in Phase] == [1, 3, 1.5, 1.5]
    assert [StageCost(1, 3, 1, 0).seconds(phase) for phase in Phase] == [1, 3, 1, 0]


# ------------------------------------------------------------------ closed forms


@pytest.mark.parametrize("kind", ("gpipe", "1f1b"))
@pytest.mark.parametrize("backward", (1.0, 2.0, 2.5))
def test_the_bubble_of_gpipe_and_1f1b(kind: str, backward: float) -> None:
    """(K-1) / (M + K-1) of the time, whatever the ratio of backward to forward is."""
    for num_stages in (1, 2, 4, 7):
        for num_micro_batches in (1, 2, 3, 8, 16):
            step = simulate_equal(
                kind, num_stages, num_micro_batches, forward_seconds=1, backward_seconds=backward
            )
            whole = num_micro_batches + num_stages - 1
            assert step.step_seconds == pytest.approx(whole * (1 + backward))
            assert step.bubble_share == pytest.approx((num_stages - 1) / whole)


def test_1f1b_holds_less_than_gpipe() -> None:
    held = {
        kind: simulate_equal(kind, 4, 16, forward_seconds=1, backward_seconds=2)
        for kind in ("gpipe", "1f1b")
    }
    assert held["gpipe"].peak_live_micro_batches == (16, 16, 16, 1)
    assert held["1f1b"].peak_live_micro_batches == (4, 3, 2, 1)


@pytest.mark.parametrize("backward", (1.0, 2.0, 2.5))
def test_the_bubble_of_interleaving(backward: float) -> None:
    """(K-1) / (v M + K-1) for K devices, for every M from K on."""
    for num_devices in (1, 2, 4, 5):
        for stages_per_device in (1, 2, 3):
            for num_micro_batches in (5, 7, 8, 12, 13):
                step = simulate_equal(
                    "interleaved",
                    num_devices * stages_per_device,
                    num_micro_batches,
                    stages_per_device,
                    forward_seconds=1,
                    backward_seconds=backward,
                )
                whole = stages_per_device * num_micro_batches + num_devices - 1
                assert step.bubble_share == pytest.approx((num_devices - 1) / whole)


@pytest.mark.parametrize("times", ((1, 1, 1), (1, 1, 0.5), (2, 2, 1), (1, 1.5, 1)), ids=str)
def test_the_bubble_of_zb_h1(times: tuple[float, float, float]) -> None:
    """(K-1) (F + I - W) seconds on every device (Qi et al. 2023, table 1)."""
    forward, of_inputs, of_weights = times
    whole = of_inputs + of_weights
    for num_stages in (1, 2, 4, 6):
        for num_micro_batches in (2 * num_stages, 2 * num_stages + 1, 3 * num_stages):
            step = simulate_equal(
                "zb_h1",
                num_stages,
                num_micro_batches,
                forward_seconds=forward,
                backward_seconds=whole,
                backward_input_seconds=of_inputs,
                backward_weight_seconds=of_weights,
            )
            bubble = (num_stages - 1) * (forward + of_inputs - of_weights)
            for busy in step.busy_seconds:
                assert busy == pytest.approx(num_micro_batches * (forward + whole))
                assert step.step_seconds - busy == pytest.approx(bubble)
            assert step.peak_live_micro_batches == (num_stages,) * num_stages


# ------------------------------------------------------------------ against a moving clock


def play(schedule: Schedule, costs: list[StageCost]) -> dict[Action, tuple[float, float]]:
    """The spans of all actions, by a clock that moves to the next moment when something happens."""
    where = {action.stage: device for device, row in enumerate(schedule.rows) for action in row}
    waiting = [list(row) for row in schedule.rows]
    spans: dict[Action, tuple[float, float]] = {}
    free = [0.0] * len(waiting)
    now = 0.0
    while any(waiting):
        for device, row in enumerate(waiting):
            if row and free[device] <= now and is_ready(row[0], spans, where, costs, now):
                action = row.pop(0)
                free[device] = now + costs[action.stage].seconds(action.phase)
                spans[action] = (now, free[device])
        delays = {0.0, *(cost.transfer_seconds for cost in costs)}
        moments = {end + delay for _, end in spans.values() for delay in delays}
        now = min((moment for moment in moments if moment > now), default=now)
    return spans


def is_ready(
    action: Action,
    spans: dict[Action, tuple[float, float]],
    where: dict[int, int],
    costs: list[StageCost],
    now: float,
) -> bool:
    """Whether all that an action waits for has arrived."""
    stage, m = action.stage, action.micro_batch
    for other, letters in sources(action, where):
        actions = [Action(Phase(letter), other, m) for letter in letters]
        delay = costs[min(stage, other)].transfer_seconds if where[other] != where[stage] else 0.0
        if not any(it in spans and spans[it][1] + delay <= now for it in actions):
            return False
    return True


def sources(action: Action, where: dict[int, int]) -> list[tuple[int, str]]:
    """From which stage an action needs something, and which phases there may give it."""
    stage = action.stage
    if action.phase is Phase.forward:
        return [(stage - 1, "F")] if stage else []
    if action.phase is Phase.backward_weight:
        return [(stage, "I")]
    return [(stage, "F"), *([(stage + 1, "BI")] if stage + 1 in where else [])]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s.name}-{s.num_stages}")
def test_uneven_stages_take_the_time_that_a_clock_shows(schedule: Schedule) -> None:
    numbers = random.Random(schedule.num_stages)
    for transfer in (0.0, 0.25):
        # Quarters add up without rounding, so that two moments are equal or apart.
        costs = [
            StageCost(*(numbers.randint(1, 9) / 4 for _ in range(4)), transfer_seconds=transfer)
            for _ in range(schedule.num_stages)
        ]
        simulation = simulate(schedule, costs)
        assert simulation.spans == play(schedule, costs)
        for row, busy in zip(schedule.rows, simulation.busy_seconds, strict=True):
            assert busy == sum(costs[a.stage].seconds(a.phase) for a in row)


# ------------------------------------------------------------------ size and refusals


@pytest.mark.parametrize("kind", ScheduleKind)
def test_128_stages_and_512_micro_batches_can_be_simulated(kind: ScheduleKind) -> None:
    """Neither the depth of the recursion nor the memory grows with the number of actions."""
    step = simulate_equal(kind.value, 128, 512, forward_seconds=1, backward_seconds=2)
    assert 0.05 < step.bubble_share < 0.25


def test_costs_that_do_not_fit_are_refused() -> None:
    schedule = make_schedule(ScheduleKind.gpipe, 3, 2)
    with pytest.raises(SimulationError, match=r"'gpipe' has 3 stages, but .* costs of 2\. Give"):
        simulate(schedule, [StageCost(1, 1)] * 2)
    costs = [StageCost(1, 1), StageCost(1, 1), StageCost(1, -0.5)]
    with pytest.raises(SimulationError, match=r"backward_seconds \(-0\.5\) of stage 2 must be"):
        simulate(schedule, costs)
    with pytest.raises(SimulationError, match=r"forward_seconds \(nan\) of stage 0 must be"):
        simulate(schedule, [StageCost(float("nan"), 1)] * 3)
    assert issubclass(SimulationError, UserError)


def test_a_stuck_schedule_is_refused() -> None:
    with pytest.raises(ScheduleError, match="stuck"):
        simulate(make_schedule_of("B0 F0", num_micro_batches=1), [StageCost(1, 1)])
