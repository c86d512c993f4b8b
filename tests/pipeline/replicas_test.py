"""Replicas change where work is done, and not what comes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.cluster.placement import DeviceError
from lingpipe.hyperparams import ParamsError
from lingpipe.learner.loss_scale import LossScale
from lingpipe.learner.optimizers import Adam, Momentum
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.errors import PipelineError
from tests.pipeline.small_models import (
    TRANSLATION_MICRO_BATCH,
    Batch,
    Cell,
    Cells,
    SquareLoss,
    assert_equal_arrays,
    dense_batch,
    dense_cells,
    make_learner,
    make_pipeline,
    normalised_cells,
    transformer,
    translation_batch,
    translation_signature,
    weights_of,
)


def adam(**values: Any) -> Any:
    return make_learner(Adam.Params(), rate=1e-2, **values)


def after(pipeline: Pipeline, batches: list[Batch]) -> dict[str, np.ndarray]:
    """Weights, slots, losses and norms after a step on each of the batches."""
    results = [pipeline.train_step(batch) for batch in batches]
    numbers = {f"step {r.step}": np.array([r.loss, r.weight, r.grad_norm]) for r in results}
    slots = {name: slot.numpy() for name, slot in pipeline.slots.items()}
    pipeline.close()
    return {**weights_of(pipeline), **slots, **numbers}


def everywhere(pipeline: Pipeline, path: str) -> list[np.ndarray]:
    """The value of a weight on every stage of every replica that has it."""
    stages = [stage for stages in pipeline.replicas for stage in stages]
    return [stage.variables[path].numpy() for stage in stages if path in stage.variables]


# ------------------------------------------------------------------ the same results


@pytest.mark.parametrize(
    "setting",
    [
        ("gpipe", "none", 1),
        ("1f1b", "layer", 1),
        ("interleaved", "stage", 2),
        ("zb_h1", "stage", 1),
    ],
)
def test_two_replicas_train_as_one_with_as_many_micro_batches(setting: tuple) -> None:
    """Steps of a tied Transformer with dropout, ragged batches, clipping and momentum."""
    batches = [translation_batch(rows, seed) for seed, rows in enumerate([6, 9, 5, 8])]
    values: dict[str, Any] = {
        "learner": make_learner(Momentum.Params(momentum=0.9), clip_global_norm=0.5),
        "micro_batch": TRANSLATION_MICRO_BATCH,
        "signature": translation_signature(),
    }
    cells = transformer(dropout=0.2).cells()
    one = after(make_pipeline(cells, 4, 4, *setting, **values), batches)
    two = after(make_pipeline(cells, 4, 2, *setting, num_replicas=2, **values), batches)
    assert_equal_arrays(two, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shards_optimizer", (True, False))
@pytest.mark.parametrize("num_replicas", (2, 3, 4))
def test_statistics_of_all_replicas_move_the_averages(
    num_replicas: int, shards_optimizer: bool
) -> None:
    """With BatchNorm, which normalises by the micro-batch: as many of them, so equal results."""
    batches = [dense_batch(rows, rows) for rows in (12, 24, 12)]
    one = after(make_pipeline(normalised_cells(), 2, 12, learner=adam()), batches)
    pipeline = make_pipeline(
        normalised_cells(),
        2,
        12 // num_replicas,
        num_replicas=num_replicas,
        shards_optimizer=shards_optimizer,
        learner=adam(),
    )
    assert_equal_arrays(after(pipeline, batches), one, rtol=1e-5, atol=1e-6)
    for path in pipeline.weights:
        values = everywhere(pipeline, path)
        assert len(values) == num_replicas
        for value in values:
            np.testing.assert_array_equal(value, values[0])


def test_a_batch_with_fewer_examples_than_replicas_leaves_some_without_work() -> None:
    batches = [dense_batch(rows, rows) for rows in (2, 1, 7)]
    one = after(make_pipeline(dense_cells(5), 2, 1, learner=adam()), batches)
    pipeline = make_pipeline(dense_cells(5), 2, 2, num_replicas=4, learner=adam())
    assert_equal_arrays(after(pipeline, batches), one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("debugging", ("verify_recompute", "poison_bubbles"))
def test_replicas_can_be_debugged(debugging: str) -> None:
    batches = [dense_batch(7, 1), dense_batch(5, 2)]
    runs = [
        after(
            make_pipeline(
                normalised_cells(), 2, 2, "1f1b", "layer", num_replicas=2, debugging=flags
            ),
            batches,
        )
        for flags in ({}, {debugging: True})
    ]
    assert_equal_arrays(runs[1], runs[0], rtol=0, atol=0)


def test_compiled_replicas_train_as_others_do() -> None:
    batches = [dense_batch(8, seed) for seed in range(3)]
    plain = after(make_pipeline(dense_cells(5), 2, 4, learner=adam()), batches)
    pipeline = make_pipeline(dense_cells(5), 2, 2, num_replicas=2, jit_compile=True, learner=adam())
    assert_equal_arrays(after(pipeline, batches), plain, rtol=1e-4, atol=1e-5)


def test_replicas_evaluate_and_predict_the_whole_batch_in_its_order() -> None:
    one = make_pipeline(normalised_cells(), 2, 1)
    three = make_pipeline(normalised_cells(), 2, 2, num_replicas=3)
    for rows in (1, 2, 11):
        batch = dense_batch(rows, rows)
        np.testing.assert_allclose(three.predict(batch), one.predict(batch), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            list(three.evaluate_step(batch).values()),
            list(one.evaluate_step(batch).values()),
            rtol=1e-5,
        )
    one.close()
    three.close()


# ------------------------------------------------------------------ where things lie


def test_each_replica_holds_the_slots_of_its_share_alone() -> None:
    pipeline = make_pipeline(dense_cells(8), 2, 1, num_replicas=3, learner=adam())
    pipeline.train_step(dense_batch(6))
    kernels = [path for path in pipeline.weights if path.endswith("kernel")]
    homes = {path: pipeline.slots[f"{path}/m"].device[-5:] for path in kernels}
    # Six equal kernels, three a stage, one a replica: devices of stage 0 are 0, 2 and 4.
    assert sorted(homes.values()) == [f"CPU:{device}" for device in range(6)]
    for path in kernels:
        assert pipeline.weights[path].device[-5:] == homes[path]
    assert len(pipeline.slots) == 2 * len(kernels)
    pipeline.close()


def test_without_sharding_the_first_replica_holds_all_slots() -> None:
    pipeline = make_pipeline(
        dense_cells(8), 2, 1, num_replicas=2, shards_optimizer=False, learner=adam()
    )
    homes = {variable.device[-5:] for variable in pipeline.slots.values()}
    assert homes == {"CPU:0", "CPU:1"}
    pipeline.close()


def test_replicas_start_from_equal_weights() -> None:
    pipeline = make_pipeline(
        transformer().cells(), 2, 1, num_replicas=3, micro_batch=TRANSLATION_MICRO_BATCH
    )
    for path in pipeline.weights:
        for value in everywhere(pipeline, path):
            np.testing.assert_array_equal(value, pipeline.weights[path].numpy())
    pipeline.close()


# ------------------------------------------------------------------ failures


class Breaks(Cell):
    """Fails on examples whose first feature is beyond 100."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        tf.debugging.assert_less(tf.reduce_max(inputs), 100.0, "beyond")
        return tf.identity(inputs)


