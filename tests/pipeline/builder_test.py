"""The promise: whatever K, M, schedule and rematerialisation are, a pipeline is one device.

Losses, gradients and weights are held against the same model without a pipeline, with dropout,
padding, tied weights and clipping on.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import threading

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.cluster.placement import DeviceError
from lingpipe.errors import UserError
from lingpipe.hyperparams import ParamsError
from lingpipe.learner.optimizers import Adam
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.errors import DeviceMemoryError
from lingpipe.pipeline.partitioner import PartitionError
from lingpipe.pipeline.schedules import ScheduleKind
from lingpipe.pipeline.step_result import NonFiniteError
from tests.pipeline.small_models import (
    SEED,
    TRANSLATION_MICRO_BATCH,
    Cell,
    Dense,
    Source,
    SquareLoss,
    assert_equal_arrays,
    dense_batch,
    dense_cells,
    gradients_of,
    make_learner,
    make_pipeline,
    make_recorder,
    reference_step,
    transformer,
    translation_batch,
    translation_signature,
    weights_of,
)

# (num_stages, num_micro_batches, schedule, remat, stages_per_device)
Setting = tuple[int, int, str, str, int]

SETTINGS: list[Setting] = [
    (2, 4, "gpipe", "stage", 1),
    (2, 3, "1f1b", "none", 1),
    (4, 8, "gpipe", "layer", 1),
    (3, 5, "1f1b", "stage", 1),
    (4, 5, "interleaved", "layer", 2),
    (3, 4, "zb_h1", "none", 1),
    (2, 3, "zb_h1", "layer", 1),
]

# ------------------------------------------------------------------ the promise

CLIP = 1.8
BETA_1 = 0.9
BATCHES = [translation_batch(size, seed) for seed, size in enumerate([8, 5, 9, 3, 8] * 4)]


@dataclasses.dataclass(frozen=True)
class History:
    """Twenty steps: what each reported, and what was left."""

    losses: list[float]
    grad_norms: list[float]
    first_gradients: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]


def train(setting: Setting) -> History:
    """Twenty steps of the small Transformer with Adam, clipping and dropout.

    Adam divides a gradient by its own size, and so turns the noise of a sum that should be zero
    (the bias of attention keys has such a gradient) into steps of full length. With this epsilon,
    larger than that noise and smaller than real gradients, it does not.
    """
    optimizer = Adam.Params(beta_1=BETA_1, epsilon=1e-3)
    learner = make_learner(optimizer, rate=3e-3, clip_global_norm=CLIP)
    pipeline = make_pipeline(
        transformer().cells(),
        *setting,
        learner=learner,
        micro_batch=TRANSLATION_MICRO_BATCH,
        signature=translation_signature(),
    )
    first = pipeline.train_step(BATCHES[0])
    # The first mean of gradients is (1 - beta_1) times the first gradient, clipped.
    clipping = min(1.0, CLIP / first.grad_norm)
    gradients = {
        name.removesuffix("/m"): slot.numpy() / (1 - BETA_1) / clipping
        for name, slot in pipeline.slots.items()
        if name.endswith("/m")
    }
    results = [first, *(pipeline.train_step(batch) for batch in BATCHES[1:])]
    weights = weights_of(pipeline)
    pipeline.close()
    return History(
        [result.loss for result in results],
        [result.grad_norm for result in results],
        gradients,
        weights,
    )


@functools.cache
def one_device() -> History:
    return train((1, 1, "gpipe", "none", 1))


@functools.cache
def plain_tape() -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of the first step without any pipeline: the model as one layer."""
    scope = Scope(seed=SEED)
    model = transformer().build(scope)
    batch = {name: tf.constant(array) for name, array in BATCHES[0].items()}
    with tf.GradientTape() as tape:
        sums = model(None, Context(training=True, step=1, seed=SEED, batch=batch))
        loss = sums["loss"] / sums["weight"]
    gradients = tape.gradient(loss, dict(scope.variables))
    dense = {path: tf.convert_to_tensor(gradient).numpy() for path, gradient in gradients.items()}
    return float(loss), dense


def test_one_stage_and_one_micro_batch_is_a_plain_gradient_tape() -> None:
    loss, gradients = plain_tape()
    assert one_device().losses[0] == pytest.approx(loss, rel=1e-5)
    assert_equal_arrays(one_device().first_gradients, gradients)
    # Clipping is at work, in some steps and not in all.
    norms = one_device().grad_norms
    assert min(norms) < CLIP < max(norms)
    assert one_device().losses[-1] < one_device().losses[0]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_twenty_steps_are_the_same_for_every_setting(setting: Setting) -> None:
    history, expected = train(setting), one_device()
    loss, gradients = plain_tape()
    assert history.losses[0] == pytest.approx(loss, rel=1e-5)
    assert_equal_arrays(history.first_gradients, gradients)
    np.testing.assert_allclose(history.losses, expected.losses, rtol=1e-5)
    np.testing.assert_allclose(history.grad_norms, expected.grad_norms, rtol=1e-5)
    assert_equal_arrays(history.weights, expected.weights)


