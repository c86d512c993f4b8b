"""Records what every device does in one training step, and when.

For the length of a step the executor walks stand-ins for the stages, which time their calls. An
accelerator returns from a call before it has done the work, so each call waits for its device
before its end is noted. What a call needs is brought to the device first, so that the time of that
is known apart from the computation. Steps that are not recorded run none of this.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import tensorflow as tf

from lingpipe.cluster.placement import device_number
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.schedule import Phase
from lingpipe.pipeline.stage import Stage
from lingpipe.pipeline.timeline import CASTS, RecordedSpan, RecordedStep

Result = TypeVar("Result")


@dataclasses.dataclass
class StageCall:
    """What a stage was given for the first micro-batch of a step.

    Attributes:
      forward: the arguments of `Stage.forward`.
      output_gradients: those of its outputs, as `Stage.backward` takes them.
    """

    forward: tuple[Any, MicroBatch, int]
    output_gradients: list[tf.Tensor] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Recording:
    """A recorded step.

    Attributes:
      step: what was done, and when.
      calls: for each stage of replica 0 its call for the first micro-batch, so that it can be
        measured again.
    """

    step: RecordedStep
    calls: tuple[StageCall, ...]


class StepRecorder:
    """The notes of one step; its clock starts when it is made."""

    def __init__(self, replicas: Sequence[Sequence[Stage]], placement: Sequence[int]) -> None:
        """Starts the clock.

        Args:
          replicas: the stages of each replica of the pipeline, in order.
          placement: for each stage the number of its device within its replica, as in
            `Schedule.placement`.
        """
        self._placement = list(placement)
        self._num_devices = max(placement) + 1
        names = {self._device(stage): stage.device for stages in replicas for stage in stages}
        self._devices = tuple(names[device] for device in sorted(names))
        self._calls: dict[int, StageCall] = {}
        # Several threads append. A micro-batch is known by its first example until all are there.
        self._spans: list[RecordedSpan] = []
        self._start = time.perf_counter()

    def now(self) -> float:
        """Seconds since the step began."""
        return time.perf_counter() - self._start

    def watch_stage(self, stage: Stage) -> Stage:
        """A stand-in for a stage that notes the calls of its passes."""
        return cast(Stage, _WatchedStage(stage, self))

    def watch_call(
        self, function: Callable[[Stage], Result], doing: str
    ) -> Callable[[Stage], Result]:
        """A function that calls `function` for a stage and notes it.

        Args:
          function: what to do with a stage.
          doing: what that is; its first word becomes the phase.
        """

        def watched(stage: Stage) -> Result:
            start = self.now()
            result = function(stage)
            self.note(doing.split()[0], stage, start)
            return result

        return watched

    def note(
        self,
        phase: str,
        stage: Stage,
        start: float,
        first_example: int | None = None,
        arrival: float | None = None,
    ) -> None:
        """Notes something that a stage's device has been given, once the device has done it.

        Args:
          phase: see `RecordedSpan`.
          stage: the stage.
          start: when it began.
          first_example: of the micro-batch, if it is of one.
          arrival: when what it needs had been brought; None if that is not known.
        """
        wait_for_device(stage.device)
        transfer = 0.0 if arrival is None else arrival - start
        device = self._device(stage)
        self._spans.append(
            RecordedSpan(phase, device, stage.index, first_example, start, self.now(), transfer)
        )

    def note_call(self, stage: Stage, *forward: Any) -> None:
        """Keeps the arguments of a stage's forward pass if its micro-batch is the first."""
        if forward[1].first_example == 0:
            self._calls[stage.index] = StageCall(forward)

    def note_gradients(self, stage: Stage, first_example: int, gradients: list) -> None:
        """Keeps the gradients that a stage's backward pass was given, likewise."""
        if first_example == 0:
            self._calls[stage.index].output_gradients = gradients

    def _device(self, stage: Stage) -> int:
        return device_number(stage.replica, self._placement[stage.index], self._num_devices)

    def recording(self) -> Recording:
        """All that was noted; the step ends now."""
        seconds = self.now()
        firsts = {s.micro_batch for s in self._spans if s.micro_batch is not None}
        numbers: dict[int | None, int | None] = {
            first: number for number, first in enumerate(sorted(firsts))
        }
        spans = tuple(
            dataclasses.replace(span, micro_batch=numbers.get(span.micro_batch))
            for span in sorted(self._spans, key=lambda span: (span.start, span.device))
        )
        calls = tuple(self._calls[stage] for stage in sorted(self._calls))
        return Recording(RecordedStep(self._devices, spans, seconds), calls)


def wait_for_device(device: str) -> None:
    """Waits until a device has done all that it was given; other devices are not waited for."""
    # A CPU has done its work when a call returns.
    if tf.DeviceSpec.from_string(device).device_type != "CPU":
        with tf.device(device):
            tf.raw_ops.SyncDevice()


class _Kept(NamedTuple):
    """What a stage keeps of a micro-batch, and of which."""

    first_example: int
    tensors: list


class _WatchedStage:
    """Stands before a stage and has all that it has; the calls of its passes are noted."""

    def __init__(self, stage: Stage, recorder: StepRecorder) -> None:
        self._stage = stage
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)

    def start_step(self) -> None:
        start = self._recorder.now()
        self._stage.start_step()
        if self._stage.has_step_constants:
            self._recorder.note(CASTS, self._stage, start)

    def forward(self, inputs: Any, micro_batch: MicroBatch, step: int) -> tuple[Any, _Kept]:
        start, first = self._recorder.now(), micro_batch.first_example
        keys = self._stage.batch_keys
        brought = self._bring([*inputs, *(micro_batch.entries[key] for key in keys)])
        inputs, entries = brought[: len(inputs)], brought[len(inputs) :]
        micro_batch = dataclasses.replace(
            micro_batch, entries=dict(zip(keys, entries, strict=True))
        )
        arrival = self._recorder.now()
        outputs, kept = self._stage.forward(inputs, micro_batch, step)
        self._recorder.note(Phase.forward.name, self._stage, start, first, arrival)
        self._recorder.note_call(self._stage, inputs, micro_batch, step)
        return outputs, _Kept(first, kept)

    def backward(self, kept: _Kept, output_gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        start = self._recorder.now()
        given = self._bring(output_gradients)
        arrival = self._recorder.now()
        gradients = self._stage.backward(kept.tensors, given)
        first = kept.first_example
        self._recorder.note(Phase.backward.name, self._stage, start, first, arrival)
        self._recorder.note_gradients(self._stage, first, given)
        return gradients

    def backward_input(
        self, kept: _Kept, output_gradients: list[tf.Tensor]
    ) -> tuple[list[tf.Tensor], _Kept]:
        start = self._recorder.now()
        given = self._bring(output_gradients)
        arrival = self._recorder.now()
        gradients, handed = self._stage.backward_input(kept.tensors, given)
        first = kept.first_example
        self._recorder.note(Phase.backward_input.name, self._stage, start, first, arrival)
        self._recorder.note_gradients(self._stage, first, given)
        return gradients, _Kept(first, handed)

    def backward_weight(self, kept: _Kept) -> None:
        start = self._recorder.now()
        self._stage.backward_weight(kept.tensors)
        self._recorder.note(Phase.backward_weight.name, self._stage, start, kept.first_example)

    def _bring(self, tensors: Sequence[Any]) -> list[tf.Tensor]:
        """Tensors and arrays, copied to the device and there."""
        with tf.device(self._stage.device):
            brought = [tf.identity(tensor) for tensor in tensors]
        wait_for_device(self._stage.device)
        return brought
