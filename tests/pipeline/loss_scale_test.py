"""Float16 and bfloat16: what vanishes, what overflows, and that all stages go on together.

The truth is a plain tape in float32, or a pipeline that never met the overflow.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer
from lingpipe.learner.loss_scale import LossScale, LossScaleState
from lingpipe.learner.optimizers import Adam, Optimizer
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.step_result import NonFiniteError, StepResult
from tests.pipeline.small_models import (
    EVERY_SETTING,
    TRANSLATION_MICRO_BATCH,
    Batch,
    Cell,
    Cells,
    Dense,
    Norm,
    Recorder,
    Scale,
    Source,
    SquareLoss,
    assert_equal_arrays,
    dense_batch,
    dense_cells,
    gradients_of,
    make_learner,
    make_pipeline,
    reference_step,
    transformer,
    translation_batch,
    translation_signature,
    weights_of,
)

LIMIT, BEYOND = 10.0, 17.0
SHORT = (tf.float16, tf.bfloat16)


class Steep(Cell):
    """x -> x, whose slope is the greatest of its dtype where 'x' is not below `LIMIT`."""

    class Params(Cell.Params):
        keys = ["x"]

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        is_steep = tf.reduce_any(context.batch["x"] >= LIMIT, axis=-1, keepdims=True)

        @tf.custom_gradient
        def function(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return tf.identity(x), lambda slope: tf.where(is_steep, slope * x.dtype.max, slope)

        return function(inputs)


class SumLoss(Cell):
    """x [B, D] -> a factor times the sum, in float32, and the number of examples."""

    class Params(Cell.Params):
        factor: float = 1.0

    params: Params

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        total = self.params.factor * tf.reduce_sum(tf.cast(inputs, tf.float32))
        return {"loss": total, "weight": tf.cast(tf.shape(inputs)[0], tf.float32)}


class Squares(SquareLoss):
    """The squared distances, with 'y' in the dtype of x."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        difference = tf.cast(inputs, tf.float32) - context.batch["y"]
        count = tf.cast(tf.shape(inputs)[0], tf.float32)
        return {"loss": tf.reduce_sum(difference**2), "weight": count}


def cells_of(*middle: Layer.Params) -> dict[str, Layer.Params]:
    """A source, the given cells and a loss."""
    named = {f"{type(cell).owner.__name__.lower()}_{i}": cell for i, cell in enumerate(middle)}
    return {"source": Source.Params(), **named, "loss": Squares.Params()}


def steep_cells() -> dict[str, Layer.Params]:
    """Six cells; only the first weight lies before the steep one."""
    return cells_of(Dense.Params(), Steep.Params(), Dense.Params(), Dense.Params())


def steep_batch(seed: int) -> Batch:
    """A batch whose gradient overflows float16 at the steep cell."""
    batch = dense_batch(6, seed)
    batch["x"][4, 0] = BEYOND
    return batch


def half_pipeline(
    cells: Cells, *args: Any, optimizer: Optimizer.Params | None = None, **kwargs: Any
) -> Pipeline:
    """A pipeline in float16, by default with a loss scale of 256; other values go to the scale."""
    names = LossScale.Params.fields_by_name()
    values = {name: kwargs.pop(name) for name in names if name in kwargs}
    learner = make_learner(optimizer, loss_scale=LossScale.Params(**{"initial": 256.0, **values}))
    return make_pipeline(cells, *args, learner=learner, compute_dtype=tf.float16, **kwargs)


def half_recorder(cells: Cells, *args: Any, **kwargs: Any) -> Pipeline:
    """One that moves nothing and shows its gradients."""
    return half_pipeline(cells, *args, optimizer=Recorder.Params(), **kwargs)


def everything_of(pipeline: Pipeline) -> dict[str, np.ndarray]:
    return {**weights_of(pipeline), **{name: slot.numpy() for name, slot in pipeline.slots.items()}}


def finite_stages(pipeline: Pipeline) -> list[bool]:
    """For each stage whether the gradients of the last step are all finite there."""
    return [
        all(np.isfinite(sums).all() for sums in stage.accumulators.values())
        for stage in pipeline.stages
    ]


def assert_near(
    found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], tolerance: float
) -> None:
    """Each array's distance is at most a share of its length, or of a thousandth of all of them."""
    assert set(found) == set(expected)
    whole = math.sqrt(sum(np.sum(value**2) for value in expected.values()))
    for name, value in expected.items():
        distance = np.linalg.norm(found[name] - value)
        assert distance <= tolerance * max(np.linalg.norm(value), 1e-3 * whole), name


# ------------------------------------------------------------------ overflows


