"""State moves once a step, by the statistics of the whole mini-batch, if the step succeeds.

Moving moments are held against NumPy, for every schedule and rematerialisation.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.layer import Layer, SharedWeightError
from lingpipe.base.spec import Spec, Specs
from lingpipe.base.state import StatefulLayer
from lingpipe.errors import UserError
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.errors import PipelineError
from lingpipe.pipeline.micro_batch import MicroBatch, micro_batch_sizes
from lingpipe.pipeline.step_result import NonFiniteError
from tests.pipeline.small_models import (
    EVERY_SETTING,
    Batch,
    Cell,
    Cells,
    Dense,
    Norm,
    Scale,
    Source,
    SquareLoss,
    assert_equal_arrays,
    dense_batch,
    dense_cells,
    gradients_of,
    make_pipeline,
    make_recorder,
    normalised_cells,
    reference_step,
    weights_of,
)

State = dict[str, np.ndarray]
MOMENTUM, EPSILON = 0.9, 1e-3


def state_of(pipeline: Pipeline) -> State:
    return {path: value for path, value in weights_of(pipeline).items() if "moving" in path}


def everything_of(pipeline: Pipeline) -> State:
    return {**weights_of(pipeline), **{name: slot.numpy() for name, slot in pipeline.slots.items()}}


def moved(state: State, path: str, rows: np.ndarray) -> State:
    """The moving moments below `path` after a mini-batch whose rows [n, D] are all of `rows`."""
    moments = {"mean": rows.mean(axis=0), "variance": rows.var(axis=0)}
    return {
        f"{path}/moving_{name}": MOMENTUM * state[f"{path}/moving_{name}"] + (1 - MOMENTUM) * moment
        for name, moment in moments.items()
    }


def plain_state(weights: State, batch: Batch, num_micro_batches: int) -> State:
    """State of `normalised_cells` after a step, scale and bias as they start, in plain NumPy."""

    def normalise(x: np.ndarray) -> np.ndarray:
        return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + EPSILON)

    sizes = micro_batch_sizes(len(batch["x"]), num_micro_batches)
    inputs = np.split(batch["x"].astype(np.float64), np.cumsum(sizes)[:-1])
    hidden = [normalise(x) for x in inputs]
    hidden = [x + np.tanh(x @ weights["dense_0/kernel"]) for x in hidden]
    return {
        **moved(weights, "norm_0/norm", np.concatenate(inputs)),
        **moved(weights, "norm_1/norm", np.concatenate(hidden)),
    }


# ------------------------------------------------------------------ one update a mini-batch


@pytest.mark.parametrize("setting", EVERY_SETTING, ids=str)
def test_p05_state_moves_once_a_mini_batch_whatever_the_schedule_is_and_computes_again(
    setting: tuple[str, str, int],
) -> None:
    """Six examples in four micro-batches: two of two, two of one."""
    pipeline, batch = make_pipeline(normalised_cells(), 4, 4, *setting), dense_batch(6)
    expected = plain_state(weights_of(pipeline), batch, 4)
    result = pipeline.train_step(batch)
    assert_equal_arrays(state_of(pipeline), expected, atol=1e-6)
    reference = reference_step(normalised_cells(), batch, num_micro_batches=4)
    assert result.loss == pytest.approx(reference.loss, rel=1e-5)
    assert result.grad_norm == pytest.approx(reference.grad_norm, rel=1e-5)
    pipeline.close()


@pytest.mark.parametrize("num_micro_batches", (1, 2, 4, 8))
def test_p05_any_number_of_micro_batches_is_one_update_for_batches_of_all_sizes(
    num_micro_batches: int,
) -> None:
    pipeline = make_recorder(normalised_cells(), 2, num_micro_batches)
    for seed, size in enumerate((6, 8, 1, 7)):
        batch = dense_batch(size, seed)
        expected = plain_state(weights_of(pipeline), batch, num_micro_batches)
        pipeline.train_step(batch)
        assert_equal_arrays(state_of(pipeline), expected, atol=1e-6)
    pipeline.close()


def test_state_follows_batches_of_other_shapes_too() -> None:
    pipeline = make_recorder(normalised_cells(), 2, 2)
    for length in (5, 2):
        numbers = np.random.default_rng(length)
        batch = {key: numbers.normal(size=(3, length, 4)).astype(np.float32) for key in "xy"}
        expected = moved(weights_of(pipeline), "norm_0/norm", batch["x"].reshape(-1, 4))
        pipeline.train_step(batch)
        found = {path: value for path, value in state_of(pipeline).items() if "norm_0" in path}
        assert_equal_arrays(found, expected, atol=1e-6)
    pipeline.close()


class SelfRecomputing(Norm):
    """BatchNorm that forgets its activations by itself."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        return tf.recompute_grad(lambda x: self.norm(x, context))(inputs)


