"""From a plan to the stages of all replicas, each on its device."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import tensorflow as tf

from lingpipe.base.layer import Layer
from lingpipe.pipeline.errors import refusing_lack_of_memory
from lingpipe.pipeline.keeping import Keeping
from lingpipe.pipeline.pipeline_params import PipelineParams
from lingpipe.pipeline.plan import Plan
from lingpipe.pipeline.schedule import Schedule
from lingpipe.pipeline.stage import Stage


def build_stages(
    plan: Plan,
    cells: Mapping[str, Layer.Params],
    devices: Sequence[Sequence[str]],
    schedule: Schedule,
    params: PipelineParams,
    *,
    seed: int,
    compute_dtype: tf.DType,
) -> list[list[Stage]]:
    """The stages of a plan, once for each replica.

    Args:
      plan: cells of each stage.
      cells: name -> params of each cell.
      devices: for each replica the name of each stage's device; see `place_stages`.
      schedule: says which stages split their backward pass.
      params: the pipeline's.
      seed: the run's seed.
      compute_dtype: dtype of activations.
    """
    last = len(plan.stages) - 1
    limits = [math.inf if s.kept_limit is None else s.kept_limit for s in plan.stages]
    keepings = [dataclasses.replace(params.keeping(), limit=limit) for limit in limits]
    keepings[last] = keeping_of_last(keepings[last], schedule)

    def build(replica: int, index: int) -> Stage:
        device, stage = devices[replica][index], plan.stages[index]
        with refusing_lack_of_memory(index, stage, device):
            return Stage(
                index,
                {name: cells[name] for name in stage.cells},
                device,
                seed=seed,
                is_last=index == last,
                replica=replica,
                compute_dtype=compute_dtype,
                keeping=keepings[index],
                splits_backward=index in schedule.split_stages,
                jit_compile=params.jit_compile,
            )

    return [[build(r, k) for k in range(last + 1)] for r in range(len(devices))]


def keeping_of_last(keeping: Keeping, schedule: Schedule) -> Keeping:
    """What the last stage keeps.

    All, where each backward pass follows its forward pass at once: to compute anything again would
    save nothing. Where it does not, the stage keeps what the others do, and never the logits.
    """
    if schedule.keeps_all(schedule.num_stages - 1):
        return Keeping()
    return dataclasses.replace(keeping, forgets_last_cell=True)