@pytest.mark.parametrize("setting", EVERY_SETTING, ids=str)
def test_an_overflow_in_the_first_stage_alone_skips_all_stages_and_halves_the_scale_once(
    setting: tuple[str, str, int],
) -> None:
    cells = steep_cells()
    pipeline = half_recorder(cells, 4, 3, *setting, partition=[3, 1, 1, 1])
    first = pipeline.train_step(dense_batch(6))
    assert_near(gradients_of(pipeline), reference_step(cells, dense_batch(6)).gradients, 0.01)
    assert (first.loss_scale, first.is_skipped) == (256.0, False)

    before = everything_of(pipeline)
    skipped = pipeline.train_step(steep_batch(1))
    assert finite_stages(pipeline) == [False, True, True, True]
    assert (skipped.step, skipped.loss_scale, skipped.is_skipped) == (2, 256.0, True)
    assert skipped.loss == pytest.approx(reference_step(cells, steep_batch(1)).loss, rel=0.01)
    assert not math.isfinite(skipped.grad_norm)
    assert pipeline.loss_scale == LossScaleState(128.0)
    assert_equal_arrays(everything_of(pipeline), before, rtol=0, atol=0)

    third = pipeline.train_step(dense_batch(6, 2))
    expected = reference_step(cells, dense_batch(6, 2))
    assert (third.step, third.loss_scale, third.is_skipped) == (3, 128.0, False)
    assert third.grad_norm == pytest.approx(expected.grad_norm, rel=0.01)
    assert_near(gradients_of(pipeline), expected.gradients, 0.01)
    pipeline.close()


@pytest.mark.parametrize("remat", ("none", "stage"))
def test_weights_slots_and_state_go_on_as_if_a_skipped_batch_had_not_been(remat: str) -> None:
    cells = cells_of(Norm.Params(), Dense.Params(), Norm.Params(), Steep.Params(), Dense.Params())
    pipeline, fresh = (
        half_pipeline(cells, 3, 3, remat=remat, optimizer=Adam.Params()) for _ in range(2)
    )
    for each in (pipeline, fresh):
        each.train_step(dense_batch(6))
    before = everything_of(pipeline)
    assert [name for name in before if "moving" in name]
    assert pipeline.train_step(steep_batch(1)).is_skipped
    assert_equal_arrays(everything_of(pipeline), before, rtol=0, atol=0)
    fresh.step = 2  # Adam counts steps, and so does dropout.
    fresh.restore_loss_scale({"scale": 128.0, "good_steps": 0})
    assert pipeline.train_step(dense_batch(6, 2)) == fresh.train_step(dense_batch(6, 2))
    assert_equal_arrays(everything_of(pipeline), everything_of(fresh), rtol=0, atol=0)
    pipeline.close()
    fresh.close()


def test_the_scale_falls_to_the_smallest_and_then_the_step_is_refused() -> None:
    pipeline = half_pipeline(steep_cells(), 2, 2, initial=8.0, smallest=2.0)
    before = everything_of(pipeline)
    scales = [pipeline.train_step(steep_batch(1)).loss_scale for _ in range(2)]
    assert scales == [8.0, 4.0]
    words = r"Step 3: loss .*, gradient norm (inf|nan) at a loss scale of 2\. No update.*bfloat16"
    with pytest.raises(NonFiniteError, match=words):
        pipeline.train_step(steep_batch(1))
    assert pipeline.step == 2
    assert pipeline.loss_scale == LossScaleState(2.0)
    assert_equal_arrays(everything_of(pipeline), before, rtol=0, atol=0)
    assert not pipeline.train_step(dense_batch(6)).is_skipped
    pipeline.close()


def test_a_loss_that_is_not_finite_is_refused_at_once() -> None:
    pipeline, bad = half_pipeline(dense_cells(5), 2, 2), dense_batch(6)
    bad["x"][4, 1] = math.inf
    bad["y"] = bad["y"].astype(np.float16)
    with pytest.raises(NonFiniteError, match="loss (inf|nan), .* at a loss scale of 256"):
        pipeline.train_step(bad)
    assert (pipeline.step, pipeline.loss_scale) == (0, LossScaleState(256.0))
    pipeline.close()


def test_the_scale_grows_after_good_steps_and_a_batch_without_weight_is_none() -> None:
    class Weighted(Squares):
        """The sum of squares, every example's weight its entry 'y'."""

        def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
            weight = context.batch["y"][:, :1]
            squares = tf.cast(inputs, tf.float32) ** 2
            return {"loss": tf.reduce_sum(squares * weight), "weight": tf.reduce_sum(weight)}

    cells = {**dense_cells(4), "loss": Weighted.Params()}
    pipeline = half_pipeline(cells, 2, 2, growth_steps=2, largest=512.0)
    results: list[StepResult] = []
    for weight in (1.0, 0.0, 1.0, 1.0, 1.0, 1.0):
        batch = {"x": dense_batch(4)["x"], "y": np.full((4, 4), weight, np.float32)}
        results.append(pipeline.train_step(batch))
    assert [result.loss_scale for result in results] == [256, 256, 256, 512, 512, 512]
    assert not any(result.is_skipped for result in results)
    pipeline.close()