@pytest.mark.parametrize("setting", EVERY_SETTING[:3], ids=str)
def test_a_layer_that_computes_itself_again_reports_once(setting: tuple[str, str, int]) -> None:
    cells = {**normalised_cells(), "norm_1": SelfRecomputing.Params()}
    pipeline, batch = make_recorder(cells, 2, 2, *setting, partition=[2, 4]), dense_batch(5)
    expected = plain_state(weights_of(pipeline), batch, 2)
    pipeline.train_step(batch)
    assert_equal_arrays(state_of(pipeline), expected, atol=1e-6)
    reference = reference_step(normalised_cells(), batch, num_micro_batches=2)
    assert_equal_arrays(gradients_of(pipeline), reference.gradients, atol=1e-6)
    pipeline.close()


def test_state_has_no_slot_and_no_gradient() -> None:
    pipeline = make_recorder(normalised_cells(), 2, 2)
    pipeline.train_step(dense_batch(4))
    assert not [name for name in pipeline.slots if "moving" in name]
    assert not [path for stage in pipeline.stages for path in stage.accumulators if "mov" in path]
    assert len(state_of(pipeline)) == 4
    pipeline.close()


def test_stages_without_state_return_no_vector_and_update_nothing() -> None:
    pipeline = make_pipeline(normalised_cells(), 3, 2, partition=[1, 2, 3])
    plain = make_pipeline(dense_cells(6), 3, 2, partition=[1, 2, 3])
    for each in (pipeline, plain):
        each.train_step(dense_batch(4))
    # Outputs of the forward functions: what is sent on, and the vector where there is state.
    assert [stage._training.num_outputs for stage in plain.stages] == [1, 1, 2]
    assert [stage._training.num_outputs for stage in pipeline.stages] == [1, 2, 3]
    assert [len(stage.state.layers) for stage in pipeline.stages] == [0, 1, 1]
    assert [stage.state._update is None for stage in pipeline.stages] == [True, False, False]
    pipeline.close()
    plain.close()


def test_a_batch_norm_keeps_one_tensor_of_the_size_of_its_inputs() -> None:
    cells = {"source": Source.Params(), "norm": Norm.Params(), "loss": SquareLoss.Params()}
    pipeline, batch = make_pipeline(cells, 3), dense_batch(7)
    pipeline.train_step(batch)
    _, kept = pipeline.stages[1].forward([tf.constant(batch["x"])], MicroBatch(0, {}), 1)
    assert [tensor.shape for tensor in kept if tensor.shape.rank == 2] == [(7, 4)]
    pipeline.close()


# ------------------------------------------------------------------ evaluation


def test_evaluation_reads_the_state_changes_nothing_and_is_the_same_for_every_split() -> None:
    pipelines = [make_pipeline(normalised_cells(), 2, count) for count in (1, 8)]
    for seed in range(3):
        pipelines[0].train_step(dense_batch(6, seed))
    for path, variable in pipelines[1].weights.items():
        variable.assign(pipelines[0].weights[path])
    batch, sums = dense_batch(9), []
    for pipeline in pipelines:
        before = everything_of(pipeline)
        sums.append(pipeline.evaluate_step(batch))
        assert_equal_arrays(everything_of(pipeline), before, rtol=0, atol=0)
        pipeline.close()
    assert sums[0] == pytest.approx(sums[1], rel=1e-6)


def test_evaluation_between_two_steps_leaves_no_trace() -> None:
    states = []
    for evaluates in (False, True):
        pipeline = make_pipeline(normalised_cells(), 2, 2)
        for seed in range(2):
            pipeline.train_step(dense_batch(5, seed))
            if evaluates:
                pipeline.evaluate_step(dense_batch(3, 7))
        states.append(everything_of(pipeline))
        pipeline.close()
    assert_equal_arrays(states[0], states[1], rtol=0, atol=0)


class FrozenNorm(Norm):
    """BatchNorm that is not to move."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        return self.norm(inputs, dataclasses.replace(context, training=False))


def test_frozen_state_stays_while_the_rest_moves() -> None:
    cells = {**normalised_cells(), "norm_0": FrozenNorm.Params()}
    pipeline = make_pipeline(cells, 2, 2)
    before = state_of(pipeline)
    pipeline.train_step(dense_batch(5))
    stays = [path for path, value in state_of(pipeline).items() if (value == before[path]).all()]
    assert sorted(stays) == ["norm_0/norm/moving_mean", "norm_0/norm/moving_variance"]
    pipeline.close()


# ------------------------------------------------------------------ steps that do not succeed

LIMIT, BEYOND = 10.0, 17.0


class Fragile(Cell):
    """x -> x; fails while it runs if some x is not below `LIMIT`."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        tf.debugging.assert_less(inputs, LIMIT)
        return inputs


