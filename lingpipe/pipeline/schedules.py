"""The rules that make schedules: each is one pure function that writes down every device's row.

    gpipe                                   1f1b
    F0 F1 F2 F3 .  .  B0 B1 .  B2 .  B3     F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
    .  F0 F1 F2 F3 B0 B1 .  B2 .  B3        .  F0 F1 .  B0 F2 B1 F3 B2 .  B3
    .  .  F0 B0 F1 B1 F2 B2 F3 B3           .  .  F0 B0 F1 B1 F2 B2 F3 B3

In both, the last stage runs the backward of a micro-batch right after its forward: it then never
needs to rematerialise, and never holds the logits of two micro-batches. `interleaved` gives every
device several shorter stages, so that the pipeline fills sooner; `zb_h1` cuts backward passes in
two and does the half that nobody waits for where a device would idle.

A new schedule is one function from (num_stages, num_micro_batches) to a `Schedule`, and a member of
`ScheduleKind`.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator

from lingpipe.pipeline.schedule import Action, Phase, Schedule, ScheduleError


class ScheduleKind(enum.Enum):
    """The schedules that `pipeline.schedule` may name."""

    gpipe = "gpipe"
    one_forward_one_backward = "1f1b"
    interleaved = "interleaved"
    zb_h1 = "zb_h1"


def make_schedule(
    kind: ScheduleKind, num_stages: int, num_micro_batches: int, stages_per_device: int = 1
) -> Schedule:
    """The schedule of the given kind.

    Args:
      kind: which rule.
      num_stages: number of stages K of the model, over all devices.
      num_micro_batches: number of micro-batches M.
      stages_per_device: stages that share a device; more than 1 for `interleaved` alone.

    Raises:
      ScheduleError: a count is below 1, or the stages cannot be dealt out so.
    """
    for name, value in (("num_stages", num_stages), ("num_micro_batches", num_micro_batches)):
        if value < 1:
            raise ScheduleError(f"{name} ({value}) must be at least 1.")
    fault = stages_per_device_fault(kind, num_stages, stages_per_device)
    if fault:
        raise ScheduleError(fault)
    if kind is ScheduleKind.interleaved:
        return interleaved(num_stages, num_micro_batches, stages_per_device)
    rules = {
        ScheduleKind.gpipe: gpipe,
        ScheduleKind.one_forward_one_backward: one_forward_one_backward,
        ScheduleKind.zb_h1: zb_h1,
    }
    return rules[kind](num_stages, num_micro_batches)


def stages_per_device_fault(
    kind: ScheduleKind, num_stages: int, stages_per_device: int
) -> str | None:
    """What is wrong with that number of stages on each device, in words; None if it is fine."""
    if stages_per_device < 1:
        return f"stages_per_device ({stages_per_device}) must be at least 1."
    if stages_per_device > 1 and kind is not ScheduleKind.interleaved:
        return (
            f"schedule {kind.value} runs one stage on each device, not stages_per_device "
            f"({stages_per_device}); take schedule interleaved, or stages_per_device 1."
        )
    num_devices, rest = divmod(num_stages, stages_per_device)
    if rest:
        fewer, more = num_devices * stages_per_device, (num_devices + 1) * stages_per_device
        fits = f"{fewer} or {more}" if fewer else f"{more}"
        return (
            f"num_stages ({num_stages}) must be a multiple of stages_per_device "
            f"({stages_per_device}), since every device runs as many: take {fits} stages."
        )
    return None


def gpipe(num_stages: int, num_micro_batches: int) -> Schedule:
    """All forwards, then all backwards (Huang et al. 2019, figure 2c).

    The last stage alternates: its backward can start at once, and the others then receive their
    gradients in the order of the micro-batches.
    """
    *others, last = range(num_stages)
    everyone = range(num_micro_batches)
    rows = [
        (
            *(Action(Phase.forward, stage, m) for m in everyone),
            *(Action(Phase.backward, stage, m) for m in everyone),
        )
        for stage in others
    ]
    pair = (Phase.forward, Phase.backward)
    rows.append(tuple(Action(phase, last, m) for m in everyone for phase in pair))
    return Schedule("gpipe", num_micro_batches, tuple(rows))


def one_forward_one_backward(num_stages: int, num_micro_batches: int) -> Schedule:
    """Stage k runs K-k forwards ahead, then alternates (1F1B; Narayanan et al. 2021, figure 4).

    At most K-k micro-batches are alive on stage k, whatever M is.
    """
    rows = interleaved(num_stages, num_micro_batches, 1).rows
    return Schedule("1f1b", num_micro_batches, rows)


def interleaved(num_stages: int, num_micro_batches: int, stages_per_device: int) -> Schedule:
    """1F1B where device d of D runs the v stages d, D+d, 2D+d ... (Narayanan et al. 2021, 2.2).

    Micro-batches go around all devices in groups: a device takes a group through its first stage,
    then through its next. In the paper a group is D micro-batches, and D must divide M; here they
    are M // D groups as equal as can be, none smaller than D unless M is. The bubble then is the
    share (D-1) / (v M + D-1) for every M >= D, where one smaller group at the end would make the
    devices wait for each other, some of them for ever.

    Device d runs 2 (D-d-1) forwards ahead on top of v-1 groups. Half of them would do if nothing
    took time to cross from device to device, and do for v = 1, which makes the rule 1F1B.

    Args:
      num_stages: number of stages over all devices, a multiple of `stages_per_device`.
      num_micro_batches: number of micro-batches M.
      stages_per_device: v.
    """
    num_devices = num_stages // stages_per_device
    num_groups = max(1, num_micro_batches // num_devices)
    bounds = [num_micro_batches * i // num_groups for i in range(num_groups + 1)]
    groups = [range(bounds[i], bounds[i + 1]) for i in range(num_groups)]
    largest = max(len(group) for group in groups)
    ahead_of_next = 1 if stages_per_device == 1 else 2
    rows = []
    for device in range(num_devices):
        stages = range(device, num_stages, num_devices)
        forwards = (Action(Phase.forward, s, m) for group in groups for s in stages for m in group)
        backwards = (
            Action(Phase.backward, s, m)
            for group in groups
            for s in reversed(stages)
            for m in group
        )
        ahead = (stages_per_device - 1) * largest + ahead_of_next * (num_devices - device - 1)
        rows.append(tuple(_alternate(forwards, backwards, ahead + 1)))
    return Schedule("interleaved", num_micro_batches, tuple(rows))


def _alternate(
    forwards: Iterator[Action], backwards: Iterator[Action], ahead: int
) -> Iterator[Action]:
    """`ahead` forwards, then a backward and a forward in turn until both have run out."""
    yield from itertools.islice(forwards, ahead)
    for backward in backwards:
        yield backward
        yield from itertools.islice(forwards, 1)


def zb_h1(num_stages: int, num_micro_batches: int) -> Schedule:
    """1F1B whose backward passes are cut in two; W fills the bubbles (Qi et al. 2023, ZB-H1).

    Stage k does the W of a micro-batch k micro-batches after its I. Every stage then holds up to K
    micro-batches, as the first stage of 1F1B does, and with equal costs on all stages the bubble
    falls from (K-1)(F+I+W) to (K-1)(F+I-W), if W <= I and M >= 2K. The
    last stage, too, keeps the gradients of the logits of up to K micro-batches, where 1F1B keeps
    one.

        F0 F1 F2 .  .  B0 F3 B1 .  .  B2 .  B3
        .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
        .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3

    Stage 0 has no input gradients for anyone to wait for, and its W would follow its I at once: it
    runs its backward pass whole, as B (drawn one slot long, though it takes the time of two).
    """
    rows = []
    for stage in range(num_stages):
        ahead = num_stages - stage
        row = [Action(Phase.forward, stage, m) for m in range(min(ahead, num_micro_batches))]
        for m in range(num_micro_batches):
            row.append(Action(Phase.backward_input if stage else Phase.backward, stage, m))
            if stage and m >= stage:
                row.append(Action(Phase.backward_weight, stage, m - stage))
            if m + ahead < num_micro_batches:
                row.append(Action(Phase.forward, stage, m + ahead))
        if stage:
            left = range(max(0, num_micro_batches - stage), num_micro_batches)
            row += [Action(Phase.backward_weight, stage, m) for m in left]
        rows.append(tuple(row))
    return Schedule("zb_h1", num_micro_batches, tuple(rows))
