"""What a schedule knows of itself, and what it says of one that cannot run."""

from __future__ import annotations

import textwrap

import pytest

from lingpipe.errors import UserError
from lingpipe.pipeline.schedule import Schedule, ScheduleError
from tests.pipeline.drawn_schedules import make_action, make_schedule_of

TWO_STAGES_A_DEVICE = make_schedule_of(
    "F0.0 F0.1 F2.0 F2.1 B2.0 B2.1 B0.0 B0.1", "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 B1.0 B1.1"
)
CUT_IN_TWO = make_schedule_of("F0 F1 B0 B1", "F0 I0 F1 I1 W0 W1")


def test_which_device_runs_which_stage_is_read_from_the_rows() -> None:
    assert TWO_STAGES_A_DEVICE.placement == (0, 1, 0, 1)
    assert (TWO_STAGES_A_DEVICE.num_devices, TWO_STAGES_A_DEVICE.num_stages) == (2, 4)
    assert CUT_IN_TWO.placement == (0, 1)
    assert (CUT_IN_TWO.split_stages, TWO_STAGES_A_DEVICE.split_stages) == ({1}, frozenset())


@pytest.mark.parametrize(
    ("action", "needs"),
    [
        ("F0.1", []),
        ("F2.1", ["F1.1"]),
        ("B3.0", ["F3.0"]),
        ("B1.0", ["F1.0", "B2.0"]),
    ],
)
def test_a_pass_waits_for_the_stage_that_feeds_it(action: str, needs: list[str]) -> None:
    assert TWO_STAGES_A_DEVICE.needs(make_action(action)) == [make_action(word) for word in needs]


@pytest.mark.parametrize(
    ("action", "needs"), [("B0.1", ["F0.1", "I1.1"]), ("I1.0", ["F1.0"]), ("W1.0", ["I1.0"])]
)
def test_of_a_backward_pass_in_two_parts_the_first_is_waited_for(
    action: str, needs: list[str]
) -> None:
    assert CUT_IN_TWO.needs(make_action(action)) == [make_action(word) for word in needs]


def test_a_grid_has_a_row_a_device_and_names_stages_where_a_device_has_several() -> None:
    assert str(CUT_IN_TWO) == textwrap.dedent("""\
        F0 F1 .  B0 .  B1
        .  F0 I0 F1 I1 W0 W1""")
    assert str(TWO_STAGES_A_DEVICE) == textwrap.dedent("""\
        F0.0 F0.1 F2.0 F2.1 .    B2.0 .    B2.1 B0.0 B0.1
        .    F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 B1.0 B1.1""")


def test_wide_numbers_keep_their_columns() -> None:
    words = [f"{phase}{m}" for m in range(11) for phase in "FB"]
    schedule = make_schedule_of(" ".join(words), num_micro_batches=11)
    assert str(schedule).startswith("F0  B0  F1  B1 ")
    assert str(schedule).endswith("F10 B10")


def test_a_micro_batch_is_alive_until_its_last_backward_part_on_every_stage_of_its_device() -> None:
    assert CUT_IN_TWO.peak_live_micro_batches() == (2, 2)
    assert TWO_STAGES_A_DEVICE.peak_live_micro_batches() == (4, 3)


def test_a_backward_waits_for_the_stage_after_it() -> None:
    slots = make_schedule_of("F0 B0", "F0 B0", num_micro_batches=1).slots()
    assert [{k: str(action) for k, action in slot.items()} for slot in slots] == [
        {0: "F0.0"},
        {1: "F1.0"},
        {1: "B1.0"},
        {0: "B0.0"},
    ]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            ("F0 F1 B0 B1", "F0 B0 F1"),
            r"stage 1 on device 1 must run F and B once for each of 2 micro-batches, but misses "
            r"B1\.1\.",
        ),
        (("F0 B0", "F0 B0 F1 B1"), r"stage 0 .* misses B0\.1, F0\.1\."),
        (("F0 F1 F0 B0 B1", "F0 B0 F1 B1"), r"stage 0 .* doubles F0\.0\."),
        (("F0 F1 B0 B1 B2", "F0 B0 F1 B1"), r"stage 0 .* has no use for B0\.2\."),
        (("F0 F0 B0 B1", "F0 B0 F1 B1"), r"stage 0 .* misses F0\.1 and doubles F0\.0\."),
        (("", "F0 B0 F1 B1"), "stage 0 is run by no device"),
        (("", "", "F0 B0 F1 B1"), "stage 0 is run by no device"),
        (("F0 F1 B0 B1", "F0 B0 F1 B1 B0.1"), "stage 0 is run by device 0 and device 1.*one dev"),
        (("F-1.0 F0 B0 F1 B1",), r"F-1\.0 is of stage -1, but stages count from 0"),
        (("F0 F1 I0 B1 W0",), r"must run F and I and W .* misses I0\.1, W0\.1 .*no use for B0\.1"),
        (("F0 F1 I0 I1 W0",), r"misses W0\.1"),
        (("B0 F0 F1 B1", "F0 B0 F1 B1"), "at slot 0: device 0 at B0.0, device 1 at F1.0 would"),
        (("F0 B0 F1 B1", "F0 F1 B1 B0"), "at slot 2: device 0 at B0.0, device 1 at F1.1 would"),
        (("F1 F0 B0 B1", "F0 B1 F1 B0"), "stuck"),
        (("F0 W0 I0 F1 I1 W1",), "stuck at slot 1: device 0 at W0.0 would wait"),
    ],
)
def test_what_cannot_run_is_refused_in_words(rows: tuple[str, ...], words: str) -> None:
    with pytest.raises(ScheduleError, match=words) as refusal:
        make_schedule_of(*rows).validate()
    assert "'mine'" in str(refusal.value)
    assert isinstance(refusal.value, UserError)


@pytest.mark.parametrize("schedule", (TWO_STAGES_A_DEVICE, CUT_IN_TWO), ids=str)
def test_what_can_run_is_not_refused_and_runs_every_action_once(schedule: Schedule) -> None:
    schedule.validate()
    ran = [action for slot in schedule.slots() for action in slot.values()]
    assert sorted(map(repr, ran)) == sorted(repr(a) for row in schedule.rows for a in row)
