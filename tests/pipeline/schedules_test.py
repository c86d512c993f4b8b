"""The rules against grids drawn by hand, and the laws of bubbles and memory that they obey.

One row a device, one column a time slot in which every action takes as long as any other.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from lingpipe.errors import UserError
from lingpipe.pipeline.schedule import Phase, Schedule, ScheduleError
from lingpipe.pipeline.schedules import (
    ScheduleKind,
    gpipe,
    interleaved,
    make_schedule,
    one_forward_one_backward,
    zb_h1,
)

Rule = Callable[[int, int], Schedule]

# Those whose backward passes are whole and that run one stage on each device.
PLAIN: tuple[Rule, ...] = (gpipe, one_forward_one_backward)
SIZES = [(k, m) for k in (1, 2, 3, 4, 7) for m in (1, 2, 3, 4, 5, 8, 16)]

GRIDS: dict[str, str] = {
    "gpipe 1 1": "F0 B0",
    "gpipe 1 3": "F0 B0 F1 B1 F2 B2",
    "gpipe 2 1": """
        F0 .  .  B0
        .  F0 B0
        """,
    "gpipe 2 3": """
        F0 F1 F2 B0 .  B1 .  B2
        .  F0 B0 F1 B1 F2 B2
        """,
    "gpipe 3 4": """
        F0 F1 F2 F3 .  .  B0 B1 .  B2 .  B3
        .  F0 F1 F2 F3 B0 B1 .  B2 .  B3
        .  .  F0 B0 F1 B1 F2 B2 F3 B3
        """,
    "gpipe 4 2": """
        F0 F1 .  .  .  .  .  B0 .  B1
        .  F0 F1 .  .  .  B0 .  B1
        .  .  F0 F1 .  B0 .  B1
        .  .  .  F0 B0 F1 B1
        """,
    "1f1b 1 1": "F0 B0",
    "1f1b 1 3": "F0 B0 F1 B1 F2 B2",
    "1f1b 2 1": """
        F0 .  .  B0
        .  F0 B0
        """,
    "1f1b 2 3": """
        F0 F1 .  B0 F2 B1 .  B2
        .  F0 B0 F1 B1 F2 B2
        """,
    "1f1b 3 4": """
        F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
        .  F0 F1 .  B0 F2 B1 F3 B2 .  B3
        .  .  F0 B0 F1 B1 F2 B2 F3 B3
        """,
    "1f1b 4 2": """
        F0 F1 .  .  .  .  .  B0 .  B1
        .  F0 F1 .  .  .  B0 .  B1
        .  .  F0 F1 .  B0 .  B1
        .  .  .  F0 B0 F1 B1
        """,
    "interleaved 2 1 2": "F0.0 F1.0 B1.0 B0.0",
    "interleaved 4 2 2": """
        F0.0 F0.1 F2.0 F2.1 .    B2.0 .    B2.1 B0.0 B0.1
        .    F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 B1.0 B1.1
        """,
    "interleaved 4 4 2": """
        F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 .    B2.2 .    B2.3 B0.2 B0.3
        .    F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 B3.2 F3.3 B3.3 B1.2 B1.3
        """,
    # One group of three, since a second group would have one micro-batch for two devices.
    "interleaved 4 3 2": """
        F0.0 F0.1 F0.2 F2.0 F2.1 F2.2 B2.0 .    B2.1 .    B2.2 B0.0 B0.1 B0.2
        .    F1.0 F1.1 F1.2 F3.0 B3.0 F3.1 B3.1 F3.2 B3.2 B1.0 B1.1 B1.2
        """,
    "zb_h1 1 2": "F0 B0 F1 B1",
    "zb_h1 2 3": """
        F0 F1 .  B0 F2 B1 .  .  B2
        .  F0 I0 F1 I1 W0 F2 I2 W1 W2
        """,
    "zb_h1 3 4": """
        F0 F1 F2 .  .  B0 F3 B1 .  .  B2 .  B3
        .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
        .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
        """,
    "zb_h1 4 2": """
        F0 F1 .  .  .  .  .  B0 .  B1
        .  F0 F1 .  .  .  I0 .  I1 W0 W1
        .  .  F0 F1 .  I0 .  I1 W0 W1
        .  .  .  F0 I0 F1 I1 W0 W1
        """,
}


@pytest.mark.parametrize("title", GRIDS)
def test_a_schedule_is_the_grid_drawn_by_hand(title: str) -> None:
    kind, *counts = title.split()
    schedule = make_schedule(ScheduleKind(kind), *map(int, counts))
    expected = textwrap.dedent(GRIDS[title]).strip().splitlines()
    assert str(schedule).splitlines() == expected
    assert schedule.name == kind


def test_every_schedule_of_every_size_can_run() -> None:
    for kind in ScheduleKind:
        for num_stages, num_micro_batches in SIZES:
            schedule = make_schedule(kind, num_stages, num_micro_batches)
            schedule.validate()
            assert schedule.placement == tuple(range(num_stages))
            assert schedule.num_micro_batches == num_micro_batches


def test_stages_are_dealt_out_to_devices_in_turn_for_every_number_of_micro_batches() -> None:
    for num_devices in range(1, 6):
        for stages_per_device in (2, 3, 4):
            for num_micro_batches in range(1, 14):
                num_stages = num_devices * stages_per_device
                schedule = interleaved(num_stages, num_micro_batches, stages_per_device)
                schedule.validate()
                assert schedule.placement == tuple(range(num_devices)) * stages_per_device


# ------------------------------------------------------------------ bubbles


@pytest.mark.parametrize("rule", PLAIN)
def test_each_stage_idles_for_two_slots_a_further_stage(rule: Rule) -> None:
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


def test_interleaving_shortens_the_bubble_by_the_stages_a_device_also_if_m_is_no_multiple() -> None:
    for num_devices in (1, 2, 3, 4, 7):
        for stages_per_device in (1, 2, 3):
            for num_micro_batches in range(num_devices, 4 * num_devices):
                num_stages = num_devices * stages_per_device
                slots = interleaved(num_stages, num_micro_batches, stages_per_device).slots()
                work = 2 * stages_per_device * num_micro_batches
                assert len(slots) == work + 2 * (num_devices - 1)


def test_one_stage_a_device_makes_interleaving_1f1b() -> None:
    for counts in SIZES:
        assert interleaved(*counts, 1).rows == one_forward_one_backward(*counts).rows


# ------------------------------------------------------------------ memory


def test_gpipe_keeps_all_micro_batches_alive_and_its_last_stage_one() -> None:
    for num_stages, num_micro_batches in SIZES:
        peaks = gpipe(num_stages, num_micro_batches).peak_live_micro_batches()
        assert peaks == (num_micro_batches,) * (num_stages - 1) + (1,)


def test_1f1b_keeps_no_more_micro_batches_alive_than_stages_follow() -> None:
    for num_stages, num_micro_batches in SIZES:
        peaks = one_forward_one_backward(num_stages, num_micro_batches).peak_live_micro_batches()
        assert peaks == tuple(min(num_stages - k, num_micro_batches) for k in range(num_stages))


def test_zb_h1_keeps_on_every_stage_what_1f1b_keeps_on_its_first() -> None:
    for num_stages, num_micro_batches in SIZES:
        peaks = zb_h1(num_stages, num_micro_batches).peak_live_micro_batches()
        assert peaks == (min(num_stages, num_micro_batches),) * num_stages


def test_interleaving_holds_the_papers_number_of_micro_batches() -> None:
    """Device d holds v-1 groups of D and 2 (D-d) - 1 more; of a stage that is 1/v as large."""
    for num_devices in (1, 2, 4):
        for stages_per_device in (2, 3):
            num_stages = num_devices * stages_per_device
            schedule = interleaved(num_stages, 3 * num_devices, stages_per_device)
            assert schedule.peak_live_micro_batches() == tuple(
                (stages_per_device - 1) * num_devices + 2 * (num_devices - device) - 1
                for device in range(num_devices)
            )


@pytest.mark.parametrize("rule", PLAIN)
def test_the_last_stage_goes_backward_right_after_forward(rule: Rule) -> None:
    row = rule(4, 6).rows[-1]
    assert [str(action) for action in row] == [f"{p}3.{m}" for m in range(6) for p in "FB"]


def test_an_interleaved_last_stage_does_so_too_where_groups_are_equal() -> None:
    for num_micro_batches, are_equal in ((3, True), (5, True), (6, True), (7, False), (8, True)):
        row = [a for a in interleaved(6, num_micro_batches, 2).rows[-1] if a.stage == 5]
        pairs = [(phase, m) for m in range(num_micro_batches) for phase in "FB"]
        assert ([(a.phase.value, a.micro_batch) for a in row] == pairs) is are_equal


def test_only_zb_h1_cuts_backward_passes_and_not_that_of_the_first_stage() -> None:
    for kind in ScheduleKind:
        split = make_schedule(kind, 4, 5).split_stages
        assert split == ({1, 2, 3} if kind is ScheduleKind.zb_h1 else frozenset())
    first = [action.phase for action in zb_h1(4, 5).rows[0]]
    assert set(first) == {Phase.forward, Phase.backward}


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("kind", ScheduleKind)
@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((0, 4), r"num_stages \(0\) must be at least 1\."),
        ((2, 0), r"num_micro_batches \(0\) must be at least 1\."),
        ((2, -3), r"num_micro_batches \(-3\) must be at least 1\."),
        ((2, 2, 0), r"stages_per_device \(0\) must be at least 1\."),
    ],
)
def test_counts_below_one_are_refused(
    kind: ScheduleKind, counts: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ScheduleError, match=words) as refusal:
        make_schedule(kind, *counts)
    assert isinstance(refusal.value, UserError)


@pytest.mark.parametrize("name", ("gpipe", "1f1b", "zb_h1"))
def test_only_interleaving_takes_several_stages_a_device(name: str) -> None:
    words = rf"schedule {name} runs one stage on each device, not stages_per_device \(2\); take sch"
    with pytest.raises(ScheduleError, match=words):
        make_schedule(ScheduleKind(name), 4, 4, 2)


@pytest.mark.parametrize(
    ("counts", "advice"), [((7, 3), "take 6 or 9 stages"), ((2, 3), "take 3 stages")]
)
def test_stages_that_devices_cannot_share_evenly_are_refused(
    counts: tuple[int, int], advice: str
) -> None:
    num_stages, stages_per_device = counts
    words = rf"num_stages \({num_stages}\) must be a multiple of stages_per_device \(3\).*{advice}"
    with pytest.raises(ScheduleError, match=words):
        make_schedule(ScheduleKind.interleaved, num_stages, 4, stages_per_device)
