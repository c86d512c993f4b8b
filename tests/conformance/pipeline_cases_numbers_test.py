"""Cases that broke other pipelines: those in which the numbers came out wrong.

Each is a fault that users of comparable systems met, numbered P1 to P17; the number is in the name
of its tests (`pytest -k p04`). Here are cases whose truth is a plain tape on one device; those
about running are in pipeline_cases_runs_test.py. Tests that need the tools of another file stand
there: P4 of the layer alone in layers/dropout_test.py, P5 in pipeline/stage_state_test.py, P6 in
pipeline/shared_weights_test.py, P8 and P12 in pipeline/stage_test.py, P15 in
pipeline/builder_test.py and pipeline/rematerialise_test.py.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.initializers import constant
from lingpipe.base.layer import Layer, Weight
from lingpipe.layers.dropout import Dropout
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.micro_batch import BatchError
from tests.pipeline.random_pipelines import Apply, Enter, WeightedLoss
from tests.pipeline.small_models import (
    EVERY_SETTING,
    Batch,
    Cell,
    Cells,
    Dense,
    Reference,
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
    reference_evaluation,
    reference_step,
    weights_of,
)

every_setting = pytest.mark.parametrize("setting", EVERY_SETTING, ids=str)

# ------------------------------------------------------------------ P1: batches that M does not fit

# (schedule, num_stages, num_micro_batches, stages_per_device)
COUNTS = [
    *(
        (schedule, 4, count, per_device)
        for schedule, per_device in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zb_h1", 1))
        for count in (1, 3, 4, 8)
    ),
    *(("zb_h1", 1, 2, 1), ("interleaved", 6, 7, 3), ("interleaved", 3, 2, 3)),
]


@functools.cache
def dense_reference(size: int) -> Reference:
    return reference_step(dense_cells(7), dense_batch(size))


@pytest.mark.parametrize(("schedule", "num_stages", "num_micro_batches", "per_device"), COUNTS)
def test_p01_gradients_are_exact_whatever_the_batch_size_is(
    schedule: str, num_stages: int, num_micro_batches: int, per_device: int
) -> None:
    """8 over 3, 7 over 4, 1 over 4, more micro-batches than examples, one, fewer than stages."""
    counts = num_stages, num_micro_batches, schedule, "none", per_device
    pipeline = make_recorder(dense_cells(7), *counts)
    for size in (8, 7, 1, 3):
        result, expected = pipeline.train_step(dense_batch(size)), dense_reference(size)
        assert result.weight == size
        assert result.loss == pytest.approx(expected.loss, rel=1e-5)
        assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
        assert_equal_arrays(gradients_of(pipeline), expected.gradients, atol=1e-6)
    pipeline.close()


# ------------------------------------------------------------------ P2: lengths that change

MASKED_CELLS: Cells = {
    "enter": Enter.Params(),
    **{f"dense_{i}": Apply.Params(layer=Dense.Params()) for i in range(3)},
    "loss": WeightedLoss.Params(),
}


def masked_batch(size: int, longest: int, seed: int = 0) -> Batch:
    """Examples of lengths from 1, of the first, to `longest`, of the last, padded to it."""
    numbers = np.random.default_rng(seed)
    return {
        "x": numbers.normal(size=(size, longest, 4)).astype(np.float32),
        "y": numbers.normal(size=(size, longest, 4)).astype(np.float32),
        "ids": np.zeros(size, np.int32),
        "lengths": np.linspace(1, longest, size).round().astype(np.int32),
        "weight": np.ones(size, np.float32),
    }


@every_setting
def test_p02_nothing_is_cut_or_stale_when_sizes_and_lengths_change(
    setting: tuple[str, str, int],
) -> None:
    """Lengths 5, 9, 3 in turn; other sizes are evaluated before the first step and in between."""
    pipeline = make_pipeline(MASKED_CELLS, 4, 3, *setting, learner=make_learner(rate=0.01))

    def evaluate(batch: Batch) -> None:
        expected = reference_evaluation(MASKED_CELLS, batch, weights_of(pipeline))
        assert pipeline.evaluate_step(batch) == pytest.approx(expected, rel=1e-5)

    evaluate(masked_batch(4, 7))
    for length in (5, 9, 3):
        before = weights_of(pipeline)
        expected = reference_step(MASKED_CELLS, masked_batch(6, length, length), weights=before)
        result = pipeline.train_step(masked_batch(6, length, length))
        assert result.sums == pytest.approx(expected.sums, rel=1e-5)
        moved = {path: w - 0.01 * expected.gradients[path] for path, w in before.items()}
        assert_equal_arrays(weights_of(pipeline), moved, atol=1e-6)
        evaluate(masked_batch(2, 11))
        evaluate(masked_batch(5, 1))
    assert pipeline.step == 3
    pipeline.close()


# ------------------------------------------------------------------ P3: ragged padding


class SumReduced(WeightedLoss):
    """A loss without a divisor: its weight is 1, which one micro-batch must give."""

    def __call__(self, inputs: Any, context: Context) -> dict[str, tf.Tensor]:
        one = tf.cast(tf.equal(context.first_example, 0), tf.float32)
        return {**super().__call__(inputs, context), "weight": one}


@pytest.mark.parametrize("loss", (WeightedLoss, SumReduced))
def test_p03_tokens_count_alike_in_any_number_of_micro_batches(loss: type[WeightedLoss]) -> None:
    """32 examples of 1 to 9 tokens: a mean of the micro-batches' means would be another number."""
    cells, batch = {**MASKED_CELLS, "loss": loss.Params()}, masked_batch(32, 9)
    expected = reference_step(cells, batch)
    assert expected.sums["weight"] == (1 if loss is SumReduced else batch["lengths"].sum())
    largest = max(np.abs(gradient).max() for gradient in expected.gradients.values())
    for num_micro_batches in (1, 2, 4, 8, 32):
        pipeline = make_recorder(cells, 2, num_micro_batches)
        result = pipeline.train_step(batch)
        assert result.loss == pytest.approx(expected.loss, rel=1e-5)
        assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
        assert_equal_arrays(gradients_of(pipeline), expected.gradients, atol=1e-6 * largest)
        pipeline.close()