def breaking_cells() -> Cells:
    cells = dense_cells(5)
    return {"source": cells["source"], "breaks": Breaks.Params(), **cells}


@pytest.mark.parametrize("replica", (0, 1, 2))
def test_p10_a_failure_in_any_replica_is_named_and_leaves_all_as_they_were(replica: int) -> None:
    counts = 2, 2, "1f1b", "layer"
    pipeline = make_pipeline(breaking_cells(), *counts, num_replicas=3, learner=adam())
    untouched = make_pipeline(breaking_cells(), *counts, num_replicas=3, learner=adam())
    good, bad = dense_batch(6, 1), dense_batch(6, 1)
    bad["x"][2 * replica, 0] = 1000.0
    where = rf"Stage 0{f' of replica {replica}' if replica else ''} \(.*/CPU:{2 * replica}\) failed"
    for call in (pipeline.train_step, pipeline.evaluate_step):
        with pytest.raises(PipelineError, match=where):
            call(bad)
    assert_equal_arrays(weights_of(pipeline), weights_of(untouched), rtol=0, atol=0)
    assert pipeline.step == 0
    assert pipeline.train_step(good) == untouched.train_step(good)
    assert_equal_arrays(weights_of(pipeline), weights_of(untouched), rtol=0, atol=0)
    pipeline.close()
    untouched.close()


