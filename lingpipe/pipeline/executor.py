"""Runs a schedule: one Python thread a device walks its row of actions, in each replica.

An action is one call of a stage function under the device; TensorFlow releases the interpreter
while it computes, so the devices work side by side. What one stage has for another is sent to it
straight (see routes.py), and the thread of that stage's device waits for it. If any action fails,
every thread is woken and leaves the step, and the step raises one error that names where it was.

Nothing can wait for ever. A schedule is valid if it runs when each F waits for the F of the stage
before, and each B for that of the stage after, of the same micro-batch. A leaf may come from a
stage further up, and a gradient from one further down; their actions lie earlier on the same
chains, so that they have run whenever the nearer one has. Where nothing goes, nobody waits.
Replicas do not wait for each other; a failure in one ends the step of all.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from lingpipe.cluster.placement import device_number
from lingpipe.pipeline.errors import naming
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.mailboxes import Mailboxes, Parcel, Stopped
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.recorder import StepRecorder
from lingpipe.pipeline.routes import Goods, StageRoutes
from lingpipe.pipeline.schedule import Action, Phase, Schedule
from lingpipe.pipeline.stage import Stage

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Share:
    """What a replica does in a step.

    Attributes:
      schedule: a valid schedule of its stages and of as many micro-batches.
      micro_batches: its part of the mini-batch, in order.
    """

    schedule: Schedule
    micro_batches: Sequence[MicroBatch]


class Executor:
    """Threads that run the stages of one pipeline, kept from step to step."""

    def __init__(
        self,
        replicas: Sequence[Sequence[Stage]],
        placement: Sequence[int],
        poisons_bubbles: bool = False,
    ) -> None:
        """Starts no thread yet; each starts with the first step.

        Args:
          replicas: the stages of each replica, in order.
          placement: for each stage the number of its device within its replica, as in
            `Schedule.placement`.
          poisons_bubbles: True to let a device that would idle in a training step compute on NaN.
        """
        self._poisons_bubbles = poisons_bubbles
        self._replicas = [list(stages) for stages in replicas]
        self._placement = list(placement)
        num_devices = max(self._placement) + 1
        # A pool of one thread for each device, never one pool for all: devices wait for each other,
        # so none may ever find its thread taken by another.
        self._pools = [
            [
                concurrent.futures.ThreadPoolExecutor(
                    1, thread_name_prefix=f"device_{device_number(replica, device, num_devices)}"
                )
                for device in range(num_devices)
            ]
            for replica in range(len(self._replicas))
        ]
        # Hands out the work. Only the main thread is interrupted, so that none of this thread's
        # calls reaches some devices and others not.
        self._coordinator = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="pipeline")
        self._recorder: StepRecorder | None = None

    def train(
        self,
        shares: Sequence[Share],
        routes: Sequence[StageRoutes],
        step: int,
        loss_scale: float = 1.0,
    ) -> list[Mapping[str, tf.Tensor]]:
        """Runs forward and backward of every micro-batch.

        Args:
          shares: what each replica does; those that have nothing to do may be left out at the end.
          routes: what each stage sends and receives.
          step: number of the step.
          loss_scale: the gradient of the loss that the backward pass starts from.

        Returns:
          what the last cell returned, for each micro-batch of the mini-batch.

        Raises:
          PipelineError: an action failed; accumulators hold part of the gradients.
        """
        works = [
            _Work(stages, routes, share.micro_batches, step, loss_scale=loss_scale)
            for stages, share in zip(self._replicas, shares, strict=False)
        ]
        rows = [
            s.schedule.rows_with_bubbles() if self._poisons_bubbles else s.schedule.rows
            for s in shares
        ]
        return self._run(works, rows)

    def infer(
        self,
        inference: Inference,
        shares: Sequence[Share],
        routes: Sequence[StageRoutes],
        step: int,
    ) -> list[Any]:
        """Runs the schedules' forward passes, without dropout; arguments as in `train`.

        Returns:
          what the last cell that takes part returned, for each micro-batch.

        Raises:
          PipelineError: an action failed.
        """
        works = [
            _Work(stages, routes, share.micro_batches, step, inference)
            for stages, share in zip(self._replicas, shares, strict=False)
        ]
        forwards = [
            [[a for a in row if a.phase is Phase.forward] for row in share.schedule.rows]
            for share in shares
        ]
        return self._run(works, forwards)

    def each(self, function: Callable[[Stage], Result], doing: str) -> list[Result]:
        """Calls `function` for every stage of every replica, each on the thread of its device.

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
                pools[device].submit(function, stage)
                for stages, pools in zip(self._replicas, self._pools, strict=True)
                for stage, device in zip(stages, self._placement, strict=True)
            ]
        )
        results = []
        for stage, future in zip(itertools.chain(*self._replicas), futures, strict=True):
            with naming(stage, doing):
                results.append(future.result())
        return results

    @contextlib.contextmanager
    def recorded_by(self, recorder: StepRecorder) -> Iterator[None]:
        """Lets a recorder note what the devices do until the block ends."""
        replicas = self._replicas
        self._replicas = [[recorder.watch_stage(stage) for stage in stages] for stages in replicas]
        self._recorder = recorder
        try:
            yield
        finally:
            self._replicas, self._recorder = replicas, None

    def close(self) -> None:
        """Ends the threads; the executor cannot be used afterwards."""
        for pool in (self._coordinator, *itertools.chain(*self._pools)):
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
        self, works: Sequence[_Work], rows: Sequence[Sequence[Sequence[Action | None]]]
    ) -> list[Any]:
        """Lets every device walk its row; raises the first failure once all threads have ended.

        Args:
          works: what each replica works on.
          rows: for each replica the row of each of its devices.
        """
        boxes = [Mailboxes(self._placement) for _ in works]

        def fail(failure: BaseException) -> None:
            for each in boxes:
                each.fail(failure)

        self._together(
            lambda: [
                pool.submit(_Walk(work, own_boxes, fail).walk, row)
                for work, own_boxes, own_rows, pools in zip(
                    works, boxes, rows, self._pools, strict=False
                )
                for row, pool in zip(own_rows, pools, strict=True)
            ],
            fail,
        )
        # All replicas have one, if any has; the first one's is that which came first.
        failure = boxes[0].take_failure()
        boxes.clear()
        if failure is not None:
            try:
                raise failure
            finally:
                # The failure's traceback holds this frame; without the name there is no circle,
                # and what the failed step held on the devices is free as soon as it is handled.
                del failure
        return [work.results[m] for work in works for m in range(len(work.micro_batches))]