# ------------------------------------------------------------------ P4: dropout


class Marks(Cell):
    """x [B, 4] -> x times a weight of 1 for each element of the 12 examples.

    In a linear net its gradient is 0 for just those elements that the masks drop.
    """

    class Params(Cell.Params):
        def weights(self) -> dict[str, Weight]:
            return {"marks": Weight((12, 4), constant(1.0))}

    marks: tf.Variable

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        first = context.first_example
        return inputs * self.marks[first : first + tf.shape(inputs, tf.int64)[0]]


class Drop(Cell):
    """Dropout as a cell, through XLA if asked."""

    class Params(Cell.Params):
        rate: float = 0.5
        compiled: bool = False

        def children(self) -> dict[str, Layer.Params]:
            return {"dropout": Dropout.Params(rate=self.rate)}

    params: Params
    dropout: Dropout

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        def drop(x: tf.Tensor) -> tf.Tensor:
            return self.dropout(x, context)

        if self.params.compiled:
            return tf.function(drop, jit_compile=True, autograph=False)(inputs)
        return drop(inputs)


class PatternLoss(Cell):
    """x [B, 4] -> its sum, and which elements of the 12 examples are not 0, a bit each."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        first = tf.cast(context.first_example, tf.float64)
        places = 4.0 * (first + tf.range(tf.shape(inputs)[0], dtype=tf.float64))
        bits = 2.0 ** (places[:, None] + tf.range(4, dtype=tf.float64))
        return {
            "loss": tf.reduce_sum(inputs),
            "weight": tf.cast(tf.shape(inputs)[0], tf.float32),
            "pattern": tf.reduce_sum(bits * tf.cast(inputs != 0.0, tf.float64)),
        }


STEPS = (1, 2, 5_000_000, 2**24, 2**24 + 1, 2**33)
DROP_BATCH = {"x": np.tile(np.array([[1, 2, 4, 8]], np.float32), (12, 1))}
DROP_PARTITIONS = {1: [6], 2: [5, 1], 4: [1, 2, 2, 1]}


def drop_cells(compiled: bool = False) -> Cells:
    """A linear net with two dropouts, neither on the last stage, which never computes again."""
    return {
        "source": Source.Params(),
        "marks": Marks.Params(),
        "drop_0": Drop.Params(rate=0.5, compiled=compiled),
        "scale": Scale.Params(),
        "drop_1": Drop.Params(rate=0.25, compiled=compiled),
        "loss": PatternLoss.Params(),
    }


def drop_pipeline(
    num_stages: int, remat: str = "none", compiled: bool = False, num_micro_batches: int = 4
) -> Pipeline:
    partition = DROP_PARTITIONS[num_stages]
    counts = num_stages, num_micro_batches, "1f1b", remat
    return make_recorder(drop_cells(compiled), *counts, partition=partition)


@functools.cache
def drop_reference(step: int) -> Reference:
    return reference_step(drop_cells(), DROP_BATCH, step=step)


def dropped(gradient: np.ndarray) -> np.ndarray:
    """Which of the 48 elements have no gradient."""
    return (gradient == 0).reshape(4, 12)


@pytest.mark.parametrize("compiled", (False, True), ids=("plain", "xla"))
@pytest.mark.parametrize("remat", ("none", "layer", "stage"))
@pytest.mark.parametrize("num_stages", (1, 2, 4))
def test_p04_a_mask_is_one_mask_forward_backward_and_on_one_device(
    num_stages: int, remat: str, compiled: bool
) -> None:
    pipeline = drop_pipeline(num_stages, remat, compiled)
    for step in STEPS:
        pipeline.step = step - 1
        result, expected = pipeline.train_step(DROP_BATCH), drop_reference(step)
        assert result.sums == pytest.approx(expected.sums, rel=1e-5)
        assert result.sums["pattern"] == expected.sums["pattern"]
        is_dropped = dropped(gradients_of(pipeline)["marks/marks"])
        kept = 2.0 ** np.arange(48) @ ~is_dropped.ravel()
        assert kept == result.sums["pattern"]
        # No two of the four micro-batches share a mask.
        assert len({row.tobytes() for row in is_dropped}) == 4
    pipeline.close()


def test_p04_every_step_and_no_micro_batch_changes_the_masks() -> None:
    patterns = {num_micro_batches: [0.0] for num_micro_batches in (1, 5, 12)}
    for num_micro_batches, found in patterns.items():
        pipeline = drop_pipeline(2, num_micro_batches=num_micro_batches)
        for step in STEPS:
            pipeline.step = step - 1
            found.append(pipeline.train_step(DROP_BATCH).sums["pattern"])
        pipeline.close()
    assert patterns[1] == patterns[5] == patterns[12]
    assert len(set(patterns[1])) == 1 + len(STEPS)


def test_p04_evaluation_drops_nothing() -> None:
    pipeline = drop_pipeline(2, "stage")
    pipeline.train_step(DROP_BATCH)
    expected = {"loss": 12 * 15.0, "weight": 12.0, "pattern": 2.0**48 - 1}
    assert pipeline.evaluate_step(DROP_BATCH) == expected
    pipeline.close()


# ------------------------------------------------------------------ P7: all stages together


@every_setting
def test_p07_clipping_sees_the_gradients_of_all_stages(setting: tuple[str, str, int]) -> None:
    """The limit lies above the norm of each stage and below that of all."""
    cells, batch = dense_cells(6), dense_batch(5)
    expected = reference_step(cells, batch)
    norms = [float(np.linalg.norm(gradient)) for gradient in expected.gradients.values()]
    limit = (max(norms) + expected.grad_norm) / 2
    assert max(norms) < limit < expected.grad_norm
    learner = make_learner(rate=0.5, clip_global_norm=limit)
    pipeline = make_pipeline(cells, 4, 2, *setting, partition=[2, 1, 1, 2], learner=learner)
    before = weights_of(pipeline)
    result = pipeline.train_step(batch)
    assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    factor = 0.5 * limit / expected.grad_norm
    moved = {path: w - factor * expected.gradients[path] for path, w in before.items()}
    assert_equal_arrays(weights_of(pipeline), moved, atol=1e-6)
    pipeline.close()


# ------------------------------------------------------------------ P8: unequal leading sizes


@pytest.mark.parametrize("call", ("train_step", "evaluate_step", "predict"))
def test_p08_seven_examples_beside_three_are_refused_naming_both(call: str) -> None:
    pipeline = make_pipeline(dense_cells(4), 2, 2)
    batch = {"x": dense_batch(7)["x"], "y": dense_batch(3)["y"]}
    with pytest.raises(BatchError, match="equally many examples; they hold {'x': 7, 'y': 3}"):
        getattr(pipeline, call)(batch)
    pipeline.close()


# ------------------------------------------------------------------ P13: stages without weights


class Fold(Cell):
    """x [B, 4] -> its halves in the other order: concat and reshape, no weight."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        halves = tf.concat([inputs[:, 2:], inputs[:, :2]], axis=0)
        return tf.reshape(tf.transpose(tf.reshape(halves, [2, -1, 2]), [1, 0, 2]), [-1, 4])


