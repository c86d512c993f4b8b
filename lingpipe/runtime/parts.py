"""The parts of an experiment, built from its params: task, plan, devices, pipeline."""

from __future__ import annotations

from collections.abc import Mapping

from lingpipe.cluster.devices import stage_devices
from lingpipe.learner.learner import Learner
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.plan import Plan
from lingpipe.pipeline.planning import plan_pipeline
from lingpipe.task.experiment import Experiment
from lingpipe.task.task import Task


def build_task(experiment: Experiment.Params) -> Task:
    """The task, with what its input decides handed down to it."""
    return experiment.task.build(input_params=experiment.input)


def plan_of(experiment: Experiment.Params, cell_seconds: Mapping[str, float] | None = None) -> Plan:
    """The plan of stages, without building a weight.

    Args:
      experiment: the params.
      cell_seconds: what each cell was measured to take, to balance by; None to balance by FLOPs.

    Raises:
      PartitionError: the cells cannot be cut as asked.
    """
    task = build_task(experiment)
    pipeline = experiment.pipeline
    dtype = experiment.train.dtype
    optimizer = experiment.learner.optimizer.build()
    return plan_pipeline(
        pipeline,
        task.cells(),
        task.micro_batch(pipeline.num_slices()),
        num_slots=len(optimizer.slot_names),
        compute_dtype=dtype.value,
        compute_bytes=dtype.tensorflow.size,
        cell_seconds=cell_seconds,
    )


def check_pipeline(experiment: Experiment.Params) -> None:
    """Raises what `build_pipeline` would, at once: before a weight is built or anything written.

    Raises:
      UserError: too few devices or cells for the stages.
    """
    _learner(experiment)
    plan_of(experiment)
    stage_devices(experiment.pipeline.num_devices(), experiment.cluster.device_type)


def build_pipeline(
    experiment: Experiment.Params, task: Task, cell_seconds: Mapping[str, float] | None = None
) -> Pipeline:
    """The pipeline on the devices of this process.

    Args:
      experiment: the params.
      task: what `build_task` made of them.
      cell_seconds: as in `plan_of`.

    Raises:
      UserError: too few devices or cells for the stages.
    """
    params = experiment.pipeline
    return params.build(
        cells=task.cells(),
        learner=_learner(experiment),
        devices=stage_devices(params.num_devices(), experiment.cluster.device_type),
        micro_batch=task.micro_batch(params.num_slices()),
        seed=experiment.train.seed,
        compute_dtype=experiment.train.dtype.tensorflow,
        signature=task.signature(),
        cell_seconds=cell_seconds,
    )


def _learner(experiment: Experiment.Params) -> Learner:
    """The learner, its schedule fitted to the length of the run."""
    params = experiment.learner
    schedule = params.schedule.for_run(experiment.train.max_steps)
    return params.copy(schedule=schedule).build()
