"""Runs a schedule: one Python thread a device walks its row of actions.

An action is one call of a stage function under the device; TensorFlow releases the interpreter
while it computes, so the devices work side by side. What one stage has for another is sent to it
straight (see routes.py), and the thread of that stage's device waits for it. If any action fails,
every thread is woken and leaves the step, and the step raises one error that names where it was.

Nothing can wait for ever. A schedule is valid if it runs when each F waits for the F of the stage
before, and each B for that of the stage after, of the same micro-batch. A leaf may come from a
stage further up, and a gradient from one further down; their actions lie earlier on the same
chains, so that they have run whenever the nearer one has. Where nothing goes, nobody waits.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from lingpipe.pipeline.errors import naming
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.mailboxes import Mailboxes, Parcel, Stopped
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.recorder import StepRecorder
from lingpipe.pipeline.routes import Goods, StageRoutes
from lingpipe.pipeline.schedule import Action, Phase, Schedule
from lingpipe.pipeline.stage import Stage

Result = TypeVar("Result")


class Executor:
    """Threads that run the stages of one pipeline, kept from step to step."""

    def __init__(
        self, stages: Sequence[Stage], placement: Sequence[int], poisons_bubbles: bool = False
    ) -> None:
        """Starts no thread yet; each starts with the first step.

        Args:
          stages: the stages, in order.
          placement: for each stage the number of its device, as in `Schedule.placement`.
          poisons_bubbles: True to let a device that would idle in a training step compute on NaN.
        """
        self._poisons_bubbles = poisons_bubbles
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
        self,
        schedule: Schedule,
        routes: Sequence[StageRoutes],
        micro_batches: Sequence[MicroBatch],
        step: int,
        loss_scale: float = 1.0,
    ) -> list[Mapping[str, tf.Tensor]]:
        """Runs forward and backward of every micro-batch.

        Args:
          schedule: a valid schedule of these stages on these devices, and of as many micro-batches.
          routes: what each stage sends and receives.
          micro_batches: the slices of the mini-batch, in order.
          step: number of the step.
          loss_scale: the gradient of the loss that the backward pass starts from.

        Returns:
          what the last cell returned, for each micro-batch.

        Raises:
          PipelineError: an action failed; accumulators hold part of the gradients.
        """
        rows = schedule.rows_with_bubbles() if self._poisons_bubbles else schedule.rows
        return self._run(rows, routes, micro_batches, step, loss_scale=loss_scale)

    def infer(
        self,
        inference: Inference,
        schedule: Schedule,
        routes: Sequence[StageRoutes],
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
        return self._run(forwards, routes, micro_batches, step, inference)

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
        rows: Sequence[Sequence[Action | None]],
        routes: Sequence[StageRoutes],
        micro_batches: Sequence[MicroBatch],
        step: int,
        inference: Inference | None = None,
        loss_scale: float = 1.0,
    ) -> list[Any]:
        """Lets every device walk its row; raises the first failure once all threads have ended."""
        boxes = Mailboxes(self._placement)
        results: dict[int, Any] = {}
        walk = functools.partial(
            _Walk, self._stages, routes, boxes, micro_batches, step, results, inference, loss_scale
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


class _Walk:
    """One device's way through its row of actions in one step."""

    def __init__(
        self,
        stages: Sequence[Stage],
        routes: Sequence[StageRoutes],
        boxes: Mailboxes,
        micro_batches: Sequence[MicroBatch],
        step: int,
        results: dict[int, Any],
        inference: Inference | None,
        loss_scale: float,
    ) -> None:
        """Starts nothing; `results` takes what the last cell returns for each micro-batch.

        An `inference` of None is training.
        """
        self._stages = stages
        self._routes = routes
        self._boxes = boxes
        self._micro_batches = micro_batches
        self._step = step
        self._results = results
        self._inference = inference
        self._loss_scale = loss_scale
        # For each stage and micro-batch what its next phase needs of the one before.
        self._kept: dict[tuple[int, int], list[tf.Tensor]] = {}

    def walk(self, row: Sequence[Action | None]) -> None:
        """Takes every action in turn; ends early, without raising, when the step has failed.

        None stands for a time slot to fill with a computation on NaN.
        """
        phases = {
            Phase.forward: self._forward,
            Phase.backward: self._backward,
            Phase.backward_input: self._backward_input,
            Phase.backward_weight: self._backward_weight,
        }
        own = dict.fromkeys(action.stage for action in row if action)
        stages = [self._stages[index] for index in own]
        try:
            if self._inference is None:
                for stage in stages:
                    with naming(stage, "casts of its weights"):
                        stage.start_step()
            for action in row:
                if action is None:
                    with naming(stages[0], "computation on NaN in a bubble"):
                        stages[0].run_on_nan()
                    continue
                stage, m = self._stages[action.stage], action.micro_batch
                with naming(stage, f"{action.phase.name} pass of micro-batch {m}"):
                    # What these calls name dies with them; a tensor named here would stay alive
                    # while the device waits for its next one.
                    phases[action.phase](stage, m)
        except Stopped:
            pass
        except BaseException as failure:
            self._boxes.fail(failure)
        finally:
            self._kept.clear()
            for stage in stages:
                stage.end_step()

    def _forward(self, stage: Stage, m: int) -> None:
        routes, micro_batch = self._routes[stage.index], self._micro_batches[m]
        leaves: list[Any] = [None] * routes.num_inputs
        for sender, numbers in routes.inputs:
            parcel = self._boxes.take(Parcel("inputs", sender, stage.index, m))
            for number, leaf in zip(numbers, parcel, strict=True):
                leaves[number] = leaf
        if self._inference is None:
            made, kept = stage.forward(leaves, micro_batch, self._step)
            self._kept[stage.index, m] = kept
        else:
            made = stage.infer(self._inference, leaves, micro_batch, self._step)
        if stage.is_last:
            self._results[m] = stage.interfaces[self._inference].packed(made)
        self._send("inputs", stage, m, routes.outputs, made)

    def _backward(self, stage: Stage, m: int) -> None:
        gradients = stage.backward(self._kept.pop((stage.index, m)), self._given(stage, m))
        self._send("gradients", stage, m, self._routes[stage.index].input_gradients, gradients)

    def _backward_input(self, stage: Stage, m: int) -> None:
        key = stage.index, m
        gradients, kept = stage.backward_input(self._kept.pop(key), self._given(stage, m))
        self._kept[key] = kept
        self._send("gradients", stage, m, self._routes[stage.index].input_gradients, gradients)

    def _backward_weight(self, stage: Stage, m: int) -> None:
        stage.backward_weight(self._kept.pop((stage.index, m)))

    def _given(self, stage: Stage, m: int) -> list[tf.Tensor]:
        """The gradients of the leaves that a stage made.

        Those of several readers are added up in the order of the stages, so that sums do not depend
        on which of them comes first.
        """
        if stage.is_last:
            with tf.device(stage.device):
                return [tf.constant(self._loss_scale, self._results[m]["loss"].dtype)]
        routes = self._routes[stage.index]
        totals: list[Any] = [None] * routes.num_gradients
        for sender, numbers in routes.gradients:
            parcel = self._boxes.take(Parcel("gradients", sender, stage.index, m))
            for number, gradient in zip(numbers, parcel, strict=True):
                total = totals[number]
                if total is None:
                    totals[number] = gradient
                    continue
                with tf.device(stage.device):
                    totals[number] = total + gradient
        return totals

    def _send(
        self, what: str, stage: Stage, m: int, goods: Sequence[Goods], values: Sequence[tf.Tensor]
    ) -> None:
        """Sends each of the other stages its part of what a stage has computed."""
        for receiver, numbers in goods:
            parcel = [values[number] for number in numbers]
            self._boxes.put(Parcel(what, stage.index, receiver, m), parcel)
