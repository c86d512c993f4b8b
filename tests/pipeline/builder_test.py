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
from lingpipe.base.layer import Layer, Scope
from lingpipe.cluster.devices import DeviceError
from lingpipe.errors import UserError
from lingpipe.hyperparams import ParamsError
from lingpipe.layers.dropout import Dropout
from lingpipe.learner.optimizers import Adam
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.errors import DeviceMemoryError
from lingpipe.pipeline.partitioner import PartitionError
from lingpipe.pipeline.schedules import ScheduleKind
from lingpipe.pipeline.step_result import NonFiniteError
from tests.pipeline.small_models import (
    EVERY_SETTING,
    SEED,
    TRANSLATION_MICRO_BATCH,
    Cell,
    Dense,
    Scale,
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


# ------------------------------------------------------------------ batches of all sizes


# (schedule, num_stages, num_micro_batches, stages_per_device)
SIZES = [
    *(
        (name, *counts, 1)
        for name in ("gpipe", "1f1b")
        for counts in ((2, 3), (4, 4), (3, 1), (2, 8))
    ),
    *(("zb_h1", *counts, 1) for counts in ((1, 2), (2, 3), (4, 4), (3, 1), (4, 2), (3, 8))),
    *(
        ("interleaved", *counts)
        for counts in ((2, 3, 1), (4, 3, 2), (4, 1, 2), (6, 7, 3), (3, 2, 3))
    ),
]


@pytest.mark.parametrize(("schedule", "num_stages", "num_micro_batches", "per_device"), SIZES)
def test_gradients_are_exact_whatever_the_batch_size_is(
    schedule: str, num_stages: int, num_micro_batches: int, per_device: int
) -> None:
    cells = dense_cells(7)
    pipeline = make_recorder(cells, num_stages, num_micro_batches, schedule, "none", per_device)
    for size in (8, 7, 1, 3):
        result = pipeline.train_step(dense_batch(size))
        expected = reference_step(cells, dense_batch(size))
        assert result.weight == size
        assert result.loss == pytest.approx(expected.loss, rel=1e-5)
        assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
        assert_equal_arrays(gradients_of(pipeline), expected.gradients, atol=1e-6)
    pipeline.close()


def test_batches_of_all_lengths_and_evaluations_in_between() -> None:
    def batch(size: int, length: int) -> dict[str, np.ndarray]:
        numbers = np.random.default_rng(length)
        return {k: numbers.normal(size=(size, length, 4)).astype(np.float32) for k in "xy"}

    pipelines = [make_pipeline(dense_cells(5), 3, 3), make_pipeline(dense_cells(5))]
    outcomes: list[list[float]] = [[], []]
    for pipeline, outcome in zip(pipelines, outcomes, strict=True):
        outcome.append(pipeline.evaluate_step(batch(4, 7))["loss"])
        for length in (5, 9, 3):
            outcome.append(pipeline.train_step(batch(6, length)).loss)
            before = weights_of(pipeline)
            outcome.append(pipeline.evaluate_step(batch(2, 11))["loss"])
            assert_equal_arrays(weights_of(pipeline), before, rtol=0, atol=0)
        assert pipeline.step == 3
        pipeline.close()
    np.testing.assert_allclose(outcomes[0], outcomes[1], rtol=1e-5)
    assert len(set(outcomes[0])) == len(outcomes[0])


class WeightedLoss(Cell):
    """Squares times the entry 'weight' [B]; divided by the sum of weights, or by nothing."""

    class Params(Cell.Params):
        keys = ["weight"]
        sum_reduced: bool = False

    params: Params

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        weights = context.batch["weight"]
        losses = tf.reduce_sum(inputs**2, axis=-1) * weights
        # A loss without a divisor has the weight 1, which one micro-batch must give.
        one = tf.cast(tf.equal(context.first_example, 0), tf.float32)
        total = one if self.params.sum_reduced else tf.reduce_sum(weights)
        return {"loss": tf.reduce_sum(losses), "weight": total}


@pytest.mark.parametrize("sum_reduced", (False, True))
def test_examples_count_by_their_weight_and_not_by_their_micro_batch(sum_reduced: bool) -> None:
    cells = {**dense_cells(4), "loss": WeightedLoss.Params(sum_reduced=sum_reduced)}
    # Most of the weight, and all of the zeros, stand in few micro-batches.
    weight = np.geomspace(1e-2, 1e2, 32).astype(np.float32) * (np.arange(32) % 5 > 0)
    batch = {"x": dense_batch(32)["x"], "weight": weight.astype(np.float32)}
    expected = reference_step(cells, batch)
    for num_micro_batches in (1, 4, 32):
        pipeline = make_recorder(cells, 2, num_micro_batches)
        result = pipeline.train_step(batch)
        assert result.loss == pytest.approx(expected.loss, rel=1e-5)
        assert result.weight == pytest.approx(1.0 if sum_reduced else weight.sum(), rel=1e-5)
        largest = max(np.abs(gradient).max() for gradient in expected.gradients.values())
        assert_equal_arrays(gradients_of(pipeline), expected.gradients, atol=1e-6 * largest)
        pipeline.close()


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


# ------------------------------------------------------------------ dropout


class Drop(Cell):
    """Dropout as a cell."""

    class Params(Cell.Params):
        rate: float = 0.5

        def children(self) -> dict[str, Layer.Params]:
            return {"dropout": Dropout.Params(rate=self.rate)}

    dropout: Dropout

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        return self.dropout(inputs, context)


class SumLoss(Cell):
    """x [B, D] -> its sum, the sum of squares of examples' sums, and the number of zeros."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        sums = tf.reduce_sum(inputs, axis=-1)
        return {
            "loss": tf.reduce_sum(sums),
            "weight": tf.cast(tf.shape(inputs)[0], tf.float32),
            "squares": tf.reduce_sum(sums**2),
            "zeros": tf.reduce_sum(tf.cast(inputs == 0.0, tf.float32)),
        }


DROP_CELLS = {
    "source": Source.Params(),
    "scale_0": Scale.Params(),
    "drop_0": Drop.Params(rate=0.5),
    "scale_1": Scale.Params(),
    "drop_1": Drop.Params(rate=0.25),
    "loss": SumLoss.Params(),
}
# Equal examples, so that two that share a mask give equal sums.
DROP_BATCH = {"x": np.tile(np.array([[1, 2, 4, 8]], np.float32), (12, 1))}


@functools.cache
def drop_pipeline(remat: str) -> Pipeline:
    return make_recorder(DROP_CELLS, 2, 4, "1f1b", remat)


@pytest.mark.parametrize("step", (1, 5_000_000, 2**24, 2**33))
@pytest.mark.parametrize("remat", ("none", "layer", "stage"))
def test_a_mask_is_the_same_when_it_is_computed_again(remat: str, step: int) -> None:
    """The sum of a linear net equals its weights times their gradients only if masks are equal."""
    pipeline = drop_pipeline(remat)
    pipeline.step = step - 1
    result = pipeline.train_step(DROP_BATCH)
    for gradient in gradients_of(pipeline).values():
        assert np.sum(gradient) == pytest.approx(result.loss, rel=1e-5)
    expected = reference_step(DROP_CELLS, DROP_BATCH, step=step)
    assert result.sums == pytest.approx(expected.sums, rel=1e-5)
    # Were all masks equal, so would be all sums of examples.
    assert 12 * result.sums["squares"] > 1.01 * result.sums["loss"] ** 2


def test_steps_have_masks_of_their_own() -> None:
    pipeline = drop_pipeline("none")
    losses = []
    for step in (1, 2, 3, 2**24, 2**24 + 1):
        pipeline.step = step - 1
        losses.append(pipeline.train_step(DROP_BATCH).sums["squares"])
    assert len(set(losses)) == 5


def test_examples_have_masks_of_their_own_in_every_micro_batch() -> None:
    squares = []
    for num_micro_batches in (1, 12):
        pipeline = make_recorder(DROP_CELLS, 1, num_micro_batches)
        sums = pipeline.train_step(DROP_BATCH).sums
        assert 12 * sums["squares"] > 1.01 * sums["loss"] ** 2
        squares.append(sums["squares"])
        pipeline.close()
    assert squares[0] == pytest.approx(squares[1], rel=1e-5)


def test_evaluation_drops_nothing() -> None:
    sums = drop_pipeline("stage").evaluate_step(DROP_BATCH)
    assert sums == {"loss": 12 * 15.0, "weight": 12.0, "squares": 12 * 15.0**2, "zeros": 0.0}


# ------------------------------------------------------------------ precision


@pytest.mark.parametrize("remat", ("layer", "stage"))
def test_what_is_computed_again_in_bfloat16_is_equal_to_the_bit(remat: str) -> None:
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
def test_the_loss_of_a_model_in_short_dtypes_has_one_value_wherever_it_is_read(
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


# ------------------------------------------------------------------ clipping, frozen weights, XLA


@pytest.mark.parametrize("num_stages", (1, 3))
def test_clipping_sees_the_gradients_of_all_stages(num_stages: int) -> None:
    cells, batch = dense_cells(6), dense_batch(5)
    expected = reference_step(cells, batch)
    limit = expected.grad_norm / 3
    pipeline = make_pipeline(
        cells, num_stages, 2, learner=make_learner(rate=0.5, clip_global_norm=limit)
    )
    before = weights_of(pipeline)
    result = pipeline.train_step(batch)
    assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    assert result.learning_rate == 0.5
    moved = {path: weight - 0.5 * expected.gradients[path] / 3 for path, weight in before.items()}
    assert_equal_arrays(weights_of(pipeline), moved, atol=1e-6)
    pipeline.close()


@pytest.mark.parametrize("setting", EVERY_SETTING, ids=str)
def test_stages_without_weights_or_with_frozen_ones_run_and_frozen_weights_stay(
    setting: tuple[str, str, int],
) -> None:
    cells = {
        "source": Source.Params(),
        "frozen": Dense.Params(trainable=False),
        "dense": Dense.Params(),
        "loss": SquareLoss.Params(),
    }
    batch = dense_batch(5)
    expected = reference_step(cells, batch)
    pipeline = make_pipeline(cells, 4, 2, *setting)
    before = weights_of(pipeline)
    assert set(before) == {"frozen/kernel", "dense/kernel"}
    result = pipeline.train_step(batch)
    assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    after = weights_of(pipeline)
    np.testing.assert_array_equal(after["frozen/kernel"], before["frozen/kernel"])
    moved = before["dense/kernel"] - 0.1 * expected.gradients["dense/kernel"]
    np.testing.assert_allclose(after["dense/kernel"], moved, rtol=1e-5, atol=1e-6)
    pipeline.close()


def test_a_model_without_any_weight_has_a_loss_and_no_gradient() -> None:
    cells = {"source": Source.Params(), "loss": SquareLoss.Params()}
    pipeline = make_pipeline(cells, 2, 2)
    result = pipeline.train_step(dense_batch(4))
    assert result.loss == pytest.approx(reference_step(cells, dense_batch(4)).loss, rel=1e-5)
    assert (result.grad_norm, pipeline.weights, pipeline.slots) == (0.0, {}, {})
    pipeline.close()


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


# ------------------------------------------------------------------ several pipelines, refusals


def test_two_pipelines_take_turns_without_meeting() -> None:
    def steps(pipelines: list[Pipeline]) -> list[list[float]]:
        batches = [dense_batch(4, seed) for seed in range(3)]
        return [[pipeline.train_step(batch).loss for pipeline in pipelines] for batch in batches]

    def make(count: int) -> Pipeline:
        return make_pipeline(dense_cells(count), 2, 2)

    together = steps([make(4), make(5)])
    alone = [steps([make(count)]) for count in (4, 5)]
    for row, (first, second) in zip(together, zip(*alone, strict=True), strict=True):
        assert row == [*first, *second]


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


def test_fewer_devices_than_stages_are_refused() -> None:
    with pytest.raises(
        DeviceError, match=r"num_stages \(3\) .* needs 3 devices; .* 2: /CPU:0, /CPU:1"
    ):
        Pipeline.Params(num_stages=3).build(
            cells=dense_cells(4),
            learner=make_learner(),
            devices=["/CPU:0", "/CPU:1"],
            micro_batch={},
        )
    assert issubclass(DeviceError, UserError)
    words = r"num_stages \(6\) with stages_per_device \(2\) needs 3 devices; there are 2: /CPU:0"
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


def test_more_stages_than_cells_are_refused() -> None:
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
def test_stages_that_cannot_be_dealt_out_are_refused(values: dict, words: str) -> None:
    with pytest.raises(ParamsError, match=words):
        Pipeline.Params().copy(**values).validate()
