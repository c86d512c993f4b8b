"""Runs a schedule: one Python thread a stage walks its list of actions.

An action is one call of a stage function under the stage's device; TensorFlow releases the
interpreter while it computes, so the stages work side by side. What crosses a boundary goes into
the mailbox of the stage that needs it, and that stage waits for it. If any action fails, every
thread is woken and leaves the step, and the step raises one error that names where it happened.
"""

from __future__ import annotations

import abc
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
            walker = _Training(stage, boxes, micro_batches, step, results)
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
            walker = _Evaluation(stage, boxes, micro_batches, step, results)
            walker.walk([Action(Phase.forward, m) for m in range(len(micro_batches))])

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


class _Stopped(Exception):
    """Tells a thread that the step has failed elsewhere."""


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


class _Walk(abc.ABC):
    """One stage's way through its list of actions in one step."""

    def __init__(
        self,
        stage: Stage,
        boxes: _Mailboxes,
        micro_batches: Sequence[MicroBatch],
        step: int,
        results: dict[int, Mapping[str, tf.Tensor]],
    ) -> None:
        """Starts nothing; `results` takes what the last cell returns for each micro-batch."""
        self.stage = stage
        self.boxes = boxes
        self.micro_batches = micro_batches
        self.step = step
        self.results = results
        self.kept: dict[int, list[tf.Tensor]] = {}

    def walk(self, actions: Iterable[Action]) -> None:
        """Takes every action in turn; ends early, without raising, when the step has failed."""
        try:
            for action in actions:
                phase, m = action.phase, action.micro_batch
                with naming(self.stage, f"{phase.name} pass of micro-batch {m}"):
                    # Locals of these calls die with them; a tensor named here would stay alive
                    # while the stage waits for its next one.
                    if phase is Phase.forward:
                        self._forward(action)
                    else:
                        self._backward(action)
        except _Stopped:
            pass
        except BaseException as failure:
            self.boxes.fail(failure)
        finally:
            self.kept.clear()

    def _forward(self, action: Action) -> None:
        inputs = self.boxes.take(self.stage.index, action) if self.stage.index else ()
        outputs = self._outputs(inputs, action.micro_batch)
        if self.stage.is_last:
            self.results[action.micro_batch] = outputs
        else:
            self.boxes.put(self.stage.index + 1, action, outputs)

    @abc.abstractmethod
    def _outputs(self, inputs: Any, m: int) -> Any:
        """Runs the forward pass of micro-batch `m`."""

    @abc.abstractmethod
    def _backward(self, action: Action) -> None:
        """Runs a backward pass and sends the inputs' gradients to the stage before."""


class _Training(_Walk):
    """Forward and backward."""

    def _outputs(self, inputs: Any, m: int) -> Any:
        outputs, self.kept[m] = self.stage.forward(inputs, self.micro_batches[m], self.step)
        return outputs

    def _backward(self, action: Action) -> None:
        stage, m = self.stage, action.micro_batch
        if stage.is_last:
            gradients = [tf.ones_like(self.results[m]["loss"])]
        else:
            gradients = self.boxes.take(stage.index, action)
        gradients = stage.backward(self.kept.pop(m), gradients)
        if stage.index:
            self.boxes.put(stage.index - 1, action, gradients)


class _Evaluation(_Walk):
    """Forward alone, without dropout."""

    def _outputs(self, inputs: Any, m: int) -> Any:
        return self.stage.evaluate(inputs, self.micro_batches[m], self.step)

    def _backward(self, action: Action) -> None:
        raise ValueError(f"Evaluation has no backward pass, so none of {action}.")