def test_other_dtypes_have_no_loss_scale_and_refuse_what_overflows() -> None:
    for dtype in (tf.float32, tf.bfloat16):
        pipeline, batch = make_pipeline(steep_cells(), 2, 2, compute_dtype=dtype), steep_batch(1)
        pipeline.restore_loss_scale({"scale": 64.0, "good_steps": 3})
        assert pipeline.loss_scale is None
        with pytest.raises(NonFiniteError, match=r"Step 1: loss .*, gradient norm (inf|nan)\. No"):
            # The square of the greatest float is none.
            pipeline.train_step(batch)
        result = pipeline.train_step(dense_batch(6))
        assert (result.step, result.loss_scale, result.is_skipped) == (1, 1.0, False)
        pipeline.close()


# ------------------------------------------------------------------ what vanishes, what is lost


def test_gradients_too_small_for_float16_survive_by_the_scale() -> None:
    cells = {**cells_of(Dense.Params(), Scale.Params()), "loss": SumLoss.Params(factor=1e-8)}
    expected = reference_step(cells, dense_batch(6)).gradients
    assert all(np.abs(gradient).max() > 1e-9 for gradient in expected.values())
    for initial in (1.0, 2.0**15):
        pipeline = half_recorder(cells, 2, 3, initial=initial)
        pipeline.train_step(dense_batch(6))
        found = gradients_of(pipeline)
        if initial == 1.0:
            assert not any(gradient.any() for gradient in found.values())
        else:
            assert_near(found, expected, 0.01)
        pipeline.close()


@pytest.mark.parametrize(("dtype", "large"), [(tf.float16, 2048.0), (tf.bfloat16, 256.0)])
def test_gradients_are_added_up_in_float32(dtype: tf.DType, large: float) -> None:
    half = dtype.as_numpy_dtype
    assert half(large) + half(1) == half(large), "a sum in the short dtype would lose every 1"
    cells = {"source": Source.Params(), "scale": Scale.Params(), "loss": SumLoss.Params()}
    learner = make_learner(Recorder.Params(), loss_scale=LossScale.Params(initial=8.0))
    pipeline = make_pipeline(cells, 2, 8, "1f1b", learner=learner, compute_dtype=dtype)
    x = np.ones((8, 4), np.float32)
    x[0] = large
    result = pipeline.train_step({"x": x})
    np.testing.assert_array_equal(gradients_of(pipeline)["scale/scale"], [(large + 7) / 8] * 4)
    assert result.grad_norm == pytest.approx(2 * (large + 7) / 8, rel=1e-6)
    pipeline.close()


def test_scales_that_neither_overflow_nor_underflow_give_equal_weights_to_the_bit() -> None:
    histories = []
    for initial in (16.0, 256.0):
        learner = make_learner(
            Adam.Params(), clip_global_norm=0.5, loss_scale=LossScale.Params(initial=initial)
        )
        cells = cells_of(Dense.Params(), Dense.Params())
        pipeline = make_pipeline(cells, 2, 3, learner=learner, compute_dtype=tf.float16)
        results = [pipeline.train_step(dense_batch(6, seed)) for seed in range(4)]
        histories.append((everything_of(pipeline), [(r.loss, r.grad_norm) for r in results]))
        pipeline.close()
    assert_equal_arrays(histories[0][0], histories[1][0], rtol=0, atol=0)
    assert histories[0][1] == histories[1][1]


# ------------------------------------------------------------------ a Transformer in short dtypes


def translation_recorder(dtype: tf.DType, setting: tuple[str, str, int]) -> Pipeline:
    return make_pipeline(
        transformer().cells(),
        4,
        3,
        *setting,
        learner=make_learner(Recorder.Params(), loss_scale=LossScale.Params(initial=256.0)),
        micro_batch=TRANSLATION_MICRO_BATCH,
        signature=translation_signature(),
        compute_dtype=dtype,
    )


@functools.cache
def short_step(
    dtype: tf.DType, setting: tuple[str, str, int]
) -> tuple[StepResult, dict[str, np.ndarray]]:
    pipeline = translation_recorder(dtype, setting)
    result = pipeline.train_step(translation_batch(7))
    pipeline.close()
    return result, gradients_of(pipeline)


@pytest.mark.parametrize(("dtype", "tolerance"), zip(SHORT, (0.02, 0.15), strict=True))
def test_gradients_in_short_dtypes_are_near_those_in_float32(
    dtype: tf.DType, tolerance: float
) -> None:
    """With dropout, whose masks are the same in every dtype."""
    expected = reference_step(transformer().cells(), translation_batch(7))
    result, gradients = short_step(dtype, EVERY_SETTING[0])
    assert result.loss == pytest.approx(expected.loss, rel=tolerance)
    assert result.grad_norm == pytest.approx(expected.grad_norm, rel=tolerance)
    assert_near(gradients, expected.gradients, tolerance)


@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("setting", [("1f1b", "layer", 1), ("zb_h1", "stage", 1)], ids=str)
def test_what_is_computed_again_gives_gradients_that_are_equal_to_the_bit(
    dtype: tf.DType, setting: tuple[str, str, int]
) -> None:
    (plain, expected), (again, found) = (
        short_step(dtype, each) for each in (EVERY_SETTING[0], setting)
    )
    assert plain == again
    assert_equal_arrays(found, expected, rtol=0, atol=0)
