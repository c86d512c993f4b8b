"""Runs a schedule: one Python thread a stage walks its list of actions.

An action is one call of a stage function under the stage's device; TensorFlow releases the
interpreter while it computes, so the stages work side by side. What crosses a boundary is a future:
a stage that needs it waits for it. If any action fails, all futures fail with it, every thread
ends, and the step raises one error that names where it happened.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.schedule import Phase, Schedule
from lingpipe.pipeline.stage import Stage


class PipelineError(RuntimeError):
    """A step that failed: no update was applied, and the next step may run.

    The message names stage, cells, device, micro-batch and phase; the cause is chained.
    """


class _Mailboxes:
    """The futures of one step: (stage, micro-batch, phase) -> what that action waits for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[tuple[int, int, Phase], concurrent.futures.Future] = {}
        self.failure: BaseException | None = None

    def _box(self, stage: int, micro_batch: int, phase: Phase) -> concurrent.futures.Future:
        with self._lock:
            future = self._futures.setdefault(
                (stage, micro_batch, phase), concurrent.futures.Future()
            )
            if self.failure is not None and not future.done():
                future.set_exception(self.failure)
            return future

    def put(self, stage: int, micro_batch: int, phase: Phase, value: Any) -> None:
        """Delivers what the given action waits for; after a failure, nothing."""
        future = self._box(stage, micro_batch, phase)
        with self._lock:
            if not future.done():
                future.set_result(value)

    def take(self, stage: int, micro_batch: int, phase: Phase) -> Any:
        """Waits for it and forgets it, so that its memory is free once the action is done."""
        value = self._box(stage, micro_batch, phase).result()
        with self._lock:
            self._futures.pop((stage, micro_batch, phase), None)
        return value

    def fail(self, failure: BaseException) -> None:
        """Wakes every waiting thread with the failure."""
        with self._lock:
            if self.failure is None:
                self.failure = failure
            for future in self._futures.values():
                if not future.done():
                    future.set_exception(self.failure)


@contextlib.contextmanager
def _named(stage: Stage, micro_batch: int, phase: Phase, boxes: _Mailboxes) -> Iterator[None]:
    """Turns a failure inside into a `PipelineError` that says where, and wakes the others."""
    try:
        yield
    except BaseException as error:
        if boxes.failure is None:
            names = list(stage.cells)
            failure: BaseException = error
            if isinstance(error, Exception):
                failure = PipelineError(
                    f"Stage {stage.index} (cells {names[0]} .. {names[-1]}, device "
                    f"{stage.device}) failed in the {phase.name} pass of micro-batch "
                    f"{micro_batch}: {type(error).__name__}: {error}"
                )
                failure.__cause__ = error
            boxes.fail(failure)
        raise


class Executor:
    """Threads that run the stages of one pipeline, kept from step to step."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        """Starts no thread yet; each starts with the first step.

        Args:
          stages: the stages, in order.
        """
        self._stages = list(stages)
        self._pool = concurrent.futures.ThreadPoolExecutor(
            len(self._stages), thread_name_prefix="stage"
        )

    def train(
        self, schedule: Schedule, micro_batches: Sequence[MicroBatch], step: int
    ) -> list[dict[str, tf.Tensor]]:
        """Runs forward and backward of every micro-batch.

        Returns:
          what the last cell returned, for each micro-batch.

        Raises:
          PipelineError: an action failed; accumulators hold part of the gradients.
        """
        results: dict[int, dict[str, tf.Tensor]] = {}

        def walk(stage: Stage, boxes: _Mailboxes) -> None:
            kept: dict[int, list] = {}
            for action in schedule.actions[stage.index]:
                m = action.micro_batch
                with _named(stage, m, action.phase, boxes):
                    if action.phase is Phase.forward:
                        inputs = boxes.take(stage.index, m, Phase.forward) if stage.index else ()
                        outputs, kept[m] = stage.forward(inputs, micro_batches[m], step)
                        if stage.is_last:
                            results[m] = outputs
                        else:
                            boxes.put(stage.index + 1, m, Phase.forward, outputs)
                    else:
                        if stage.is_last:
                            gradients = [tf.ones_like(results[m]["loss"])]
                        else:
                            gradients = boxes.take(stage.index, m, Phase.backward)
                        gradients = stage.backward(kept.pop(m), gradients)
                        if stage.index:
                            boxes.put(stage.index - 1, m, Phase.backward, gradients)

        self._run(walk)
        return [results[m] for m in range(len(micro_batches))]

    def evaluate(self, micro_batches: Sequence[MicroBatch], step: int) -> list[Any]:
        """Runs every micro-batch forward without dropout and returns the last stage's outputs.

        Raises:
          PipelineError: an action failed.
        """
        results: dict[int, Any] = {}

        def walk(stage: Stage, boxes: _Mailboxes) -> None:
            for m, micro_batch in enumerate(micro_batches):
                with _named(stage, m, Phase.forward, boxes):
                    inputs = boxes.take(stage.index, m, Phase.forward) if stage.index else ()
                    outputs = stage.evaluate(inputs, micro_batch, step)
                    if stage.is_last:
                        results[m] = outputs
                    else:
                        boxes.put(stage.index + 1, m, Phase.forward, outputs)

        self._run(walk)
        return [results[m] for m in range(len(micro_batches))]

    def each(self, function: Callable[[Stage], None]) -> None:
        """Calls `function` for every stage, each on its own thread, and waits for all."""
        futures = [self._pool.submit(function, stage) for stage in self._stages]
        for future in futures:
            future.result()

    def _run(self, walk: Callable[[Stage, _Mailboxes], None]) -> None:
        """Lets every stage walk its list; raises the first failure once all threads have ended."""
        boxes = _Mailboxes()
        futures = [self._pool.submit(walk, stage, boxes) for stage in self._stages]
        try:
            for future in futures:
                future.exception()
        except BaseException as interruption:
            boxes.fail(interruption)
            concurrent.futures.wait(futures)
            raise
        if boxes.failure is not None:
            raise boxes.failure

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()