# ------------------------------------------------------------------ nothing to learn from


class WeightedLoss(Cell):
    """Squares times the entry 'weight' [B], and the sum of those weights."""

    class Params(Cell.Params):
        keys = ["weight"]

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        weights = context.batch["weight"]
        losses = tf.reduce_sum(inputs**2, axis=-1) * weights
        return {"loss": tf.reduce_sum(losses), "weight": tf.reduce_sum(weights)}


def test_a_batch_without_any_weight_moves_nothing() -> None:
    cells = {**dense_cells(3), "loss": WeightedLoss.Params()}
    pipeline = make_pipeline(cells, 2, 2)
    weight = np.ones(4, np.float32)
    pipeline.train_step(
        {**dense_batch(4), "weight": weight}
    )  # Momentum that would go on by itself.
    before = {**weights_of(pipeline), **{n: v.numpy() for n, v in pipeline.slots.items()}}
    result = pipeline.train_step({**dense_batch(4), "weight": 0 * weight})
    assert (result.step, result.grad_norm, result.weight) == (2, 0.0, 0.0)
    assert math.isnan(result.loss)
    after = {**weights_of(pipeline), **{n: v.numpy() for n, v in pipeline.slots.items()}}
    assert_equal_arrays(after, before, rtol=0, atol=0)
    pipeline.close()


# ------------------------------------------------------------------ precision


@pytest.mark.parametrize("remat", ("layer", "stage"))
def test_p15_what_is_computed_again_in_bfloat16_is_equal_to_the_bit(remat: str) -> None:
    half = tf.bfloat16.as_numpy_dtype
    batch = {name: array.astype(half) for name, array in dense_batch(6).items()}
    results = []
    for kept in ("none", remat):
        pipeline = make_recorder(dense_cells(6), 3, 2, remat=kept, compute_dtype=tf.bfloat16)
        results.append((pipeline.train_step(batch), gradients_of(pipeline)))
        pipeline.close()
    (plain, expected), (again, found) = results
    assert plain == again
    assert_equal_arrays(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", (tf.bfloat16, tf.float16))
def test_p15_the_loss_of_a_model_in_short_dtypes_has_one_value_wherever_it_is_read(
    dtype: tf.DType,
) -> None:
    rates = dict.fromkeys(("dropout", "attention_dropout", "feed_forward_dropout"), 0.0)
    pipeline = make_pipeline(
        transformer(**rates).cells(),
        2,
        2,
        micro_batch=TRANSLATION_MICRO_BATCH,
        signature=translation_signature(),
        compute_dtype=dtype,
    )
    batch = translation_batch(6)
    evaluated = pipeline.evaluate_step(batch)
    result = pipeline.train_step(batch)
    assert result.sums == pytest.approx(evaluated, rel=1e-6)
    assert result.loss == pytest.approx(result.sums["loss"] / result.weight, rel=1e-12)
    # A sum in so few digits would be another one.
    assert result.sums["loss"] != float(tf.cast(result.sums["loss"], dtype))
    assert all(variable.dtype == tf.float32 for variable in pipeline.weights.values())
    pipeline.close()


# ------------------------------------------------------------------ XLA


class CompiledDense(Dense):
    """The same through XLA, inside a function of its own."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        def apply(x: tf.Tensor) -> tf.Tensor:
            return super(CompiledDense, self).__call__(x, context)

        return tf.function(apply, jit_compile=True, autograph=False)(inputs)


@pytest.mark.parametrize("remat", ("none", "stage"))
def test_a_cell_may_be_compiled_by_xla(remat: str) -> None:
    plain = dense_cells(4)
    compiled = {**plain, "dense_0": CompiledDense.Params(), "dense_1": CompiledDense.Params()}
    pipeline = make_recorder(compiled, 2, 2, remat=remat)
    pipeline.train_step(dense_batch(4))
    expected = reference_step(plain, dense_batch(4))
    assert_equal_arrays(gradients_of(pipeline), expected.gradients, atol=1e-6)
    pipeline.close()


# ------------------------------------------------------------------ refusals


def test_a_step_that_is_not_finite_moves_nothing_and_the_next_one_runs() -> None:
    pipeline = make_pipeline(dense_cells(5), 3, 3, learner=make_learner(Adam.Params()))
    fresh = make_pipeline(dense_cells(5), 3, 3, learner=make_learner(Adam.Params()))
    before = {**weights_of(pipeline), **{k: v.numpy() for k, v in pipeline.slots.items()}}
    bad = dense_batch(6)
    bad["x"][4, 1] = math.inf
    with pytest.raises(NonFiniteError, match=r"loss (inf|nan), .*No update was applied\..*helps"):
        pipeline.train_step(bad)
    after = {**weights_of(pipeline), **{k: v.numpy() for k, v in pipeline.slots.items()}}
    assert_equal_arrays(after, before, rtol=0, atol=0)
    assert pipeline.step == 0
    assert pipeline.train_step(dense_batch(6)) == fresh.train_step(dense_batch(6))
    assert_equal_arrays(weights_of(pipeline), weights_of(fresh), rtol=0, atol=0)
    pipeline.close()
    fresh.close()


class SumLoss(Cell):
    """x [B, D] -> its sum, and the number of examples."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        return {
            "loss": tf.reduce_sum(inputs),
            "weight": tf.cast(tf.shape(inputs)[0], tf.float32),
        }


