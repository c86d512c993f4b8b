"""Who does what, in which order: a schedule as plain data.

A schedule holds, for each device, the ordered row of its actions; an action names phase, stage and
micro-batch. The executor gives every device a thread that walks its row; nothing else decides the
order. Printed, it has one row a device and one column a time slot; F stands for forward, B for
backward:

    F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3       F0.0 F0.1 F2.0 F2.1 .    B2.0 .    B2.1 B0.0 B0.1
    .  F0 F1 .  B0 F2 B1 F3 B2 .  B3          .    F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 B1.0 B1.1
    .  .  F0 B0 F1 B1 F2 B2 F3 B3

On the left F2 is the forward pass of micro-batch 2, on the stage of its row. On the right every
device runs two stages: F2.0 is the forward pass of stage 2 for micro-batch 0. A backward pass may
be cut in two: I computes what the stage before waits for, the gradients of the stage's inputs, and
W, at any later time, the gradients of its weights.

The rules that make schedules are in `schedules.py`.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
from collections.abc import Iterator, Sequence

from lingpipe.errors import UserError


class Phase(enum.Enum):
    """What an action computes."""

    forward = "F"
    backward = "B"  # Gradients of inputs and weights.
    backward_input = "I"  # Gradients of the inputs alone.
    backward_weight = "W"  # Gradients of the weights, after backward_input.

    # Members are singletons; the inherited hash of the name is slow.
    __hash__ = object.__hash__


@dataclasses.dataclass(frozen=True, slots=True)
class Action:
    """One call of a function of a stage on one micro-batch."""

    phase: Phase
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.phase.value}{self.stage}.{self.micro_batch}"


class ScheduleError(UserError, ValueError):
    """A schedule that cannot be run, or numbers from which none can be made."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The actions of every device, in order.

    Attributes:
      name: name of the rule that made it.
      num_micro_batches: how many micro-batches a mini-batch is cut into.
      rows: for each device the ordered tuple of its actions.
    """

    name: str
    num_micro_batches: int
    rows: tuple[tuple[Action, ...], ...]

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.rows)

    @property
    def num_stages(self) -> int:
        """Number of stages, counted up to the last one that any row names."""
        return len(self.placement)

    @functools.cached_property
    def placement(self) -> tuple[int, ...]:
        """For each stage the number of the device that runs it.

        Raises:
          ScheduleError: no device or more than one runs some stage.
        """
        homes: dict[int, set[int]] = collections.defaultdict(set)
        for device, row in enumerate(self.rows):
            for action in row:
                homes[action.stage].add(device)
        num_stages = max(homes, default=-1) + 1
        for stage in range(num_stages):
            if len(homes[stage]) != 1:
                found = " and ".join(f"device {device}" for device in sorted(homes[stage]))
                raise ScheduleError(
                    f"Schedule {self.name!r}: stage {stage} is run by {found or 'no device'}. Give "
                    "all of its actions to one device: its weights lie there."
                )
        return tuple(device for stage in range(num_stages) for device in homes[stage])

    @functools.cached_property
    def split_stages(self) -> frozenset[int]:
        """The stages whose backward pass is cut into I and W."""
        halves = (Phase.backward_input, Phase.backward_weight)
        return frozenset(a.stage for row in self.rows for a in row if a.phase in halves)

    def keeps_all(self, stage: int) -> bool:
        """Whether it is the last stage and each of its backwards follows its forward at once.

        To compute anything again would save nothing there.
        """
        if stage != self.num_stages - 1:
            return False
        backwards = (Phase.backward, Phase.backward_input)
        return all(
            after in [Action(phase, stage, action.micro_batch) for phase in backwards]
            for action, after in itertools.pairwise(self.rows[self.placement[stage]])
            if action.phase is Phase.forward and action.stage == stage
        )

    def needs(self, action: Action) -> list[Action]:
        """The actions that must end before this one starts."""
        stage, m = action.stage, action.micro_batch
        if action.phase is Phase.forward:
            return [Action(Phase.forward, stage - 1, m)] if stage else []
        if action.phase is Phase.backward_weight:
            return [Action(Phase.backward_input, stage, m)]
        needs = [Action(Phase.forward, stage, m)]
        if stage + 1 < self.num_stages:
            is_split = stage + 1 in self.split_stages
            phase = Phase.backward_input if is_split else Phase.backward
            needs.append(Action(phase, stage + 1, m))
        return needs

    def slots(self) -> list[dict[int, Action]]:
        """The actions by time slot, every action one slot long: slot -> {device: action}.

        Raises:
          ScheduleError: an action waits for one that never comes.
        """
        done: set[Action] = set()
        position = [0] * self.num_devices
        slots: list[dict[int, Action]] = []
        while True:
            heads = {
                device: row[position[device]]
                for device, row in enumerate(self.rows)
                if position[device] < len(row)
            }
            if not heads:
                return slots
            slot = {
                device: action
                for device, action in heads.items()
                if done.issuperset(self.needs(action))
            }
            if not slot:
                waiting = ", ".join(f"device {device} at {a}" for device, a in heads.items())
                raise ScheduleError(
                    f"Schedule {self.name!r} is stuck at slot {len(slots)}: {waiting} would wait "
                    "for ever, each for an action that comes later. (F2.0 is F of stage 2 for "
                    "micro-batch 0.)"
                )
            for device in slot:
                position[device] += 1
            done.update(slot.values())
            slots.append(slot)

    def rows_with_bubbles(self) -> tuple[tuple[Action | None, ...], ...]:
        """The rows with None for every time slot in which a device waits for its next action."""
        slots = self.slots()
        rows = []
        for device in range(self.num_devices):
            row = [slot.get(device) for slot in slots]
            last = max((i for i, action in enumerate(row) if action), default=-1)
            rows.append(tuple(row[: last + 1]))
        return tuple(rows)

    def validate(self) -> None:
        """Checks that every stage does every action once, on one device, and none waits for ever.

        Raises:
          ScheduleError: naming device, stage and what is missing, doubled or stuck.
        """
        found: dict[int, list[Action]] = {stage: [] for stage in range(self.num_stages)}
        for row in self.rows:
            for action in row:
                if action.stage not in found:
                    raise ScheduleError(
                        f"Schedule {self.name!r}: {action} is of stage {action.stage}, but stages "
                        "count from 0."
                    )
                found[action.stage].append(action)
        for stage, actions in found.items():
            self._check_stage(stage, actions)
        self.slots()

    def _check_stage(self, stage: int, actions: list[Action]) -> None:
        """Checks that the actions found for a stage are each of those that it needs, once."""
        phases = [Phase.forward, Phase.backward]
        if stage in self.split_stages:
            phases[1:] = [Phase.backward_input, Phase.backward_weight]
        count = self.num_micro_batches
        wanted = {Action(phase, stage, m) for phase in phases for m in range(count)}
        counts = collections.Counter(actions)
        faults = {
            "misses": wanted - set(counts),
            "doubles": {action for action, times in counts.items() if times > 1},
            "has no use for": set(counts) - wanted,
        }
        if any(faults.values()):
            must = " and ".join(phase.value for phase in phases)
            what = " and ".join(
                f"{fault} {', '.join(sorted(map(str, those)))}"
                for fault, those in faults.items()
                if those
            )
            raise ScheduleError(
                f"Schedule {self.name!r}: stage {stage} on device {self.placement[stage]} must run "
                f"{must} once for each of {count} micro-batches, but {what}."
            )

    def peak_live_micro_batches(self) -> tuple[int, ...]:
        """For each device the most micro-batches that it holds at a time.

        A stage holds a micro-batch from its F until its B, or until its W where the backward pass
        is cut; a device counts those of all its stages.
        """
        return tuple(max(self._live(row), default=0) for row in self.rows)

    def peak_live_of_stages(self) -> tuple[int, ...]:
        """For each stage the most micro-batches that it holds at a time."""
        of_stage: dict[int, list[Action]] = collections.defaultdict(list)
        for row in self.rows:
            for action in row:
                of_stage[action.stage].append(action)
        return tuple(max(self._live(of_stage[stage])) for stage in range(self.num_stages))

    @staticmethod
    def _live(actions: Sequence[Action]) -> Iterator[int]:
        """How many micro-batches are held after each action."""
        ends = (Phase.backward, Phase.backward_weight)
        live = 0
        for action in actions:
            live += (action.phase is Phase.forward) - (action.phase in ends)
            yield live

    def __str__(self) -> str:
        """A grid of characters: one row a device, one column a time slot; see the file's top."""
        one_each = self.num_stages == self.num_devices

        def cell(action: Action | None) -> str:
            if action is None:
                return "."
            return f"{action.phase.value}{action.micro_batch}" if one_each else str(action)

        slots = self.slots()
        cells = [[cell(slot.get(device)) for slot in slots] for device in range(self.num_devices)]
        width = max(len(text) for row in cells for text in row)
        return "\n".join(" ".join(f"{text:<{width}}" for text in row).rstrip(" .") for row in cells)