class NoSlope(Cell):
    """x -> x, whose gradient is not a number where x is not below `LIMIT`."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        @tf.custom_gradient
        def function(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return tf.identity(x), lambda slope: tf.where(x < LIMIT, slope, math.nan)

        return function(inputs)


FAILURES: list[tuple[str, type[Cell], float, type[Exception], str]] = [
    ("a cell raises", Fragile, BEYOND, PipelineError, "micro-batch 2"),
    ("no gradient", NoSlope, BEYOND, NonFiniteError, "gradient norm nan"),
    (
        "statistics",
        Scale,
        1e25,
        NonFiniteError,
        "statistics of norm_0/norm .*No update was applied",
    ),
]


@pytest.mark.parametrize(
    ("cell", "value", "error", "words"), [f[1:] for f in FAILURES], ids=[f[0] for f in FAILURES]
)
@pytest.mark.parametrize("remat", ("none", "stage"))
def test_a_step_that_fails_moves_no_state_and_the_next_one_is_as_if_it_had_not_been(
    cell: type[Cell], value: float, error: type[Exception], words: str, remat: str
) -> None:
    start = {"source": Source.Params(), "scale": Scale.Params(), "faulty": cell.Params()}
    cells = {**start, **normalised_cells()}
    pipeline, fresh = (make_pipeline(cells, 3, 3, remat=remat) for _ in range(2))
    for each in (pipeline, fresh):
        each.train_step(dense_batch(6, 1))
    before, bad = everything_of(pipeline), dense_batch(6)
    bad["x"][4, 0] = value
    with pytest.raises(error, match=words):
        pipeline.train_step(bad)
    assert_equal_arrays(everything_of(pipeline), before, rtol=0, atol=0)
    assert pipeline.train_step(dense_batch(6, 2)) == fresh.train_step(dense_batch(6, 2))
    assert_equal_arrays(everything_of(pipeline), everything_of(fresh), rtol=0, atol=0)
    pipeline.close()
    fresh.close()


class WeightedLoss(Cell):
    """Squares times the entry 'weight' [B]."""

    class Params(Cell.Params):
        keys = ["weight"]

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        weights = context.batch["weight"]
        losses = tf.reduce_sum(inputs**2, axis=-1) * weights
        return {"loss": tf.reduce_sum(losses), "weight": tf.reduce_sum(weights)}


def test_a_batch_without_any_weight_moves_no_state() -> None:
    cells = {**normalised_cells(), "loss": WeightedLoss.Params()}
    pipeline = make_pipeline(cells, 2, 2)
    before = state_of(pipeline)
    batch = {**dense_batch(4), "weight": np.zeros(4, np.float32)}
    assert math.isnan(pipeline.train_step(batch).loss)
    assert_equal_arrays(state_of(pipeline), before, rtol=0, atol=0)
    # Nor does the next step remember what it reported.
    batch = {**dense_batch(4, 1), "weight": np.ones(4, np.float32)}
    expected = plain_state(weights_of(pipeline), batch, 2)
    pipeline.train_step(batch)
    assert_equal_arrays(state_of(pipeline), expected, atol=1e-6)
    pipeline.close()


# ------------------------------------------------------------------ shared layers, and mistakes


def shared_cells() -> Cells:
    """One BatchNorm, used twice."""
    norm = Norm.Params(share_weights="shared")
    return {
        "source": Source.Params(),
        "once": norm,
        "dense": Dense.Params(),
        "twice": norm.copy(),
        "loss": SquareLoss.Params(),
    }


@pytest.mark.parametrize("remat", ("none", "layer", "stage"))
def test_statistics_of_both_uses_of_a_shared_layer_are_added(remat: str) -> None:
    pipeline, batch = (
        make_pipeline(shared_cells(), 2, 2, remat=remat, partition=[4, 1]),
        dense_batch(6),
    )
    weights, x = weights_of(pipeline), batch["x"].astype(np.float64)
    parts = np.split(x, 2)
    parts = [(p - p.mean(axis=0)) / np.sqrt(p.var(axis=0) + EPSILON) for p in parts]
    parts = [p + np.tanh(p @ weights["dense/kernel"]) for p in parts]
    expected = moved(weights, "shared/norm", np.concatenate([x, *parts]))
    pipeline.train_step(batch)
    assert_equal_arrays(state_of(pipeline), expected, atol=1e-6)
    pipeline.close()


def test_state_that_two_stages_share_is_refused() -> None:
    words = (
        "'once/norm' on stage 0 and 'twice/norm' on stage 1 share the state at 'shared/norm'; "
        "state stays on one stage. .*pipeline.partition"
    )
    with pytest.raises(SharedWeightError, match=words) as refusal:
        make_pipeline(shared_cells(), 2, partition=[2, 3])
    assert isinstance(refusal.value, UserError)


class Reports(Cell):
    """x -> x; reports it as it is."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        context.report_statistics(self.weights_path, {"all": inputs})
        return inputs


class ReportsWithState(StatefulLayer):
    """The same as a layer with state."""

    class Params(StatefulLayer.Params):
        def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
            return Cost(1, None, 0)

    __call__ = Reports.__call__


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (Reports, "'faulty' reports statistics, but no layer with state .*StatefulLayer"),
        (ReportsWithState, r"'faulty' reports 'all' of shape \(.*4\); a statistic is a sum over"),
    ],
)
def test_what_cannot_be_added_up_is_refused_when_it_is_traced(
    cell: type[Layer], words: str
) -> None:
    cells: dict[str, Any] = {**dense_cells(4), "faulty": cell.Params()}
    cells["loss"] = cells.pop("loss")
    with pytest.raises(PipelineError, match=f"training pass: TypeError: {words}"):
        make_pipeline(cells, 2, 2).train_step(dense_batch(3))
