"""How much of a stage's backward pass computes activations again.

The backward pass is one call, so its recomputation cannot be seen from outside. It is measured as a
difference: the stage and its twin, which has equal cells on the same device but keeps everything,
run both passes on the same inputs, by turns, alone. What the stage's backward pass takes longer is
recomputation. Taken as a share, it holds for steps in which all devices are busy, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.base.spec import Spec
from lingpipe.pipeline.errors import naming
from lingpipe.pipeline.keeping import Keeping, Rematerialisation
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.recorder import StageCall, wait_for_device
from lingpipe.pipeline.schedule import Schedule
from lingpipe.pipeline.stage import Stage
from lingpipe.pipeline.stage_traces import StageTraces
from lingpipe.pipeline.stages import keeping_of_last

# Turns before those that count, and of these: at least so many, more while the backward passes of
# both take less time together than this, but no more than so many.
_WARM_UPS = 2
_LEAST_TURNS = 7
_LEAST_SECONDS = 2.0
_MOST_TURNS = 50


def measure_recompute_shares(
    stages: Sequence[Stage],
    calls: Sequence[StageCall],
    schedule: Schedule,
    keeping: Keeping,
    *,
    compute_dtype: tf.DType = tf.float32,
    signature: Mapping[str, tf.TensorSpec] | None = None,
    micro_batch: Mapping[str, Spec] | None = None,
) -> list[float]:
    """For each stage the share of its backward passes that computes activations again, from 0 to 1.

    It is 1 - (median seconds of the twin's backward pass) / (median of the stage's), at least 0; 0
    without a measurement for a stage that computes nothing again. Twins hold weights and gradients
    once more on each device, and what one micro-batch of one stage keeps.

    Args:
      stages: the stages of a pipeline, in order; no step may run meanwhile. Gradients and
        statistics that they have accumulated are dropped.
      calls: their calls in a recorded step.
      schedule: the schedule they were built for.
      keeping: what they keep, but for the last.
      compute_dtype: dtype of activations.
      signature: specs of the batch entries, as given to the pipeline.
      micro_batch: typical shapes of a micro-batch, as given to the pipeline.

    Raises:
      PipelineError: a twin could not be traced or run, for example for want of memory.
    """
    keepings = [keeping] * (len(stages) - 1) + [keeping_of_last(keeping, schedule)]
    recompute = [
        (k.remat is not Rematerialisation.none or k.forgets_last_cell) and not _keeps_all(stage)
        for k, stage in zip(keepings, stages, strict=True)
    ]
    if not any(recompute):
        return [0.0] * len(stages)
    twins = [_twin(stage, schedule, compute_dtype) for stage in stages]
    entries: dict[str, np.ndarray] = {}
    for call in calls:
        entries |= {key: np.asarray(value) for key, value in call.forward[1].entries.items()}
    whole = MicroBatch(0, entries)
    StageTraces([twins], signature or {}, micro_batch or {}).cover([whole])
    return [
        _share(stage, twin, call, stage.index in schedule.split_stages) if recomputes else 0.0
        for stage, twin, call, recomputes in zip(stages, twins, calls, recompute, strict=True)
    ]


def _twin(stage: Stage, schedule: Schedule, compute_dtype: tf.DType) -> Stage:
    """A stage of equal cells on the same device that keeps all; its weights may be any."""
    return Stage(
        stage.index,
        {name: cell.params for name, cell in stage.cells.items()},
        stage.device,
        seed=0,
        is_last=stage.is_last,
        compute_dtype=compute_dtype,
        splits_backward=stage.index in schedule.split_stages,
        jit_compile=stage.jit_compile,
    )


def _share(stage: Stage, twin: Stage, call: StageCall, splits_backward: bool) -> float:
    """The share for one stage."""
    seconds: dict[Stage, list[float]] = {stage: [], twin: []}
    with naming(stage, "measurement of what it computes again"):
        try:
            for each in seconds:
                each.start_step()
            for turn in range(_WARM_UPS + _MOST_TURNS):
                spent = sum(map(sum, seconds.values()))
                if turn >= _WARM_UPS + _LEAST_TURNS and spent > _LEAST_SECONDS:
                    break
                for each in (stage, twin) if turn % 2 else (twin, stage):
                    seconds[each].append(_backward_seconds(each, call, splits_backward))
        finally:
            _forget(stage, twin)
    own, all_kept = (statistics.median(seconds[each][_WARM_UPS:]) for each in (stage, twin))
    return max(0.0, 1.0 - all_kept / own)


def _forget(stage: Stage, twin: Stage) -> None:
    """Drops what the measurement has added up."""
    for each in (stage, twin):
        each.end_step()
    stage.state.clear()
    for accumulator in stage.accumulators.values():
        accumulator.assign(tf.zeros_like(accumulator))


def _keeps_all(stage: Stage) -> bool:
    """Whether what it keeps was chosen, and is all."""
    return stage.residuals is not None and stage.residuals.work_again == 0


def _backward_seconds(stage: Stage, call: StageCall, splits_backward: bool) -> float:
    """How long the backward pass takes after a forward pass, in one part or two."""
    _, kept = stage.forward(*call.forward)
    wait_for_device(stage.device)
    start = time.perf_counter()
    gradients: Any = call.output_gradients
    if splits_backward:
        _, handed = stage.backward_input(kept, gradients)
        stage.backward_weight(handed)
    else:
        stage.backward(kept, gradients)
    wait_for_device(stage.device)
    return time.perf_counter() - start