@dataclasses.dataclass
class _Work:
    """What the devices of one replica do together in a step.

    Attributes:
      stages: the replica's.
      routes: what each of them sends and receives.
      micro_batches: those that go through them.
      step: number of the step.
      inference: None is training.
      loss_scale: the gradient of the loss.
      results: takes what the last cell returns for each micro-batch.
    """

    stages: Sequence[Stage]
    routes: Sequence[StageRoutes]
    micro_batches: Sequence[MicroBatch]
    step: int
    inference: Inference | None = None
    loss_scale: float = 1.0
    results: dict[int, Any] = dataclasses.field(default_factory=dict)


class _Walk:
    """One device's way through its row of actions in one step."""

    def __init__(
        self, work: _Work, boxes: Mailboxes, fail: Callable[[BaseException], None]
    ) -> None:
        """Starts nothing.

        Args:
          work: what its replica does.
          boxes: what the stages of its replica send each other.
          fail: ends the step of all devices.
        """
        self._work = work
        self._boxes = boxes
        self._fail = fail
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
        stages = [self._work.stages[index] for index in own]
        try:
            if self._work.inference is None:
                for stage in stages:
                    with naming(stage, "casts of its weights"):
                        stage.start_step()
            for action in row:
                if action is None:
                    with naming(stages[0], "computation on NaN in a bubble"):
                        stages[0].run_on_nan()
                    continue
                stage, m = self._work.stages[action.stage], action.micro_batch
                with naming(stage, f"{action.phase.name} pass of micro-batch {m}"):
                    # What these calls name dies with them; a tensor named here would stay alive
                    # while the device waits for its next one.
                    phases[action.phase](stage, m)
        except Stopped:
            pass
        except BaseException as failure:
            self._fail(failure)
        finally:
            self._kept.clear()
            for stage in stages:
                stage.end_step()

    def _forward(self, stage: Stage, m: int) -> None:
        work = self._work
        routes, micro_batch = work.routes[stage.index], work.micro_batches[m]
        leaves: list[Any] = [None] * routes.num_inputs
        for sender, numbers in routes.inputs:
            parcel = self._boxes.take(Parcel("inputs", sender, stage.index, m))
            for number, leaf in zip(numbers, parcel, strict=True):
                leaves[number] = leaf
        if work.inference is None:
            made, kept = stage.forward(leaves, micro_batch, work.step)
            self._kept[stage.index, m] = kept
        else:
            made = stage.infer(work.inference, leaves, micro_batch, work.step)
        if stage.is_last:
            work.results[m] = stage.interfaces[work.inference].packed(made)
        self._send("inputs", stage, m, routes.outputs, made)

    def _backward(self, stage: Stage, m: int) -> None:
        gradients = stage.backward(self._kept.pop((stage.index, m)), self._given(stage, m))
        self._send("gradients", stage, m, self._work.routes[stage.index].input_gradients, gradients)

    def _backward_input(self, stage: Stage, m: int) -> None:
        key = stage.index, m
        gradients, kept = stage.backward_input(self._kept.pop(key), self._given(stage, m))
        self._kept[key] = kept
        self._send("gradients", stage, m, self._work.routes[stage.index].input_gradients, gradients)

    def _backward_weight(self, stage: Stage, m: int) -> None:
        stage.backward_weight(self._kept.pop((stage.index, m)))

    def _given(self, stage: Stage, m: int) -> list[tf.Tensor]:
        """The gradients of the leaves that a stage made.

        Those of several readers are added up in the order of the stages, so that sums do not depend
        on which of them comes first.
        """
        if stage.is_last:
            with tf.device(stage.device):
                dtype = self._work.results[m]["loss"].dtype
                return [tf.constant(self._work.loss_scale, dtype)]
        routes = self._work.routes[stage.index]
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
