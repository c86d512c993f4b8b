"""Records one training step of an experiment on its devices, and writes what it looks like.

The step is one like those of a run: the experiment's pipeline, on a batch of its training input,
with a vocabulary made in a temporary folder. Nothing of a run directory is read or written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from lingpipe.base.atomic_file import atomic_output, check_can_be_written
from lingpipe.errors import UserError
from lingpipe.input.batch import Batch, Cursor
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.plan import format_plan
from lingpipe.pipeline.recompute_share import measure_recompute_shares
from lingpipe.pipeline.recorder import Recording
from lingpipe.pipeline.schedules import make_schedule
from lingpipe.pipeline.timeline import (
    RecordedStep,
    Split,
    chrome_trace,
    format_split,
    split_step,
)
from lingpipe.runtime.measured_costs import measured_costs
from lingpipe.runtime.parts import build_pipeline, build_task, check_pipeline
from lingpipe.runtime.progress import Progress
from lingpipe.task.experiment import Experiment
from lingpipe.task.task import Task

PICTURE, TRACE = ".png", ".json"

# Steps before those that count, and of these: recorded ones and others, by turns.
_WARM_UPS = 3
_RECORDED = 5


class TimelineError(UserError):
    """An output of a kind that a timeline is not written as."""


@dataclasses.dataclass(frozen=True)
class Timeline:
    """A step and where its time went.

    Attributes:
      title: what was run, in a line.
      step: the recorded step.
      split: its parts.
      unrecorded_seconds: median time of steps that were not recorded, in between.
    """

    title: str
    step: RecordedStep
    split: Split
    unrecorded_seconds: float

    def to_text(self) -> str:
        """The split as a table, under a line that tells of the step."""
        return (
            f"{self.title}\nOne step, the median of {_RECORDED} recorded ones; one that is not "
            f"recorded takes {self.unrecorded_seconds:.4f} s.\n\n{format_split(self.split)}"
        )


def write_timeline(experiment: Experiment.Params, name: str, outputs: Sequence[Path]) -> Timeline:
    """Records a step and writes it to every output.

    Args:
      experiment: what to run.
      name: what to call it.
      outputs: files that end in .png or .json.

    Raises:
      TimelineError, WriteError: an output is neither, or cannot be written; before anything is run.
      UserError: params, corpus or devices cannot be used.
      PipelineError, NonFiniteError: a step failed.
    """
    check_outputs(outputs)
    timeline = record_timeline(experiment, name)
    for path in outputs:
        with atomic_output(path) as output:
            output.write(_content(timeline, path.suffix.lower()))
    return timeline


def check_outputs(outputs: Sequence[Path]) -> None:
    """Finds out before minutes of work that an output cannot be written.

    Raises:
      TimelineError: its name ends neither in .png nor in .json.
      WriteError: its folder is not there or takes no file, or there is a folder of that name.
    """
    for path in outputs:
        if path.suffix.lower() not in (PICTURE, TRACE):
            raise TimelineError(
                f"--output={path} must end in {PICTURE} for a picture, or in {TRACE} for "
                "chrome://tracing and Perfetto."
            )
        check_can_be_written(path)


def record_timeline(experiment: Experiment.Params, name: str) -> Timeline:
    """Records a step of an experiment; arguments and errors as in `write_timeline`."""
    check_pipeline(experiment)
    batch = _first_batch(experiment)
    task = build_task(experiment)
    note = Progress(0, 0, stream=sys.stderr).note
    cell_seconds = measured_costs(experiment, task)
    with contextlib.closing(build_pipeline(experiment, task, cell_seconds)) as pipeline:
        note(format_plan(pipeline.plan, pipeline.devices_by_stage()))
        for _ in range(_WARM_UPS):
            pipeline.train_step(batch.arrays)
        recordings, others = _by_turns(pipeline, batch)
        recordings.sort(key=lambda recording: recording.step.seconds)
        median = recordings[len(recordings) // 2]
        shares = _recompute_shares(experiment, task, pipeline, median)
    title = f"{name}: {_in_words(experiment, median.step, batch)}"
    split = split_step(median.step, shares)
    return Timeline(title, median.step, split, statistics.median(others))


def _in_words(experiment: Experiment.Params, step: RecordedStep, batch: Batch) -> str:
    """What was run; a batch of few examples makes fewer micro-batches than the params ask for."""
    params = experiment.pipeline
    count = len({span.micro_batch for span in step.spans} - {None})
    replicas = f", replicas {params.num_replicas}" if params.num_replicas > 1 else ""
    return (
        f"stages {params.num_stages}{replicas}, devices {len(step.devices)}, micro-batches {count} "
        f"({batch.size} examples in all), schedule {params.schedule.value}, "
        f"remat {params.remat.value}"
    )


def _by_turns(pipeline: Pipeline, batch: Batch) -> tuple[list[Recording], list[float]]:
    """Recorded steps, and the seconds of steps in between that are not."""
    recordings, others = [], []
    for _ in range(_RECORDED):
        start = time.perf_counter()
        pipeline.train_step(batch.arrays)
        others.append(time.perf_counter() - start)
        recordings.append(pipeline.record_step(batch.arrays)[1])
    return recordings, others


def _recompute_shares(
    experiment: Experiment.Params, task: Task, pipeline: Pipeline, recording: Recording
) -> list[float]:
    """See `measure_recompute_shares`."""
    params = experiment.pipeline
    return measure_recompute_shares(
        pipeline.stages,
        recording.calls,
        make_schedule(
            params.schedule, params.num_stages, params.num_micro_batches, params.stages_per_device
        ),
        params.keeping(),
        compute_dtype=experiment.train.dtype.tensorflow,
        signature=task.signature(),
        micro_batch=task.micro_batch(params.num_slices()),
    )


def _first_batch(experiment: Experiment.Params) -> Batch:
    """The first training batch."""
    with tempfile.TemporaryDirectory(prefix="lingpipe-") as folder:
        data = experiment.input.build(vocab_dir=Path(folder), seed=experiment.train.seed)
        return next(data.train_batches(Cursor()))


def _content(timeline: Timeline, suffix: str) -> bytes:
    """The file of a kind."""
    if suffix == TRACE:
        return json.dumps(chrome_trace(timeline.step, timeline.split)).encode()
    # Matplotlib takes a second to import.
    from lingpipe.runtime.timeline_picture import draw_timeline

    return draw_timeline(timeline.step, timeline.split, timeline.title)
