"""Runs a schedule: one Python thread a stage walks its list of actions.

An action is one call of a stage function under the stage's device; TensorFlow releases the
interpreter while it computes, so the stages work side by side. What crosses a boundary goes into
the mailbox of the stage that needs it, and that stage waits for it. If any action fails, every
thread is woken and leaves the step, and the step raises one error that names where it happened.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from lingpipe.pipeline.errors import naming
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.schedule import Action, Phase, Schedule
from lingpipe.pipeline.stage import Stage

Result = TypeVar("Result")


class Executor:
    """Threads that run the stages of one pipeline, kept from step to step."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        """Starts no thread yet; each starts with the first step.

        Args:
          stages: the stages, in order.
        """
        self._stages = list(stages)
        # A pool of one thread for each stage, never one pool for all: stages wait for each other,
        # so none may ever find its thread taken by another.
        self._pools = [
            concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=f"stage_{stage.index}")
            for stage in self._stages
        ]

    def train(
        self, schedule: Schedule, micro_batches: Sequence[MicroBatch], step: int
    ) -> list[Mapping[str, tf.Tensor]]:
        """Runs forward and backward of every micro-batch.

        Args:
          schedule: a valid schedule of as many stages and micro-batches.
          micro_batches: the slices of the mini-batch, in order.
          step: number of the step.

        Returns:
          what the last cell returned, for each micro-batch.

        Raises:
          PipelineError: an action failed; accumulators hold part of the gradients.
        """
        results: dict[int, Mapping[str, tf.Tensor]] = {}

        def walk(stage: Stage, boxes: _Mailboxes) -> None:
            walker = _Walk(stage, boxes, micro_batches, step, results, training=True)
            walker.walk(schedule.actions[stage.index])

        self._run(walk)
        return [results[m] for m in range(len(micro_batches))]

    def evaluate(
        self, micro_batches: Sequence[MicroBatch], step: int
    ) -> list[Mapping[str, tf.Tensor]]:
        """Runs every micro-batch forward without dropout; returns what the last cell returned.

        Raises:
          PipelineError: an action failed.
        """
        results: dict[int, Mapping[str, tf.Tensor]] = {}

        def walk(stage: Stage, boxes: _Mailboxes) -> None:
            walker = _Walk(stage, boxes, micro_batches, step, results, training=False)
            walker.walk(Action(Phase.forward, m) for m in range(len(micro_batches)))

        self._run(walk)
        return [results[m] for m in range(len(micro_batches))]

    def each(self, function: Callable[[Stage], Result], doing: str) -> list[Result]:
        """Calls `function` for every stage, each on its own thread, and waits for all of them.

        It waits for all in every case, also after a failure or an interruption, so that nothing
        still runs when it is over.

        Args:
          function: what to do with a stage.
          doing: what that is, for the message of a failure: "update".

        Raises:
          PipelineError: a call failed; of several, that of the first stage.
        """
        futures = self._start(function)
        _wait(futures)
        results = []
        for stage, future in zip(self._stages, futures, strict=True):
            with naming(stage, doing):
                results.append(future.result())
        return results

    def close(self) -> None:
        """Ends the threads; the executor cannot be used afterwards."""
        for pool in self._pools:
            pool.shutdown()

    def _run(self, walk: Callable[[Stage, _Mailboxes], None]) -> None:
        """Lets every stage walk its list; raises the first failure once all threads have ended."""
        boxes = _Mailboxes(len(self._stages))
        futures = self._start(lambda stage: walk(stage, boxes))
        _wait(futures, boxes.fail)
        failure = boxes.take_failure()
        if failure is not None:
            try:
                raise failure
            finally:
                # The failure's traceback holds this frame; without the name there is no circle,
                # and what the failed step held on the devices is free as soon as it is handled.
                del failure

    def _start(self, function: Callable[[Stage], Result]) -> list[concurrent.futures.Future]:
        return [
            pool.submit(function, stage)
            for pool, stage in zip(self._pools, self._stages, strict=True)
        ]


def _wait(
    futures: Sequence[concurrent.futures.Future],
    on_interruption: Callable[[BaseException], None] | None = None,
) -> None:
    """Waits for all; if the wait is interrupted, tells of it and waits for the rest."""
    try:
        concurrent.futures.wait(futures)
    except BaseException as interruption:
        if on_interruption:
            on_interruption(interruption)
        concurrent.futures.wait(futures)
        raise


class _Stopped(BaseException):
    """Tells a thread that the step has failed elsewhere; no failure of its own, hence the base."""


class _Mailboxes:
    """What the stages of one step send each other, or that one of them has failed."""

    def __init__(self, num_stages: int) -> None:
        self._lock = threading.Lock()
        # Each stage's thread waits at its own door.
        self._arrivals = [threading.Condition(self._lock) for _ in range(num_stages)]
        self._values: dict[tuple[int, Action], Any] = {}
        self._failure: BaseException | None = None

    def put(self, stage: int, action: Action, value: Any) -> None:
        """Delivers what an action of a stage waits for.

        Raises:
          _Stopped: the step has failed.
        """
        with self._lock:
            if self._failure is not None:
                raise _Stopped
            self._values[stage, action] = value
            self._arrivals[stage].notify()

    def take(self, stage: int, action: Action) -> Any:
        """Waits for it and forgets it, so that its memory is free once the action is done.

        Raises:
          _Stopped: the step has failed.
        """
        with self._lock:
            while self._failure is None and (stage, action) not in self._values:
                self._arrivals[stage].wait()
            if self._failure is not None:
                raise _Stopped
            return self._values.pop((stage, action))

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
    """One stage's way through its list of actions in one step."""

    def __init__(
        self,
        stage: Stage,
        boxes: _Mailboxes,
        micro_batches: Sequence[MicroBatch],
        step: int,
        results: dict[int, Mapping[str, tf.Tensor]],
        *,
        training: bool,
    ) -> None:
        """Starts nothing; `results` takes what the last cell returns for each micro-batch."""
        self._stage = stage
        self._boxes = boxes
        self._micro_batches = micro_batches
        self._step = step
        self._results = results
        self._training = training
        self._kept: dict[int, list[tf.Tensor]] = {}

    def walk(self, actions: Iterable[Action]) -> None:
        """Takes every action in turn; ends early, without raising, when the step has failed."""
        try:
            for action in actions:
                doing = f"{action.phase.name} pass of micro-batch {action.micro_batch}"
                with naming(self._stage, doing):
                    # What these calls name dies with them; a tensor named here would stay alive
                    # while the stage waits for its next one.
                    if action.phase is Phase.forward:
                        self._forward(action)
                    else:
                        self._backward(action)
        except _Stopped:
            pass
        except BaseException as failure:
            self._boxes.fail(failure)
        finally:
            self._kept.clear()

    def _forward(self, action: Action) -> None:
        stage, m = self._stage, action.micro_batch
        inputs = self._boxes.take(stage.index, action) if stage.index else ()
        if self._training:
            outputs, self._kept[m] = stage.forward(inputs, self._micro_batches[m], self._step)
        else:
            outputs = stage.evaluate(inputs, self._micro_batches[m], self._step)
        if stage.is_last:
            self._results[m] = outputs
        else:
            self._boxes.put(stage.index + 1, action, outputs)

    def _backward(self, action: Action) -> None:
        stage, m = self._stage, action.micro_batch
        if stage.is_last:
            gradients = [tf.ones_like(self._results[m]["loss"])]
        else:
            gradients = self._boxes.take(stage.index, action)
        gradients = stage.backward(self._kept.pop(m), gradients)
        if stage.index:
            self._boxes.put(stage.index - 1, action, gradients)
