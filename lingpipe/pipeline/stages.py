"""From a plan to stages on devices, each with the learner of the weights that it owns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from lingpipe.base.layer import Layer
from lingpipe.learner.learner import Learner
from lingpipe.pipeline.errors import refusing_lack_of_memory
from lingpipe.pipeline.plan import Plan
from lingpipe.pipeline.rematerialise import Rematerialisation
from lingpipe.pipeline.schedule import Schedule
from lingpipe.pipeline.stage import Stage
from lingpipe.pipeline.stage_learner import StageLearner


def build_stages(
    plan: Plan,
    cells: Mapping[str, Layer.Params],
    devices: Sequence[str],
    schedule: Schedule,
    remat: Rematerialisation,
    seed: int,
    compute_dtype: tf.DType,
) -> list[Stage]:
    """The stages of a plan, each on the device that the schedule gives it."""
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
                    is_last=index == len(plan.stages) - 1,
                    compute_dtype=compute_dtype,
                    remat=remat,
                    splits_backward=index in schedule.split_stages,
                )
            )
    return stages


def build_learner(stage: Stage, learner: Learner, owners: Mapping[str, Stage]) -> StageLearner:
    """The learner of the weights that a stage owns."""
    owned = {path: v for path, v in stage.trainable.items() if owners[path] is stage}
    return StageLearner(stage, learner, owned)
