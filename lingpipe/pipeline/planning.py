"""From a pipeline's params to its plan: which of them the plan depends on, and how.

A plan is of one replica: all replicas are cut alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from lingpipe.base.spec import Spec
from lingpipe.pipeline.pipeline_params import PipelineParams
from lingpipe.pipeline.plan import CellParams, Plan, make_plan


def plan_pipeline(
    params: PipelineParams,
    cells: Mapping[str, CellParams],
    micro_batch: Mapping[str, Spec],
    *,
    num_slots: int,
    compute_dtype: str,
    compute_bytes: int,
    cell_seconds: Mapping[str, float] | None = None,
) -> Plan:
    """The plan that a pipeline of these params follows.

    Args:
      params: the pipeline's.
      cells: name -> params of each cell, in order.
      micro_batch: typical shapes of a micro-batch.
      num_slots: slots of the optimiser for each weight.
      compute_dtype: dtype of activations, by name.
      compute_bytes: bytes of a number of that dtype.
      cell_seconds: what each cell was measured to take, to balance by; None to balance by FLOPs.

    Raises:
      PartitionError: the cells cannot be cut as asked, or do not fit their devices.
    """
    plan = make_plan(
        cells,
        params.num_stages,
        micro_batch,
        params.partition,
        compute_dtype=compute_dtype,
        cell_seconds=cell_seconds,
        link_bandwidth=params.link_bandwidth,
        memory=params.memory_settings(num_slots, compute_bytes),
    )
    return dataclasses.replace(plan, num_replicas=params.num_replicas)