@every_setting
def test_p13_stages_without_weights_or_with_frozen_ones_pass_gradients_on(
    setting: tuple[str, str, int],
) -> None:
    cells = {
        "source": Source.Params(),
        "scale": Scale.Params(),
        "frozen": Dense.Params(trainable=False),
        "fold": Fold.Params(),
        "dense": Dense.Params(),
        "loss": SquareLoss.Params(),
    }
    batch = dense_batch(5)
    expected = reference_step(cells, batch)
    pipeline = make_pipeline(cells, 4, 2, *setting, partition=[2, 1, 1, 2])
    assert [len(stage.trainable) for stage in pipeline.stages] == [1, 0, 0, 1]
    before = weights_of(pipeline)
    result = pipeline.train_step(batch)
    assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    after = weights_of(pipeline)
    np.testing.assert_array_equal(after.pop("frozen/kernel"), before["frozen/kernel"])
    assert set(after) == {"scale/scale", "dense/kernel"}
    moved = {path: before[path] - 0.1 * expected.gradients[path] for path in after}
    assert_equal_arrays(after, moved, atol=1e-6)
    pipeline.close()


def test_p13_a_model_without_any_weight_has_a_loss_and_no_gradient() -> None:
    cells = {"source": Source.Params(), "fold": Fold.Params(), "loss": SquareLoss.Params()}
    pipeline = make_pipeline(cells, 3, 2)
    result = pipeline.train_step(dense_batch(4))
    assert result.loss == pytest.approx(reference_step(cells, dense_batch(4)).loss, rel=1e-5)
    assert (result.grad_norm, pipeline.weights, pipeline.slots) == (0.0, {}, {})
    pipeline.close()
