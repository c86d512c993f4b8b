"""Runs a schedule: one Python thread a device walks its row of actions.

An action is one call of a stage function under the device; TensorFlow releases the interpreter
while it computes, so the devices work side by side. What crosses a boundary is addressed to the
stage that needs it, and the thread of that stage's device waits for it. If any action fails, every
thread is woken and leaves the step, and the step raises one error that names where it happened.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from lingpipe.pipeline.errors import naming
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.recorder import StepRecorder
from lingpipe.pipeline.schedule import Action, Phase, Schedule
from lingpipe.pipeline.stage import Stage

Result = TypeVar("Result")


class Executor:
    """Threads that run the stages of one pipeline, kept from step to step."""

    def __init__(self, stages: Sequence[Stage], placement: Sequence[int]) -> None:
        """Starts no thread yet; each starts with the first step.

        Args:
          stages: the stages, in order.
          placement: for each stage the number of its device, as in `Schedule.placement`.
        """
        self._stages = list(stages)
        self._placement = list(placement)
        # A pool of one thread for each device, never one pool for all: devices wait for each other,
        # so none may ever find its thread taken by another.
        self._pools = [
            concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=f"device_{device}")
            for device in range(max(self._placement) + 1)
        ]
        # Hands out the work. Only the main thread is interrupted, so that none of this thread's
        # calls reaches some devices and others not.
        self._coordinator = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="pipeline")
        self._recorder: StepRecorder | None = None

    def train(
        self, schedule: Schedule, micro_batches: Sequence[MicroBatch], step: int
    ) -> list[Mapping[str, tf.Tensor]]:
        """Runs forward and backward of every micro-batch.

        Args:
          schedule: a valid schedule of these stages on these devices, and of as many micro-batches.
          micro_batches: the slices of the mini-batch, in order.
          step: number of the step.

        Returns:
          what the last cell returned, for each micro-batch.

        Raises:
          PipelineError: an action failed; accumulators hold part of the gradients.
        """
        return self._run(schedule.rows, micro_batches, step)

    def infer(
        self,
        inference: Inference,
        schedule: Schedule,
        micro_batches: Sequence[MicroBatch],
        step: int,
    ) -> list[Any]:
        """Runs the schedule's forward passes, without dropout; arguments as in `train`.

        Returns:
          what the last cell that takes part returned, for each micro-batch.

        Raises:
          PipelineError: an action failed.
        """
        forwards = [[a for a in row if a.phase is Phase.forward] for row in schedule.rows]
        return self._run(forwards, micro_batches, step, inference)

    def each(self, function: Callable[[Stage], Result], doing: str) -> list[Result]:
        """Calls `function` for every stage, on the thread of its device, and waits for all of them.

        It waits for all in every case, also after a failure or an interruption, so that nothing
        still runs when it is over.

        Args:
          function: what to do with a stage.
          doing: what that is, for the message of a failure: "update".

        Raises:
          PipelineError: a call failed; of several, that of the first stage.
        """
        if self._recorder:
            function = self._recorder.watch_call(function, doing)
        futures = self._together(
            lambda: [
                self._pools[device].submit(function, stage)
                for stage, device in zip(self._stages, self._placement, strict=True)
            ]
        )
        results = []
        for stage, future in zip(self._stages, futures, strict=True):
            with naming(stage, doing):
                results.append(future.result())
        return results

    @contextlib.contextmanager
    def recorded_by(self, recorder: StepRecorder) -> Iterator[None]:
        """Lets a recorder note what the devices do until the block ends."""
        stages = self._stages
        self._stages = [recorder.watch_stage(stage) for stage in stages]
        self._recorder = recorder
        try:
            yield
        finally:
            self._stages, self._recorder = stages, None

    def close(self) -> None:
        """Ends the threads; the executor cannot be used afterwards."""
        for pool in (self._coordinator, *self._pools):
            pool.shutdown()

    def _together(
        self,
        start: Callable[[], list[concurrent.futures.Future]],
        on_interruption: Callable[[BaseException], None] | None = None,
    ) -> list[concurrent.futures.Future]:
        """Starts work on the devices and waits until all of it has ended, in every case.

        Args:
          start: hands out the work, on the coordinator's thread.
          on_interruption: told what interrupted the wait, so that the work can be cut short.
        """

        def start_and_wait() -> list[concurrent.futures.Future]:
            futures = start()
            concurrent.futures.wait(futures)
            return futures

        try:
            return self._coordinator.submit(start_and_wait).result()
        except BaseException as interruption:
            if on_interruption:
                on_interruption(interruption)
            # The coordinator does one thing after the other: this one comes when all has ended.
            self._coordinator.submit(lambda: None).result()
            raise

    def _run(
        self,
        rows: Sequence[Sequence[Action]],
        micro_batches: Sequence[MicroBatch],
        step: int,
        inference: Inference | None = None,
    ) -> list[Any]:
        """Lets every device walk its row; raises the first failure once all threads have ended."""
        boxes = _Mailboxes(self._placement)
        results: dict[int, Any] = {}
        walk = functools.partial(
            _Walk, self._stages, boxes, micro_batches, step, results, inference
        )
        self._together(
            lambda: [
                pool.submit(walk().walk, row) for pool, row in zip(self._pools, rows, strict=True)
            ],
            boxes.fail,
        )
        failure = boxes.take_failure()
        if failure is not None:
            try:
                raise failure
            finally:
                # The failure's traceback holds this frame; without the name there is no circle,
                # and what the failed step held on the devices is free as soon as it is handled.
                del failure
        return [results[m] for m in range(len(micro_batches))]


class _Stopped(BaseException):
    """Tells a thread that the step has failed elsewhere; no failure of its own, hence the base."""


class _Parcel(NamedTuple):
    """The address of what crosses a boundary: "inputs" or "gradients", and for whom."""

    what: str
    stage: int
    micro_batch: int


class _Mailboxes:
    """What the stages of one step send each other, or that one of them has failed."""

    def __init__(self, placement: Sequence[int]) -> None:
        self._lock = threading.Lock()
        self._placement = placement
        # Each device's thread waits at its own door.
        self._arrivals = [threading.Condition(self._lock) for _ in range(max(placement) + 1)]
        self._values: dict[_Parcel, Any] = {}
        self._failure: BaseException | None = None

    def put(self, parcel: _Parcel, value: Any) -> None:
        """Delivers what an action of a stage waits for.

        Raises:
          _Stopped: the step has failed.
        """
        with self._lock:
            if self._failure is not None:
                raise _Stopped
            self._values[parcel] = value
            self._arrivals[self._placement[parcel.stage]].notify()

    def take(self, parcel: _Parcel) -> Any:
        """Waits for it and forgets it, so that its memory is free once the action is done.

        Raises:
          _Stopped: the step has failed.
        """
        with self._lock:
            while self._failure is None and parcel not in self._values:
                self._arrivals[self._placement[parcel.stage]].wait()
            if self._failure is not None:
                raise _Stopped
            return self._values.pop(parcel)

    def fail(self, failure: BaseException) -> None:
        """Keeps the first failure of the step and wakes every thread that waits."""
        with self._lock:
            if self._failure is None:
                self._failure = failure
                self._values.clear()
            for arrival in self._arrivals:
                arrival.notify()

    def take_failure(self) -> BaseException | None:
        """The failure, if there was one; asked once, when all threads have ended."""
        failure, self._failure = self._failure, None
        return failure


class _Walk:
    """One device's way through its row of actions in one step."""

    def __init__(
        self,
        stages: Sequence[Stage],
        boxes: _Mailboxes,
        micro_batches: Sequence[MicroBatch],
        step: int,
        results: dict[int, Any],
        inference: Inference | None,
    ) -> None:
        """Starts nothing; `results` takes what the last cell returns for each micro-batch.

        An `inference` of None is training.
        """
        self._stages = stages
        self._boxes = boxes
        self._micro_batches = micro_batches
        self._step = step
        self._results = results
        self._inference = inference
        # For each stage and micro-batch what its next phase needs of the one before.
        self._kept: dict[tuple[int, int], list[tf.Tensor]] = {}

    def walk(self, row: Sequence[Action]) -> None:
        """Takes every action in turn; ends early, without raising, when the step has failed."""
        phases = {
            Phase.forward: self._forward,
            Phase.backward: self._backward,
            Phase.backward_input: self._backward_input,
            Phase.backward_weight: self._backward_weight,
        }
        stages = [self._stages[index] for index in dict.fromkeys(action.stage for action in row)]
        try:
            if self._inference is None:
                for stage in stages:
                    with naming(stage, "casts of its weights"):
                        stage.start_step()
            for action in row:
                stage, m = self._stages[action.stage], action.micro_batch
                with naming(stage, f"{action.phase.name} pass of micro-batch {m}"):
                    # What these calls name dies with them; a tensor named here would stay alive
                    # while the device waits for its next one.
                    phases[action.phase](stage, m)
        except _Stopped:
            pass
        except BaseException as failure:
            self._boxes.fail(failure)
        finally:
            self._kept.clear()
            for stage in stages:
                stage.end_step()

    def _forward(self, stage: Stage, m: int) -> None:
        index = stage.index
        inputs = self._boxes.take(_Parcel("inputs", index, m)) if index else ()
        if self._inference is None:
            outputs, kept = stage.forward(inputs, self._micro_batches[m], self._step)
            self._kept[index, m] = kept
        else:
            outputs = stage.infer(self._inference, inputs, self._micro_batches[m], self._step)
        if stage.is_last:
            self._results[m] = outputs
        else:
            self._boxes.put(_Parcel("inputs", index + 1, m), outputs)

    def _backward(self, stage: Stage, m: int) -> None:
        gradients = stage.backward(self._kept.pop((stage.index, m)), self._given(stage, m))
        self._send_back(stage, m, gradients)

    def _backward_input(self, stage: Stage, m: int) -> None:
        key = stage.index, m
        gradients, kept = stage.backward_input(self._kept.pop(key), self._given(stage, m))
        self._kept[key] = kept
        self._send_back(stage, m, gradients)

    def _backward_weight(self, stage: Stage, m: int) -> None:
        stage.backward_weight(self._kept.pop((stage.index, m)))

    def _given(self, stage: Stage, m: int) -> list[tf.Tensor]:
        """The gradients of a stage's outputs."""
        if stage.is_last:
            return [tf.ones_like(self._results[m]["loss"])]
        return self._boxes.take(_Parcel("gradients", stage.index, m))

    def _send_back(self, stage: Stage, m: int, gradients: list[tf.Tensor]) -> None:
        """Sends the gradients of a stage's inputs to the stage before it, if there is one."""
        if stage.index:
            self._boxes.put(_Parcel("gradients", stage.index - 1, m), gradients)
