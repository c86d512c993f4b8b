"""The trainer: steps, metrics, evaluation on dev, checkpoints, and going on where it stopped.

The same command starts a run and resumes it. A run that is stopped and resumed gives, bit for bit,
the weights of one that was not: weights, slots and step come from the checkpoint, the data from its
cursor, and every random choice is a function of the seed and the step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from lingpipe.base.atomic_file import write_atomically
from lingpipe.errors import UserError
from lingpipe.input.batch import Batch, Cursor
from lingpipe.input.input import Input
from lingpipe.input.prefetch import Prefetcher
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.plan import format_plan
from lingpipe.pipeline.residuals import residuals_in_words
from lingpipe.pipeline.step_result import StepResult
from lingpipe.runtime.checkpoint import CheckpointStore
from lingpipe.runtime.interruption import Interruption
from lingpipe.runtime.json_rows import read_rows
from lingpipe.runtime.measured_costs import measured_costs
from lingpipe.runtime.parts import build_pipeline, build_task, check_pipeline
from lingpipe.runtime.progress import Progress
from lingpipe.runtime.run_directory import RunDirectory
from lingpipe.runtime.summaries import MetricsLog
from lingpipe.task.experiment import Experiment, TrainParams
from lingpipe.task.task import Task

_logger = logging.getLogger(__name__)


class TrainError(UserError):
    """A run that cannot be trained as its params ask."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
      step: the last step done.
      is_complete: False if a signal ended it before its last step, or the evaluation after that.
    """

    step: int
    is_complete: bool


def train(experiment: Experiment.Params, logdir: str | Path) -> Outcome:
    """Trains to `train.max_steps`, from the last checkpoint in `logdir` if there is one.

    Whatever is wrong with the params, the devices, the text to train on or the folder is found
    before anything is written; what does not fit the checkpoint, before the params of the run
    change. That there is no dev split is found when the vocabulary is there.

    Raises:
      UserError: params, corpus, devices or folder cannot be used.
      PipelineError, NonFiniteError: a step failed; the last checkpoint is intact.
    """
    run = RunDirectory(logdir)
    with run.locked():
        run.check_params(experiment)
        run.check_vocabulary(experiment)
        check_pipeline(experiment)
        data = experiment.input.build(vocab_dir=run.vocabulary, seed=experiment.train.seed)
        if not run.has_checkpoints():
            # With the vocabulary, so that no run with other params can take it for its own.
            run.write_params(experiment)
        check_evaluation(experiment.train, data)
        task = build_task(experiment)
        cell_seconds = measured_costs(experiment, task, run.costs_file)
        with contextlib.closing(build_pipeline(experiment, task, cell_seconds)) as pipeline:
            trainer = Trainer(experiment.train, run, task, data, pipeline)
            run.write_params(experiment)  # What was restored fits them.
            write_atomically(run.plan_file, _table_of_stages(pipeline).encode())
            with Interruption() as interruption:
                return trainer.run(interruption)


def check_evaluation(params: TrainParams, data: Input) -> None:
    """Finds at the start, not after hours, that there is nothing to evaluate on.

    Raises:
      TrainError: there is no dev split and evaluation is asked for.
    """
    if not params.evaluate_every_steps:
        return
    try:
        next(data.evaluation_batches("dev"), None)
    except UserError as error:
        raise TrainError(
            f"{error} The run evaluates on dev every {params.evaluate_every_steps} steps; set "
            "train.evaluate_every_steps=0 to train without."
        ) from error


def _table_of_stages(pipeline: Pipeline) -> str:
    return format_plan(pipeline.plan, pipeline.devices_by_stage())


class Trainer:
    """One run in progress."""

    def __init__(
        self,
        params: TrainParams,
        run: RunDirectory,
        task: Task,
        data: Input,
        pipeline: Pipeline,
    ) -> None:
        """Restores the last checkpoint, if there is one.

        Raises:
          CheckpointError: there are checkpoints, but they cannot be used.
        """
        self._params = params
        self._run = run
        self._task = task
        self._data = data
        self._pipeline = pipeline
        self._store = CheckpointStore(run.checkpoints, keep_last=params.keep_last_checkpoints)
        self._cursor = Cursor()
        self._is_evaluated = True
        if self._store.latest() is not None:
            saved = self._store.restore_into("last", checkpoint_tensors(pipeline))
            pipeline.step = saved.step
            pipeline.copy_shared_weights()
            pipeline.restore_loss_scale(saved.state.get("loss_scale"))
            self._cursor = Cursor.from_record(saved.state["cursor"])
            self._is_evaluated = saved.metric is not None or _is_scored(run, saved.step)
            if not pipeline.slots and any(name.startswith("slots/") for name in saved.tensors):
                _logger.warning(
                    "The optimiser of this run keeps nothing from step to step: what the one "
                    "before kept in the checkpoint of step %d is not used, and will not be saved.",
                    saved.step,
                )

    def run(self, interruption: Interruption) -> Outcome:
        """Trains until the last step or a signal, whichever comes first."""
        start, last = self._pipeline.step, self._params.max_steps
        progress = Progress(start, last, stream=sys.stderr)
        progress.note(_table_of_stages(self._pipeline))
        progress.note(self._data.describe(last))
        if start:
            progress.note(f"Going on from step {start} in {self._run.path}.")
        if start >= last:
            progress.note(f"The run has done its {last} steps; raise train.max_steps to go on.")
        with MetricsLog(self._run.path, resume_step=start) as log, progress:
            if not self._is_evaluated and self._is_evaluation_due(start):
                # The run was stopped after it had saved, before it had evaluated.
                self._evaluate(log, progress, interruption)
            with Prefetcher(self._remaining_batches(last - start)) as batches:
                for timed in _timed_steps(self._pipeline, batches):
                    if timed.result.step == start + 1:
                        self._show_residuals(progress)
                    self._after_step(timed, log, progress, interruption)
                    if interruption.name:
                        break
        step = self._pipeline.step
        if interruption.name and step not in self._store.steps():
            self._save()  # The signal came while the step's evaluation ran.
        is_scored = self._is_evaluated or not self._is_evaluation_due(step)
        is_complete = step >= last and is_scored
        if not is_complete:
            progress.note(
                f"{interruption.name}: saved at step {step}. The same command goes on from there."
            )
        return Outcome(step, is_complete)

    def _show_residuals(self, progress: Progress) -> None:
        """Says what the stages keep, where that was chosen when they were traced."""
        stages = self._pipeline.stages
        chosen = {stage.index: stage.residuals for stage in stages if stage.residuals}
        if chosen:
            words = residuals_in_words(chosen)
            progress.note(words)
            table = _table_of_stages(self._pipeline)
            write_atomically(self._run.plan_file, (table + words).encode())

    def _remaining_batches(self, count: int) -> Iterator[Batch]:
        batches = self._data.train_batches(self._cursor)
        for _ in range(count):
            yield next(batches)

    def _after_step(
        self, timed: _TimedStep, log: MetricsLog, progress: Progress, interruption: Interruption
    ) -> None:
        """Logs, saves and evaluates, as far as they are due.

        Saving comes first: whoever sends a signal may not wait for an evaluation to end.
        """
        step, metrics = timed.result.step, self._task.metrics(timed.result.sums)
        self._cursor = timed.batch.next_cursor
        progress.advance(step, metrics["loss"])
        scale = self._pipeline.loss_scale
        if timed.result.is_skipped and scale:
            progress.note(_overflow_in_words(timed.result, scale.scale))
        if self._is_due(step, self._params.log_every_steps):
            log.log_training(step, _training_row(metrics, timed, is_scaled=scale is not None))
        saves = self._is_due(step, self._params.checkpoint_every_steps)
        if saves or interruption.name:
            self._save()
        if self._is_evaluation_due(step):
            self._evaluate(log, progress, interruption)

    def _save(self) -> None:
        """Saves all that the run needs to go on from the step just done."""
        state: dict[str, Any] = {"cursor": self._cursor.to_record()}
        if self._pipeline.loss_scale:
            state["loss_scale"] = self._pipeline.loss_scale.to_record()
        self._store.save(self._pipeline.step, checkpoint_tensors(self._pipeline), state)

    def _is_due(self, step: int, every: int) -> bool:
        """Whether something that is done every so many steps, and at the end, is due."""
        return step == self._params.max_steps or (every > 0 and step % every == 0)

    def _is_evaluation_due(self, step: int) -> bool:
        every = self._params.evaluate_every_steps
        return every > 0 and self._is_due(step, every)

    def _evaluate(self, log: MetricsLog, progress: Progress, interruption: Interruption) -> None:
        """Scores the dev split by the pipeline's forward pass, unless a signal comes meanwhile."""
        self._is_evaluated = False
        totals: dict[str, float] = {}
        for batch in self._data.evaluation_batches("dev"):
            if interruption.name:
                return
            for name, value in self._pipeline.evaluate_step(batch.arrays).items():
                totals[name] = totals.get(name, 0.0) + value
        dev, step = self._task.metrics(totals), self._pipeline.step
        log.log_evaluation(step, {"split": "dev", **dev})
        self._is_evaluated = True
        progress.note(f"step {step}: dev " + _in_words(dev))
        if step in self._store.steps():
            self._store.set_metric(step, dev["loss"])


