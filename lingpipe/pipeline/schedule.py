"""Who does what, in which order: schedules as plain data.

A schedule holds, for each stage, the ordered list of its actions. The executor gives every stage a
thread that walks its list; nothing else decides the order. With F for forward and B for backward,
four micro-batches on three stages look like this (one row a stage, one column a time slot):

    gpipe                                   1f1b
    F0 F1 F2 F3 .  .  B0 B1 .  B2 .  B3     F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
    .  F0 F1 F2 F3 B0 B1 .  B2 .  B3        .  F0 F1 .  B0 F2 B1 F3 B2 .  B3
    .  .  F0 B0 F1 B1 F2 B2 F3 B3           .  .  F0 B0 F1 B1 F2 B2 F3 B3

In both, the last stage runs the backward of a micro-batch right after its forward: it then never
needs to rematerialise, and never holds the logits of two micro-batches.

A new schedule is one function from (num_stages, num_micro_batches) to a `Schedule`.
"""

from __future__ import annotations

import collections
import dataclasses
import enum

from lingpipe.errors import UserError


class Phase(enum.Enum):
    """What an action computes."""

    forward = "F"
    backward = "B"


@dataclasses.dataclass(frozen=True)
class Action:
    """One call of a stage function on one micro-batch."""

    phase: Phase
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.phase.value}{self.micro_batch}"


class ScheduleError(UserError, ValueError):
    """A schedule that cannot be run, or numbers from which none can be made."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The actions of every stage, in order.

    Attributes:
      name: name of the rule that made it.
      num_micro_batches: how many micro-batches a mini-batch is cut into.
      actions: for each stage the ordered tuple of its actions.
    """

    name: str
    num_micro_batches: int
    actions: tuple[tuple[Action, ...], ...]

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.actions)

    def slots(self) -> list[dict[int, Action]]:
        """The actions by time slot, every action one slot long: slot -> {stage: action}.

        Raises:
          ScheduleError: an action waits for one that never comes.
        """
        done: set[tuple[int, Action]] = set()
        position = [0] * self.num_stages
        slots: list[dict[int, Action]] = []
        while any(position[k] < len(row) for k, row in enumerate(self.actions)):
            slot = {
                stage: row[position[stage]]
                for stage, row in enumerate(self.actions)
                if position[stage] < len(row)
                and all(need in done for need in self._needs(stage, row[position[stage]]))
            }
            if not slot:
                waiting = ", ".join(
                    f"stage {stage} at {row[position[stage]]}"
                    for stage, row in enumerate(self.actions)
                    if position[stage] < len(row)
                )
                raise ScheduleError(
                    f"Schedule {self.name!r} is stuck at slot {len(slots)}: {waiting} would wait "
                    "for ever, each for an action that comes later."
                )
            for stage, action in slot.items():
                position[stage] += 1
                done.add((stage, action))
            slots.append(slot)
        return slots

    def _needs(self, stage: int, action: Action) -> list[tuple[int, Action]]:
        """The actions that must end before this one starts."""
        forward = Action(Phase.forward, action.micro_batch)
        if action.phase is Phase.forward:
            return [(stage - 1, forward)] if stage else []
        needs = [(stage, forward)]
        if stage + 1 < self.num_stages:
            needs.append((stage + 1, Action(Phase.backward, action.micro_batch)))
        return needs

    def validate(self) -> None:
        """Checks that every stage does every action once and that none waits for ever.

        Raises:
          ScheduleError: naming the stage and what is missing, doubled or stuck.
        """
        wanted = {Action(phase, m) for phase in Phase for m in range(self.num_micro_batches)}
        for stage, row in enumerate(self.actions):
            counts = collections.Counter(row)
            faults = {
                "misses": [action for action in wanted if action not in counts],
                "doubles": [action for action, count in counts.items() if count > 1],
                "has no use for": [action for action in counts if action not in wanted],
            }
            found = [
                f"{fault} {_in_words(actions)}" for fault, actions in faults.items() if actions
            ]
            if found:
                raise ScheduleError(
                    f"Schedule {self.name!r}: stage {stage} must run F and B once for each of "
                    f"{self.num_micro_batches} micro-batches, but {' and '.join(found)}."
                )
        self.slots()

    def peak_live_micro_batches(self) -> list[int]:
        """For each stage the largest number of micro-batches whose backward is still to come."""
        peaks = []
        for row in self.actions:
            live = peak = 0
            for action in row:
                live += 1 if action.phase is Phase.forward else -1
                peak = max(peak, live)
            peaks.append(peak)
        return peaks

    def __str__(self) -> str:
        """A grid of characters, one row a stage, one column a time slot."""
        slots = self.slots()
        width = max(len(str(action)) for row in self.actions for action in row)
        rows = [
            " ".join(f"{slot.get(stage, '.')!s:<{width}}" for slot in slots).rstrip(" .")
            for stage in range(self.num_stages)
        ]
        return "\n".join(rows)


def _in_words(actions: list[Action]) -> str:
    return ", ".join(f"{a.phase.value}{a.micro_batch}" for a in sorted(actions, key=str))


def _check_counts(num_stages: int, num_micro_batches: int) -> None:
    for name, value in (("num_stages", num_stages), ("num_micro_batches", num_micro_batches)):
        if value < 1:
            raise ScheduleError(f"{name} ({value}) must be at least 1.")


def gpipe(num_stages: int, num_micro_batches: int) -> Schedule:
    """All forwards, then all backwards (Huang et al. 2019, figure 2c).

    The last stage alternates: its backward can start at once, and the others then receive their
    gradients in the order of the micro-batches.
    """
    _check_counts(num_stages, num_micro_batches)
    forwards = [Action(Phase.forward, m) for m in range(num_micro_batches)]
    backwards = [Action(Phase.backward, m) for m in range(num_micro_batches)]
    last = tuple(a for pair in zip(forwards, backwards, strict=True) for a in pair)
    others = tuple(forwards + backwards)
    return Schedule("gpipe", num_micro_batches, (others,) * (num_stages - 1) + (last,))


def one_forward_one_backward(num_stages: int, num_micro_batches: int) -> Schedule:
    """Stage k runs K-k forwards ahead, then alternates (1F1B; Narayanan et al. 2021, figure 4).

    At most K-k micro-batches are alive on stage k, whatever M is.
    """
    _check_counts(num_stages, num_micro_batches)
    rows = []
    for stage in range(num_stages):
        ahead = min(num_stages - stage, num_micro_batches)
        row = [Action(Phase.forward, m) for m in range(ahead)]
        for m in range(num_micro_batches):
            row.append(Action(Phase.backward, m))
            if ahead + m < num_micro_batches:
                row.append(Action(Phase.forward, ahead + m))
        rows.append(tuple(row))
    return Schedule("1f1b", num_micro_batches, tuple(rows))


class ScheduleKind(enum.Enum):
    """The schedules that `pipeline.schedule` may name."""

    gpipe = "gpipe"
    one_forward_one_backward = "1f1b"


def make_schedule(kind: ScheduleKind, num_stages: int, num_micro_batches: int) -> Schedule:
    """The schedule of the given kind.

    Raises:
      ScheduleError: a count is below 1.
    """
    rules = {
        ScheduleKind.gpipe: gpipe,
        ScheduleKind.one_forward_one_backward: one_forward_one_backward,
    }
    return rules[kind](num_stages, num_micro_batches)
