"""Cases that broke other pipelines: those in which a run hung, leaked, or ignored what was asked.

Cases that came out with wrong numbers, and where the rest stands, are in
pipeline_cases_numbers_test.py. Of this kind P9 also has tests in pipeline/partitioner_test.py,
conformance/pipeline_test.py and pipeline/builder_test.py, P10 and the scripts of P11 in
pipeline/executor_test.py, P16 in cluster/placement_test.py, pipeline/replicas_test.py,
pipeline/builder_test.py and bin/train_test.py.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer
from lingpipe.layers.losses import smoothed_cross_entropy
from lingpipe.layers.softmax import Softmax
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.plan import make_plan
from tests.bin.refusals import refusal
from tests.pipeline.small_models import (
    Batch,
    Cell,
    Dense,
    Source,
    assert_equal_arrays,
    dense_batch,
    dense_cells,
    make_pipeline,
    weights_of,
)

# (schedule, stages_per_device)
SCHEDULES = [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zb_h1", 1)]
every_schedule = pytest.mark.parametrize(("schedule", "per_device"), SCHEDULES)


# ------------------------------------------------------------------ P9: cuts


@pytest.mark.parametrize(("num_cells", "num_stages", "largest"), [(15, 8, 2), (38, 8, 5)])
def test_p09_a_plan_spreads_equal_cells_evenly(
    num_cells: int, num_stages: int, largest: int
) -> None:
    plan = make_plan(dense_cells(num_cells), num_stages, {})
    assert max(len(stage.cells) for stage in plan.stages) == largest
    assert plan.weights == make_plan(dense_cells(num_cells), 1, {}).weights


# ------------------------------------------------------------------ P11: two models in a process


@every_schedule
def test_p11_two_pipelines_take_turns_without_meeting(schedule: str, per_device: int) -> None:
    """Each alone, then both in turn from the same start: equal to the bit."""
    counts = 4, 2, schedule, "layer", per_device
    pipelines = [make_pipeline(dense_cells(count), *counts) for count in (6, 7)]
    starts = [weights_of(pipeline) for pipeline in pipelines]

    def step(pipeline: Pipeline, seed: int) -> tuple[float, float]:
        loss = pipeline.train_step(dense_batch(4, seed)).loss
        return loss, pipeline.evaluate_step(dense_batch(3, seed))["loss"]

    alone = [[step(pipeline, seed) for seed in range(3)] for pipeline in pipelines]
    ends = [weights_of(pipeline) for pipeline in pipelines]
    for pipeline, start in zip(pipelines, starts, strict=True):
        for path, variable in pipeline.weights.items():
            variable.assign(start[path])
        pipeline.step = 0
    in_turn = [[step(pipeline, seed) for pipeline in pipelines] for seed in range(3)]
    assert in_turn == [list(row) for row in zip(*alone, strict=True)]
    for pipeline, end in zip(pipelines, ends, strict=True):
        assert_equal_arrays(weights_of(pipeline), end, rtol=0, atol=0)
        pipeline.close()


# ------------------------------------------------------------------ P14: memory over many steps


def count_tensors() -> int:
    gc.collect()
    return sum(isinstance(thing, tf.Tensor) for thing in gc.get_objects())


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@every_schedule
def test_p14_tensors_and_memory_stay_flat_over_200_steps(schedule: str, per_device: int) -> None:
    """A tensor of a micro-batch has 128 KiB: one lost in each step would show in every window."""
    pipeline = make_pipeline(dense_cells(6), 4, 2, schedule, "layer", per_device)
    batch, other = dense_batch(16384), dense_batch(300)
    steps, tensors, memory = 40, [], []
    for _ in range(5):
        for _ in range(steps):
            pipeline.train_step(batch)
        pipeline.evaluate_step(other)
        tensors.append(count_tensors())
        memory.append(resident_bytes())
    kept_on_purpose = tf.zeros([2])
    assert count_tensors() == tensors[-1] + 1, kept_on_purpose
    assert len(set(tensors)) == 1
    # The allocator grows its pools now and then; only what is lost grows from each reading to the
    # next.
    growth = [after - before for before, after in itertools.pairwise(memory)]
    assert min(growth) < steps * 128 * 2**10 / 4, growth
    pipeline.close()


# ------------------------------------------------------------------ P16: what cannot be honoured


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("pipeline.num_replicas=0", "num_replicas (0) must be at least 1"),
        ("pipeline.stages_per_device=2", "schedule gpipe runs one stage on each device"),
        ("pipeline.schedule=dualpipe", "dualpipe"),
        ("pipeline.partition=1,1,1", "partition"),
    ],
)
@pytest.mark.parametrize("verb", ("train", "plan"))
def test_p16_a_command_refuses_a_field_that_its_run_cannot_honour(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, verb: str, field: str, words: str
) -> None:
    logdir = [f"--logdir={tmp_path / 'run'}"] if verb == "train" else []
    message = refusal(capfd, verb, "--model=mt.multilingual.Tiny", *logdir, f"--set={field}")
    assert words in message
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------ P17: a large vocabulary

VOCABULARY = 65_536


class Score(Cell):
    """x [B, 4] -> cross-entropy of the entry 'ids' [B] under 64k logits."""

    class Params(Cell.Params):
        keys = ["ids"]

        def children(self) -> dict[str, Layer.Params]:
            return {"softmax": Softmax.Params(model_dim=4, vocabulary_size=VOCABULARY)}

    softmax: Softmax

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        ids = context.batch["ids"]
        losses = smoothed_cross_entropy(self.softmax(inputs, context), ids, 0.1).smoothed
        return {"loss": tf.reduce_sum(losses), "weight": tf.cast(tf.size(ids), tf.float32)}


def vocabulary_batch(size: int) -> Batch:
    batch = dense_batch(size)
    return {"x": batch["x"], "ids": (batch["y"][:, 0] > 0).astype("int32")}


def live_logits() -> int:
    """Bytes of all live tensors as wide as the vocabulary."""
    shapes = [
        thing.shape
        for thing in gc.get_objects()
        if isinstance(thing, tf.Tensor) and hasattr(thing, "numpy") and thing.shape.rank
    ]
    return sum(4 * shape.num_elements() for shape in shapes if shape[-1] == VOCABULARY)


PHASES = ("forward", "backward", "backward_input", "backward_weight")


def watched(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Gets a line for each action of the last stage: which, and the logits alive as it starts."""
    seen: list[tuple[str, int]] = []
    last = pipeline.stages[-1]

    def watch(phase: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def look_and_run(*args: Any) -> Any:
            seen.append((phase, live_logits()))
            return run(*args)

        return look_and_run

    for phase in PHASES:
        monkeypatch.setattr(last, phase, watch(phase, getattr(last, phase)))
    return seen


@pytest.mark.parametrize(
    ("schedule", "per_device", "num_micro_batches"),
    [
        ("gpipe", 1, 4),
        ("1f1b", 1, 4),
        ("interleaved", 2, 4),  # Two groups of two micro-batches.
        ("interleaved", 2, 5),  # A group of two and one of three: the logits are computed again.
        ("zb_h1", 1, 4),  # Weight passes come late: those of the loss do not wait for them.
    ],
)
def test_p17_the_logits_of_one_micro_batch_are_alive_at_a_time(
    monkeypatch: pytest.MonkeyPatch, schedule: str, per_device: int, num_micro_batches: int
) -> None:
    """Of two examples each: all logits of a micro-batch are gone before the next ones are made."""
    cells = {
        "source": Source.Params(),
        **{f"dense_{i}": Dense.Params() for i in range(3)},
        "score": Score.Params(),
    }
    counts = 4, num_micro_batches, schedule, "stage", per_device
    pipeline = make_pipeline(cells, *counts, partition=[2, 1, 1, 1])
    batch = vocabulary_batch(2 * num_micro_batches)
    pipeline.train_step(batch)
    seen = watched(pipeline, monkeypatch)
    pipeline.train_step(batch)
    pipeline.close()
    assert live_logits() == 0
    assert [size for phase, size in seen if phase == "forward"] == [0] * num_micro_batches
    backwards = [size for phase, size in seen if phase != "forward"]
    assert len(backwards) >= num_micro_batches
    assert max(size for phase, size in seen) <= 2 * VOCABULARY * 4
    if (schedule, num_micro_batches) != ("interleaved", 5):
        firsts = [size for phase, size in seen if phase in ("backward", "backward_input")]
        assert firsts == [2 * VOCABULARY * 4] * num_micro_batches