@dataclasses.dataclass(frozen=True)
class _TimedStep:
    """A step done, its batch, and how long it took with the wait for the batch."""

    result: StepResult
    batch: Batch
    seconds: float


def _timed_steps(pipeline: Pipeline, batches: Iterable[Batch]) -> Iterator[_TimedStep]:
    """Trains on each batch; evaluation and saving between two steps are not timed."""
    iterator = iter(batches)
    while True:
        start = time.perf_counter()
        batch = next(iterator, None)
        if batch is None:
            return
        result = pipeline.train_step(batch.arrays)
        yield _TimedStep(result, batch, time.perf_counter() - start)


def checkpoint_tensors(pipeline: Pipeline) -> dict[str, tf.Variable]:
    """Name in the checkpoint -> variable, for every weight and optimiser slot."""
    weights = {f"weights/{path}": variable for path, variable in pipeline.weights.items()}
    return {**weights, **{f"slots/{path}": slot for path, slot in pipeline.slots.items()}}


def _training_row(
    metrics: dict[str, float], timed: _TimedStep, *, is_scaled: bool
) -> dict[str, float]:
    """One line of metrics.jsonl; with the loss scale where one is used."""
    return {
        **metrics,
        "grad_norm": timed.result.grad_norm,
        "learning_rate": timed.result.learning_rate,
        **({"loss_scale": timed.result.loss_scale} if is_scaled else {}),
        "tokens_per_second": timed.batch.tokens / timed.seconds,
        "examples_per_second": timed.batch.size / timed.seconds,
        "step_seconds": timed.seconds,
    }


def _overflow_in_words(result: StepResult, scale: float) -> str:
    """What is told of a skipped step; `scale` is the loss scale of the next one."""
    return (
        f"step {result.step}: the gradient overflowed float16, no weight was moved; the loss scale "
        f"falls from {result.loss_scale:,.12g} to {scale:,.12g}."
    )


def _is_scored(run: RunDirectory, step: int) -> bool:
    """Whether the dev split was evaluated at a step; a NaN has no place among the metrics."""
    rows = read_rows(run.evaluations_file)
    return any(row["step"] == step and row.get("split") == "dev" and "loss" in row for row in rows)


def _in_words(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
