"""Schedules against grids drawn by hand, and the laws of bubbles and memory that they obey.

One row a stage, one column a time slot in which every action takes as long as any other.
"""

import textwrap
from collections.abc import Callable

import pytest

from lingpipe.errors import UserError
from lingpipe.pipeline.schedule import (
    Action,
    Phase,
    Schedule,
    ScheduleError,
    ScheduleKind,
    gpipe,
    make_schedule,
    one_forward_one_backward,
)

Rule = Callable[[int, int], Schedule]

RULES: tuple[Rule, ...] = (gpipe, one_forward_one_backward)
SIZES = [(k, m) for k in (1, 2, 3, 4, 7) for m in (1, 2, 3, 4, 5, 8, 16)]

GRIDS: dict[tuple[Rule, int, int], str] = {
    (gpipe, 1, 1): "F0 B0",
    (gpipe, 1, 3): "F0 B0 F1 B1 F2 B2",
    (gpipe, 2, 1): """
        F0 .  .  B0
        .  F0 B0
        """,
    (gpipe, 2, 3): """
        F0 F1 F2 B0 .  B1 .  B2
        .  F0 B0 F1 B1 F2 B2
        """,
    (gpipe, 3, 4): """
        F0 F1 F2 F3 .  .  B0 B1 .  B2 .  B3
        .  F0 F1 F2 F3 B0 B1 .  B2 .  B3
        .  .  F0 B0 F1 B1 F2 B2 F3 B3
        """,
    (gpipe, 4, 2): """
        F0 F1 .  .  .  .  .  B0 .  B1
        .  F0 F1 .  .  .  B0 .  B1
        .  .  F0 F1 .  B0 .  B1
        .  .  .  F0 B0 F1 B1
        """,
    (one_forward_one_backward, 1, 1): "F0 B0",
    (one_forward_one_backward, 1, 3): "F0 B0 F1 B1 F2 B2",
    (one_forward_one_backward, 2, 1): """
        F0 .  .  B0
        .  F0 B0
        """,
    (one_forward_one_backward, 2, 3): """
        F0 F1 .  B0 F2 B1 .  B2
        .  F0 B0 F1 B1 F2 B2
        """,
    (one_forward_one_backward, 3, 4): """
        F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
        .  F0 F1 .  B0 F2 B1 F3 B2 .  B3
        .  .  F0 B0 F1 B1 F2 B2 F3 B3
        """,
    (one_forward_one_backward, 4, 2): """
        F0 F1 .  .  .  .  .  B0 .  B1
        .  F0 F1 .  .  .  B0 .  B1
        .  .  F0 F1 .  B0 .  B1
        .  .  .  F0 B0 F1 B1
        """,
}


def grid(text: str) -> list[str]:
    return textwrap.dedent(text).strip().splitlines()


@pytest.mark.parametrize(("rule", "num_stages", "num_micro_batches"), GRIDS)
def test_a_schedule_is_the_grid_drawn_by_hand(
    rule: Rule, num_stages: int, num_micro_batches: int
) -> None:
    schedule = rule(num_stages, num_micro_batches)
    assert str(schedule).splitlines() == grid(GRIDS[rule, num_stages, num_micro_batches])


@pytest.mark.parametrize("rule", RULES)
def test_every_stage_does_every_action_once_and_none_waits_for_ever(
    rule: Rule,
) -> None:
    for num_stages, num_micro_batches in SIZES:
        schedule = rule(num_stages, num_micro_batches)
        schedule.validate()
        assert (schedule.num_stages, schedule.num_micro_batches) == (num_stages, num_micro_batches)
        assert all(len(set(row)) == len(row) == 2 * num_micro_batches for row in schedule.actions)


def test_gpipe_keeps_all_micro_batches_alive_and_its_last_stage_one() -> None:
    for num_stages, num_micro_batches in SIZES:
        peaks = gpipe(num_stages, num_micro_batches).peak_live_micro_batches()
        assert peaks == [num_micro_batches] * (num_stages - 1) + [1]


def test_1f1b_keeps_no_more_micro_batches_alive_than_stages_follow() -> None:
    for num_stages, num_micro_batches in SIZES:
        peaks = one_forward_one_backward(num_stages, num_micro_batches).peak_live_micro_batches()
        assert peaks == [min(num_stages - k, num_micro_batches) for k in range(num_stages)]