class ShortLoss(SquareLoss):
    """The same of numbers in any dtype."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        return super().__call__(tf.cast(inputs, tf.float32), context)


def test_an_overflow_in_one_replica_skips_the_step_of_all() -> None:
    scale = LossScale.Params(initial=2.0**24, growth_steps=1)
    pipeline = make_pipeline(
        {**normalised_cells(), "loss": ShortLoss.Params()},
        2,
        1,
        num_replicas=2,
        learner=adam(loss_scale=scale),
        compute_dtype=tf.float16,
    )
    before = weights_of(pipeline)
    batch = dense_batch(4)
    batch["y"][3] = 1000.0
    assert pipeline.train_step(batch).is_skipped
    assert_equal_arrays(weights_of(pipeline), before, rtol=0, atol=0)
    while pipeline.train_step(dense_batch(4)).is_skipped:
        pass
    assert (pipeline.weights["dense_0/kernel"].numpy() != before["dense_0/kernel"]).any()
    pipeline.close()


def test_p16_replicas_that_do_not_fit_are_refused() -> None:
    words = r"num_stages \(2\) x num_replicas \(2\) needs 4 devices; there are 3: .*num_replicas=1"
    with pytest.raises(DeviceError, match=words):
        Pipeline.Params(num_stages=2, num_replicas=2).build(
            cells=dense_cells(4),
            learner=make_learner(),
            devices=["/CPU:0", "/CPU:1", "/CPU:2"],
            micro_batch={},
        )
    with pytest.raises(ParamsError, match=r"num_replicas \(0\) must be at least 1"):
        Pipeline.Params(num_replicas=0).build(
            cells=dense_cells(4), learner=make_learner(), devices=["/CPU:0"], micro_batch={}
        )


# ------------------------------------------------------------------ what is recorded


def test_a_recorded_step_shows_every_device_of_every_replica() -> None:
    pipeline = make_pipeline(dense_cells(6), 2, 2, "1f1b", num_replicas=2, learner=adam())
    pipeline.train_step(dense_batch(8))
    _, recording = pipeline.record_step(dense_batch(8))
    step = recording.step
    assert step.devices == ("/CPU:0", "/CPU:1", "/CPU:2", "/CPU:3")
    forwards = sorted(
        (s.device, s.stage, s.micro_batch) for s in step.spans if s.phase == "forward"
    )
    assert forwards == [
        (0, 0, 0), (0, 0, 1), (1, 1, 0), (1, 1, 1), (2, 0, 2), (2, 0, 3), (3, 1, 2), (3, 1, 3),
    ]  # fmt: skip
    for phase in ("reduction", "norm", "update", "broadcast"):
        assert sorted(s.device for s in step.spans if s.phase == phase) == [0, 1, 2, 3]
    assert [call.forward[1].first_example for call in recording.calls] == [0, 0]
    pipeline.close()
