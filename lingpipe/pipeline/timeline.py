"""A recorded step as plain data, and where its time went.

A step of T seconds on D devices is D * T device-seconds. `split_step` divides them into the parts
of GPipe's breakdown of its overhead (Huang et al. 2019), and transfer:

    device 0  F0 F1 .  .  B0 B0 B1 B1 | update      b(0) = 6
    device 1  .  F0 B0 B0 F1 B1 .  .  | update      b(1) = 5
              <--- the passes: P ---->  <- T - P ->

With b(d) the time that device d is busy with actions, and b the largest of them:

    compute    what the actions take, less recompute and transfer
    recompute  the part of backward passes that computes activations again
    transfer   bringing what an action needs to its device
    update     D * (T - P): norm, update, copies of shared weights, the host after the last action
    imbalance  sum over d of b - b(d): other devices have less to do than the busiest
    bubble     D * (P - b): even the busiest device waits for others

The first three add up to the sum of all b(d), so that all six add up to D * T. Nothing here touches
a device: `recorder.py` records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from lingpipe.pipeline.schedule import Phase

# What is done before the first action of a step: casts of weights that all micro-batches share.
CASTS = "casts"

_LETTERS = {phase.name: phase.value for phase in Phase}
_PASSES = (CASTS, *_LETTERS)
_MEANINGS = {
    "compute": "forward and backward passes",
    "recompute": "activations computed again",
    "transfer": "bringing inputs and gradients to the device",
    "update": "norm, update, copies of shared weights, host",
    "imbalance": "less to do than the busiest device",
    "bubble": "waiting for other devices",
}


@dataclasses.dataclass(frozen=True)
class RecordedSpan:
    """Something that a device did in a step; times are in seconds from the start of the step.

    Attributes:
      phase: name of the `Phase` of an action; "casts" for what starts a step, and other words, such
        as "reduction", "norm", "update" and "broadcast", for what ends it.
      device: number of the device.
      stage: number of the stage.
      micro_batch: number of the micro-batch of an action; None for all else.
      start: when it began; what it needed of other devices had been sent by then.
      end: when the device had done it.
      transfer_seconds: how long it took, from `start` on, to bring what was needed to the device.
    """

    phase: str
    device: int
    stage: int
    micro_batch: int | None
    start: float
    end: float
    transfer_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """From start to end."""
        return self.end - self.start

    @property
    def is_of_passes(self) -> bool:
        """Whether it belongs to the passes, and not to what ends a step."""
        return self.phase in _PASSES

    @property
    def name(self) -> str:
        """Such as "F3 stage 2", or "update stage 2"."""
        letter = _LETTERS.get(self.phase)
        return f"{f'{letter}{self.micro_batch}' if letter else self.phase} stage {self.stage}"


@dataclasses.dataclass(frozen=True)
class RecordedStep:
    """One training step.

    Attributes:
      devices: name of each device.
      spans: what they did, in any order; those of one device do not overlap.
      seconds: time of the whole step, T.
    """

    devices: tuple[str, ...]
    spans: tuple[RecordedSpan, ...]
    seconds: float

    @property
    def passes_seconds(self) -> float:
        """Time from the start of the step to the end of its last action, P."""
        return max((span.end for span in self.spans if span.is_of_passes), default=0)

    def busy_seconds(self) -> list[float]:
        """For each device the time that it spends on the passes, b(d)."""
        busy = [0.0] * len(self.devices)
        for span in self.spans:
            if span.is_of_passes:
                busy[span.device] += span.seconds
        return busy


@dataclasses.dataclass(frozen=True)
class Split:
    """Where the time of a step went, in device-seconds; the file's top says what each part is.

    Attributes:
      step_seconds: time of the step, T.
      num_devices: number of devices, D.
      compute, recompute, transfer, update, imbalance, bubble: the parts of D * T.
    """

    step_seconds: float
    num_devices: int
    compute: float
    recompute: float
    transfer: float
    update: float
    imbalance: float
    bubble: float

    def parts(self) -> dict[str, float]:
        """Name -> device-seconds of each part."""
        return {name: getattr(self, name) for name in _MEANINGS}

    def shares(self) -> dict[str, float]:
        """Name -> share of each part in the step, from 0 to 1."""
        whole = self.step_seconds * self.num_devices
        return {name: part / whole if whole else 0.0 for name, part in self.parts().items()}


def split_step(step: RecordedStep, recompute_shares: Sequence[float] = ()) -> Split:
    """Divides the time of a step into its parts.

    Args:
      step: the step.
      recompute_shares: for each stage the share of its backward passes, bringing gradients not
        counted, that computes activations again; empty if no stage does. A span does not show it.
    """
    num_devices = len(step.devices)
    spans = [span for span in step.spans if span.is_of_passes]
    busy = step.busy_seconds()
    most, total = max(busy, default=0.0), sum(busy)
    transfer = sum(span.transfer_seconds for span in spans)
    recompute = sum(
        (span.seconds - span.transfer_seconds) * recompute_shares[span.stage]
        for span in spans
        if recompute_shares and span.phase not in (CASTS, Phase.forward.name)
    )
    return Split(
        step_seconds=step.seconds,
        num_devices=num_devices,
        compute=total - transfer - recompute,
        recompute=recompute,
        transfer=transfer,
        update=num_devices * (step.seconds - step.passes_seconds),
        imbalance=num_devices * most - total,
        bubble=num_devices * (step.passes_seconds - most),
    )


def format_split(split: Split) -> str:
    """The parts as a table for people: seconds on the average device, and shares of the step."""
    count = split.num_devices
    rows = [
        f"{name:<9}  {part / count:8.4f} s  {share:6.1%}  {_MEANINGS[name]}"
        for (name, part), share in zip(split.parts().items(), split.shares().values(), strict=True)
    ]
    total = sum(split.parts().values()) / count
    on = "the device" if count == 1 else f"{count} devices, on average"
    rows.append(f"{'step':<9}  {total:8.4f} s  {sum(split.shares().values()):6.1%}  on {on}")
    return "\n".join(row.rstrip() for row in rows) + "\n"


def chrome_trace(step: RecordedStep, split: Split) -> dict[str, Any]:
    """The step as JSON that chrome://tracing and https://ui.perfetto.dev open, one row a device.

    Returns:
      an object in the "Trace Event Format": complete events with times in microseconds, transfers
      inside their actions; beside them the shares of the parts.
    """
    events: list[dict[str, Any]] = [_named(0, "process_name", "lingpipe step")]
    for device, name in enumerate(step.devices):
        events.append(_named(device, "thread_name", f"device {device}: {name}"))
    for span in sorted(step.spans, key=lambda span: (span.device, span.start)):
        event: dict[str, Any] = {
            "name": span.name,
            "cat": span.phase,
            "ph": "X",
            "ts": span.start * 1e6,
            "dur": span.seconds * 1e6,
            "pid": 0,
            "tid": span.device,
            "args": {"phase": span.phase, "stage": span.stage},
        }
        if span.micro_batch is not None:
            event["args"]["micro_batch"] = span.micro_batch
        events.append(event)
        if span.transfer_seconds:
            duration = span.transfer_seconds * 1e6
            events.append({**event, "name": "transfer", "cat": "transfer", "dur": duration})
    shares = {name: round(share, 4) for name, share in split.shares().items()}
    other = {"step_seconds": step.seconds, "shares": shares}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}


def _named(device: int, what: str, name: str) -> dict[str, Any]:
    """An event that names a row, or all of them."""
    return {"name": what, "ph": "M", "pid": 0, "tid": device, "args": {"name": name}}
