"""Schedules written down by hand, for tests: words such as F0, or F2.0 where the stage is named."""

from __future__ import annotations

from lingpipe.pipeline.schedule import Action, Phase, Schedule

PHASES = {phase.value: phase for phase in Phase}


def make_action(word: str, device: int = 0) -> Action:
    """F2.0 is F of stage 2 for micro-batch 0; F0 is F for micro-batch 0 on the device's own."""
    stage, _, micro_batch = word[1:].rpartition(".")
    return Action(PHASES[word[0]], int(stage or device), int(micro_batch))


def make_schedule_of(*rows: str, num_micro_batches: int = 2) -> Schedule:
    """A row of words for each device; dots are idle slots."""
    actions = tuple(
        tuple(make_action(word, device) for word in row.split() if word != ".")
        for device, row in enumerate(rows)
    )
    return Schedule("mine", num_micro_batches, actions)
