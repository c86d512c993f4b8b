"""The share of a backward pass that computes again: what is compared, and no trace is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import tensorflow as tf  # noqa: F401 - So that there are devices.

from lingpipe.pipeline import recompute_share
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.recompute_share import measure_recompute_shares
from lingpipe.pipeline.schedules import make_schedule
from lingpipe.pipeline.stage import Stage
from tests.pipeline.small_models import (
    assert_equal_arrays,
    dense_batch,
    dense_cells,
    make_pipeline,
    normalised_cells,
    weights_of,
)


def measured(pipeline: Pipeline, **values: Any) -> list[float]:
    """The shares after a recorded step."""
    params = pipeline.params
    schedule = make_schedule(
        params.schedule, params.num_stages, params.num_micro_batches, params.stages_per_device
    )
    calls = pipeline.record_step(dense_batch(6))[1].calls
    return measure_recompute_shares(pipeline.stages, calls, schedule, params.keeping(), **values)


def with_seconds(
    monkeypatch: pytest.MonkeyPatch, stages: Sequence[Stage], own: float, twin: float
) -> dict[int, Stage]:
    """Lets the backward passes of the stages, and of their twins, take so long; shows the twins."""
    twins: dict[int, Stage] = {}
    run = recompute_share._backward_seconds

    def seconds(stage: Stage, *args: Any) -> float:
        assert run(stage, *args) > 0
        if stage in stages:
            return own
        twins[stage.index] = stage
        return twin

    monkeypatch.setattr(recompute_share, "_backward_seconds", seconds)
    return twins


def test_a_pipeline_that_keeps_all_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline(dense_cells(), 2, 2)
    monkeypatch.setattr(recompute_share, "_backward_seconds", lambda *_: 1 / 0)
    assert measured(pipeline) == [0.0, 0.0]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb_h1"])
@pytest.mark.parametrize("remat", ["layer", "stage"])
def test_the_share_is_what_the_twin_is_faster(
    monkeypatch: pytest.MonkeyPatch, schedule: str, remat: str
) -> None:
    pipeline = make_pipeline(dense_cells(6), 3, 2, schedule, remat)
    twins = with_seconds(monkeypatch, pipeline.stages, own=4.0, twin=3.0)
    # The last stage keeps all, since its backward passes follow its forward passes.
    assert measured(pipeline) == [0.25, 0.25, 0.0]
    assert set(twins) == {0, 1}


def test_a_twin_that_is_slower_makes_no_negative_share(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline(dense_cells(), 2, 2, remat="layer")
    with_seconds(monkeypatch, pipeline.stages, own=3.0, twin=4.0)
    assert measured(pipeline) == [0.0, 0.0]


def test_twins_keep_more_and_return_the_same_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline(dense_cells(6), 2, 2, remat="stage")
    twins = with_seconds(monkeypatch, pipeline.stages, own=4.0, twin=3.0)
    call = pipeline.record_step(dense_batch(6))[1].calls[0]
    measured(pipeline)
    (outputs, kept), (twin_outputs, twin_kept) = (
        stage.forward(*call.forward) for stage in (pipeline.stages[0], twins[0])
    )
    assert [leaf.shape for leaf in outputs] == [leaf.shape for leaf in twin_outputs]
    assert len(kept) < len(twin_kept)


def test_measuring_leaves_no_trace_in_the_pipeline() -> None:
    pipeline, plain = (make_pipeline(normalised_cells(), 2, 2, remat="layer") for _ in range(2))
    plain.train_step(dense_batch(6))
    first, last = measured(pipeline)
    assert 0 <= first < 1
    assert last == 0
    assert pipeline.train_step(dense_batch(6)) == plain.train_step(dense_batch(6))
    assert_equal_arrays(weights_of(pipeline), weights_of(plain), rtol=0, atol=0)