def test_infinities_of_both_signs_are_a_step_that_is_not_finite() -> None:
    pipeline = make_pipeline({"source": Source.Params(), "loss": SumLoss.Params()}, 1, 2)
    with pytest.raises(NonFiniteError, match="loss nan"):
        pipeline.train_step({"x": np.array([[math.inf], [-math.inf]], np.float32)})
    pipeline.close()


def test_a_stage_without_room_for_its_weights_is_refused_with_their_size() -> None:
    cells = {
        "source": Source.Params(),
        "huge": Dense.Params(dim=2**24),
        "loss": SquareLoss.Params(),
    }
    words = r"Stage 0 \(cells? source .* does not fit /CPU:0: its [0-9,]+ weights .* GiB"
    with pytest.raises(DeviceMemoryError, match=words) as refusal:
        make_pipeline(cells, 1, 1)
    assert isinstance(refusal.value, UserError)


def test_p16_fewer_devices_than_stages_are_refused() -> None:
    words = r"num_stages \(3\) needs 3 devices; there are 2: /CPU:0, /CPU:1. Use num_stages=2."
    with pytest.raises(DeviceError, match=words):
        Pipeline.Params(num_stages=3).build(
            cells=dense_cells(4),
            learner=make_learner(),
            devices=["/CPU:0", "/CPU:1"],
            micro_batch={},
        )
    assert issubclass(DeviceError, UserError)
    words = r"num_stages \(6\) / stages_per_device \(2\) needs 3 devices; there are 2: /CPU:0"
    params = Pipeline.Params(num_stages=6, stages_per_device=2, schedule=ScheduleKind.interleaved)
    with pytest.raises(DeviceError, match=words):
        params.build(
            cells=dense_cells(7),
            learner=make_learner(),
            devices=["/CPU:0", "/CPU:1"],
            micro_batch={},
        )


def test_stages_that_share_a_device_have_their_weights_and_one_thread_there() -> None:
    pipeline = make_pipeline(dense_cells(6), 4, 3, "interleaved", "none", 2)
    assert [stage.device for stage in pipeline.stages] == ["/CPU:0", "/CPU:1"] * 2
    for stage in pipeline.stages:
        for variable in (*stage.variables.values(), *stage.accumulators.values()):
            assert variable.device.endswith(stage.device[1:])
    before = threading.active_count()
    pipeline.train_step(dense_batch(4))
    assert threading.active_count() == before + 3  # Two devices and the coordinator.
    pipeline.close()


def test_p09_more_stages_than_cells_are_refused() -> None:
    with pytest.raises(PartitionError, match=r"num_stages \(4\) is more than .* cells \(3\)"):
        make_pipeline(dense_cells(3), 4)


def test_an_explicit_partition_is_followed() -> None:
    pipeline = make_pipeline(dense_cells(4), 2, partition=[1, 3])
    assert [list(stage.cells) for stage in pipeline.stages] == [
        ["source"],
        ["dense_0", "dense_1", "loss"],
    ]
    with pytest.raises(PartitionError, match="add up to 4"):
        make_pipeline(dense_cells(4), 2, partition=[1, 2])


@pytest.mark.parametrize("field", ("num_stages", "num_micro_batches"))
def test_counts_below_one_are_refused(field: str) -> None:
    with pytest.raises(ParamsError, match=rf"{field} \(0\) must be at least 1\."):
        Pipeline.Params().copy(**{field: 0}).validate()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"stages_per_device": 0}, r"stages_per_device \(0\) must be at least 1"),
        ({"stages_per_device": 2}, "schedule gpipe runs one stage on each device"),
        (
            {"stages_per_device": 2, "num_stages": 5, "schedule": ScheduleKind.interleaved},
            r"num_stages \(5\) must be a multiple of stages_per_device \(2\), .*take 4 or 6 stages",
        ),
    ],
)
def test_p16_stages_that_cannot_be_dealt_out_are_refused(values: dict, words: str) -> None:
    with pytest.raises(ParamsError, match=words):
        Pipeline.Params().copy(**values).validate()