@pytest.mark.parametrize("rule", RULES)
def test_each_stage_idles_for_two_slots_a_further_stage(
    rule: Rule,
) -> None:
    """The last stage starts after K-1 slots and then never pauses: it ends after K-1 + 2M.

    Its last backward then runs down K-1 stages. So a step takes 2 (M + K-1) slots, of which each
    stage works in 2M: the bubble is the share (K-1) / (M + K-1) of GPipe's paper, and an
    alternating last stage costs nothing.
    """
    for num_stages, num_micro_batches in SIZES:
        slots = rule(num_stages, num_micro_batches).slots()
        assert len(slots) == 2 * (num_micro_batches + num_stages - 1)
        for stage in range(num_stages):
            assert sum(stage not in slot for slot in slots) == 2 * (num_stages - 1)
        last = [index for index, slot in enumerate(slots) if num_stages - 1 in slot]
        assert last == list(range(num_stages - 1, num_stages - 1 + 2 * num_micro_batches))


@pytest.mark.parametrize("rule", RULES)
def test_the_last_stage_goes_backward_right_after_forward(
    rule: Rule,
) -> None:
    row = rule(4, 6).actions[-1]
    assert [str(action) for action in row] == [f"{p}{m}" for m in range(6) for p in "FB"]


def test_a_kind_names_its_rule() -> None:
    assert make_schedule(ScheduleKind("gpipe"), 3, 4) == gpipe(3, 4)
    assert make_schedule(ScheduleKind("1f1b"), 3, 4) == one_forward_one_backward(3, 4)
    assert {make_schedule(kind, 2, 2).name for kind in ScheduleKind} == {"gpipe", "1f1b"}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((0, 4), r"num_stages \(0\) must be at least 1\."),
        ((2, 0), r"num_micro_batches \(0\) must be at least 1\."),
        ((2, -3), r"num_micro_batches \(-3\) must be at least 1\."),
    ],
)
def test_counts_below_one_are_refused(rule: Rule, counts: tuple[int, int], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        rule(*counts)


def make_schedule_of(*rows: str, num_micro_batches: int = 2) -> Schedule:
    """A schedule written down: a row of actions for each stage."""
    phases = {phase.value: phase for phase in Phase}
    actions = tuple(
        tuple(Action(phases[word[0]], int(word[1:])) for word in row.split()) for row in rows
    )
    return Schedule("mine", num_micro_batches, actions)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (("F0 F1 B0 B1", "F0 B0 F1"), "stage 1 must run .* of 2 micro-batches, but misses B1."),
        (("F0 B0", "F0 B0 F1 B1"), "stage 0 .* misses B1, F1."),
        (("F0 F1 F0 B0 B1", "F0 B0 F1 B1"), "stage 0 .* doubles F0."),
        (("F0 F1 B0 B1 B2", "F0 B0 F1 B1"), "stage 0 .* has no use for B2."),
        (("F0 F0 B0 B1", "F0 B0 F1 B1"), "stage 0 .* misses F1 and doubles F0."),
        (("F0 F1 B0 B1", ""), "stage 1 .* misses B0, B1, F0, F1."),
        (("B0 F0 F1 B1", "F0 B0 F1 B1"), "stuck at slot 0: stage 0 at B0, stage 1 at F0 would"),
        (("F0 B0 F1 B1", "F0 F1 B1 B0"), "stuck at slot 2: stage 0 at B0, stage 1 at F1 would"),
        (("F1 F0 B0 B1", "F0 B1 F1 B0"), "stuck"),
    ],
)
def test_what_cannot_run_is_refused_in_words(rows: tuple[str, ...], words: str) -> None:
    with pytest.raises(ScheduleError, match=words) as refusal:
        make_schedule_of(*rows).validate()
    assert "'mine'" in str(refusal.value)
    assert isinstance(refusal.value, UserError)


def test_a_backward_waits_for_the_stage_after_it() -> None:
    slots = make_schedule_of("F0 B0", "F0 B0", num_micro_batches=1).slots()
    assert [{k: str(action) for k, action in slot.items()} for slot in slots] == [
        {0: "F0"},
        {1: "F0"},
        {1: "B0"},
        {0: "B0"},
    ]


def test_wide_numbers_keep_their_columns() -> None:
    lines = str(gpipe(2, 11)).splitlines()
    assert lines[0].startswith("F0  F1  F2 ")
    assert lines[1].endswith("F10 B10")
    assert lines[1].index("F10") % 4 == 0
