"""From a plan to stages on devices, each with the learner of the weights that it owns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import tensorflow as tf

from lingpipe.base.layer import Layer
from lingpipe.learner.learner import Learner
from lingpipe.pipeline.errors import refusing_lack_of_memory
from lingpipe.pipeline.plan import Plan
from lingpipe.pipeline.rematerialise import Keeping
from lingpipe.pipeline.schedule import Schedule
from lingpipe.pipeline.stage import Stage
from lingpipe.pipeline.stage_learner import StageLearner


def build_stages(
    plan: Plan,
    cells: Mapping[str, Layer.Params],
    devices: Sequence[str],
    schedule: Schedule,
    keeping: Keeping,
    seed: int,
    compute_dtype: tf.DType,
    jit_compile: bool = False,
) -> list[Stage]:
    """The stages of a plan, each on the device that the schedule gives it.

    Args:
      plan: cells of each stage.
      cells: name -> params of each cell.
      devices: names of the devices.
      schedule: places the stages, and says which of them split their backward pass.
      keeping: what to keep between the passes, but for the last stage.
      seed: the run's seed.
      compute_dtype: dtype of activations.
      jit_compile: True if XLA compiles the stages' functions.
    """
    last = len(plan.stages) - 1
    limits = [math.inf if s.kept_limit is None else s.kept_limit for s in plan.stages]
    keepings = [dataclasses.replace(keeping, limit=limit) for limit in limits]
    keepings[last] = keeping_of_last(keepings[last], schedule)
    stages = []
    for index, stage in enumerate(plan.stages):
        device = devices[schedule.placement[index]]
        with refusing_lack_of_memory(index, stage, device):
            stages.append(
                Stage(
                    index,
                    {name: cells[name] for name in stage.cells},
                    device,
                    seed=seed,
                    is_last=index == last,
                    compute_dtype=compute_dtype,
                    keeping=keepings[index],
                    splits_backward=index in schedule.split_stages,
                    jit_compile=jit_compile,
                )
            )
    return stages


def keeping_of_last(keeping: Keeping, schedule: Schedule) -> Keeping:
    """What the last stage keeps.

    All, where each backward pass follows its forward pass at once: to compute anything again would
    save nothing. Where it does not, the stage keeps what the others do, and never the logits.
    """
    if schedule.keeps_all(schedule.num_stages - 1):
        return Keeping()
    return dataclasses.replace(keeping, forgets_last_cell=True)


def build_learner(stage: Stage, learner: Learner, owners: Mapping[str, Stage]) -> StageLearner:
    """The learner of the weights that a stage owns."""
    owned = {path: v for path, v in stage.trainable.items() if owners[path] is stage}
    return StageLearner(stage, learner, owned)
