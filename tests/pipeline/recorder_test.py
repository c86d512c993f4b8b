"""A recorded step: every action once, in the order of the schedule, and the step like any other."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.errors import PipelineError
from lingpipe.pipeline.schedule import Action, Phase
from lingpipe.pipeline.schedules import ScheduleKind, make_schedule
from lingpipe.pipeline.timeline import RecordedSpan, RecordedStep, split_step
from tests.pipeline.small_models import (
    Dense,
    Source,
    SquareLoss,
    assert_equal_arrays,
    dense_batch,
    dense_cells,
    make_pipeline,
    weights_of,
)

SCHEDULES = [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zb_h1", 1)]
MICRO_BATCHES = 5


def recorded(*args: Any, **values: Any) -> RecordedStep:
    """A step of a pipeline of dense cells, after one that traces."""
    pipeline = make_pipeline(dense_cells(6), *args, **values)
    batch = dense_batch(2 * MICRO_BATCHES + 1)
    pipeline.train_step(batch)
    step = pipeline.record_step(batch)[1].step
    pipeline.close()
    return step


def action_of(span: RecordedSpan) -> Action:
    assert span.micro_batch is not None
    return Action(Phase[span.phase], span.stage, span.micro_batch)


@pytest.mark.parametrize(("kind", "stages_per_device"), SCHEDULES)
def test_every_device_is_seen_to_walk_its_row(kind: str, stages_per_device: int) -> None:
    step = recorded(4, MICRO_BATCHES, kind, "none", stages_per_device)
    schedule = make_schedule(ScheduleKind(kind), 4, MICRO_BATCHES, stages_per_device)
    actions = {action_of(span): span for span in step.spans if span.is_of_passes}
    for device, row in enumerate(schedule.rows):
        own = [span for span in step.spans if span.device == device]
        assert tuple(action_of(span) for span in own if span.is_of_passes) == row
        for before, after in itertools.pairwise(own):
            assert before.end <= after.start
        for span in own:
            assert 0 <= span.start <= span.start + span.transfer_seconds <= span.end <= step.seconds
    for action, span in actions.items():
        for need in schedule.needs(action):
            assert actions[need].end <= span.start, f"{action} before the end of {need}"


@pytest.mark.parametrize(("kind", "stages_per_device"), SCHEDULES)
def test_what_ends_a_step_follows_on_every_stage(kind: str, stages_per_device: int) -> None:
    step = recorded(4, MICRO_BATCHES, kind, "none", stages_per_device)
    ends = [span for span in step.spans if not span.is_of_passes]
    assert sorted((span.phase, span.stage) for span in ends) == [
        (phase, stage) for phase in ("norm", "update") for stage in range(4)
    ]
    assert min(span.start for span in ends) >= step.passes_seconds


def test_the_parts_of_a_recorded_step_add_up_to_it() -> None:
    split = split_step(recorded(2, MICRO_BATCHES))
    assert sum(split.parts().values()) == pytest.approx(2 * split.step_seconds, rel=1e-9)
    assert min(split.parts().values()) >= 0
    assert split.transfer > 0


def test_a_recorded_step_trains_like_any_other() -> None:
    batch = dense_batch(7)
    recorded, plain = (make_pipeline(dense_cells(), 2, 3) for _ in range(2))
    for _ in range(2):
        assert recorded.record_step(batch)[0] == plain.train_step(batch)
    assert recorded.train_step(batch) == plain.train_step(batch)
    assert_equal_arrays(weights_of(recorded), weights_of(plain), rtol=0, atol=0)


def test_the_reduction_and_the_broadcast_of_shared_weights_are_seen_around_the_update() -> None:
    tied = Dense.Params(share_weights="tied")
    cells = {"source": Source.Params(), "a": tied, "b": tied, "loss": SquareLoss.Params()}
    pipeline = make_pipeline(cells, 2, 2, partition=[2, 2])
    step = pipeline.record_step(dense_batch(4))[1].step
    ends = [span for span in step.spans if not span.is_of_passes]
    phases = ["reduction", "norm", "update", "broadcast"]
    for stage in range(2):
        of_stage = sorted((s for s in ends if s.stage == stage), key=lambda span: span.start)
        assert [span.phase for span in of_stage] == phases
        assert {span.device for span in of_stage} == {stage}


def test_casts_of_weights_are_seen_where_there_are_any() -> None:
    batch = dense_batch(4)
    batch["y"] = batch["y"].astype(tf.bfloat16.as_numpy_dtype)
    pipeline = make_pipeline(dense_cells(), 2, 2, compute_dtype=tf.bfloat16)
    step = pipeline.record_step(batch)[1].step
    assert {span.stage for span in step.spans if span.phase == "casts"} == {0, 1}
    assert not [span for span in recorded(2, 2).spans if span.phase == "casts"]


def test_the_end_of_a_span_waits_for_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []

    def wait(device: str) -> None:
        waited.append(device)
        time.sleep(0.002)

    monkeypatch.setattr("lingpipe.pipeline.recorder.wait_for_device", wait)
    step = recorded(2, 2)
    assert set(waited) == {"/CPU:0", "/CPU:1"}
    for span in step.spans:
        waits = 2 if span.transfer_seconds else 1
        assert span.seconds >= waits * 0.002
        assert span.transfer_seconds == 0 or span.transfer_seconds >= 0.002


def test_the_call_of_every_stage_for_the_first_micro_batch_is_kept() -> None:
    pipeline = make_pipeline(dense_cells(), 2, 2, "zb_h1")
    batch = dense_batch(6)
    first, last = pipeline.record_step(batch)[1].calls
    np.testing.assert_array_equal(first.forward[1].entries["x"], batch["x"][:3])
    np.testing.assert_array_equal(last.forward[1].entries["y"], batch["y"][:3])
    assert first.forward[0] == []
    assert first.output_gradients[0].shape == last.forward[0][0].shape == (3, 4)
    assert float(last.output_gradients[0]) == 1.0


def test_a_recorded_step_that_fails_leaves_the_pipeline_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline, plain = (make_pipeline(dense_cells(), 2, 2) for _ in range(2))
    batch = dense_batch(6)
    pipeline.train_step(batch)
    plain.train_step(batch)
    with monkeypatch.context() as broken:
        broken.setattr(pipeline.stages[0], "backward", lambda *_: 1 / 0)
        with pytest.raises(PipelineError, match="Stage 0 .* failed in the backward pass of micro"):
            pipeline.record_step(batch)
    monkeypatch.setattr("lingpipe.pipeline.recorder.StepRecorder.note", lambda *_: 1 / 0)
    assert pipeline.train_step(batch) == plain.train_step(batch)
