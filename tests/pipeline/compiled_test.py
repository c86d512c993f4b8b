"""Stages that XLA compiles train as they do without it, and say what cannot be compiled.

A compilation takes about a second a stage, so there are few cases, and models are tiny.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.hyperparams import ParamsError
from lingpipe.input.static_shapes import filled
from lingpipe.layers.dropout import Dropout
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.compiled import MOST_SHAPES, CompiledFunction, CompiledShapes
from lingpipe.pipeline.errors import CompilationError
from lingpipe.pipeline.graph_function import GraphFunction, trace
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.keeping import Keeping, Rematerialisation
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.stage import Stage
from tests.pipeline.small_models import (
    TRANSLATION_MICRO_BATCH,
    Batch,
    Cell,
    Cells,
    Dense,
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
    transformer,
    translation_batch,
    translation_signature,
    weights_of,
)

CELLS = transformer(num_encoder_layers=1).cells()
BATCH = translation_batch(4)


def train(pipeline: Pipeline, batch: Batch | None = None, steps: int = 1) -> list[float]:
    """The losses of some steps on one batch; the pipeline is closed."""
    try:
        return [pipeline.train_step(batch or dense_batch(6)).loss for _ in range(steps)]
    finally:
        pipeline.close()


def recorder_of_translations(*setting: Any, jit_compile: bool) -> Pipeline:
    """Two stages and two micro-batches of the Transformer; shows its gradients."""
    return make_recorder(
        CELLS,
        2,
        2,
        *setting,
        micro_batch=TRANSLATION_MICRO_BATCH,
        signature=translation_signature(),
        jit_compile=jit_compile,
    )


@functools.cache
def expected_gradients() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Those of a plain tape on one device, and those of a pipeline without XLA."""
    pipeline = recorder_of_translations(jit_compile=False)
    train(pipeline, BATCH)
    return reference_step(CELLS, BATCH).gradients, gradients_of(pipeline)


# ------------------------------------------------------------------ equal results


@pytest.mark.parametrize(
    ("schedule", "remat", "stages_per_device"),
    [("gpipe", "none", 1), ("1f1b", "stage", 1), ("interleaved", "auto", 2), ("zb_h1", "layer", 1)],
)
def test_a_compiled_transformer_with_dropout_has_the_gradients_of_one_device(
    schedule: str, remat: str, stages_per_device: int
) -> None:
    pipeline = recorder_of_translations(schedule, remat, stages_per_device, jit_compile=True)
    train(pipeline, BATCH)
    for expected in expected_gradients():
        assert_equal_arrays(gradients_of(pipeline), expected)


def test_evaluation_and_prediction_are_the_same() -> None:
    sums, logits = [], []
    for jit_compile in (False, True):
        pipeline = recorder_of_translations(jit_compile=jit_compile)
        sums.append(pipeline.evaluate_step(BATCH))
        logits.append(tf.nest.flatten(pipeline.predict(BATCH)))
        pipeline.close()
    assert sums[1] == pytest.approx(sums[0], rel=1e-5)
    for a, b in zip(*logits, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_random_masks_are_equal_to_the_bit() -> None:
    layer = Dropout.Params(rate=0.3).build(Scope(seed=1).child("dropout"))

    def function(x: tf.Tensor, step: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
        return layer(x, Context(training=True, seed=1, step=step, first_example=first))

    number = tf.TensorSpec([], tf.int64)
    traced = trace(function, [tf.TensorSpec([None, None, 5]), number, number])
    arguments = [tf.ones([4, 3, 5]), tf.constant(2**40, tf.int64), tf.constant(17, tf.int64)]
    plain, compiled = (kind(traced)(*arguments)[0] for kind in (GraphFunction, CompiledFunction))
    np.testing.assert_array_equal(plain, compiled)
    assert 0 < np.count_nonzero(plain) < 60


def test_a_part_that_returns_nothing_returns_nothing() -> None:
    """The forward pass of a stage whose outputs nobody reads."""
    traced = trace(lambda x: [], [tf.TensorSpec([None])])
    assert CompiledFunction(traced)(tf.ones([3])) == []


def test_the_state_of_layers_and_the_weights_move_alike() -> None:
    found = []
    for jit_compile in (False, True):
        pipeline = make_pipeline(normalised_cells(), 2, 3, "1f1b", jit_compile=jit_compile)
        losses = train(pipeline, steps=3)
        found.append({**weights_of(pipeline), "losses": np.array(losses)})
    assert_equal_arrays(found[1], found[0])


def test_bfloat16_is_compiled_too() -> None:
    batch = dense_batch(6)
    batch["y"] = batch["y"].astype(tf.bfloat16.as_numpy_dtype)
    losses = [
        train(make_pipeline(dense_cells(), 2, 2, compute_dtype=tf.bfloat16, jit_compile=jit), batch)
        for jit in (False, True)
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-2)


def test_what_auto_computes_again_is_compiled_too() -> None:
    cells = {f"dense_{i}": Dense.Params() for i in range(3)}
    x, gradient = tf.random.stateless_normal([2, 6, 4], [1, 2])
    found, sizes = [], []
    for limit, jit_compile in ((1e9, False), (200, True)):
        keeping = Keeping(Rematerialisation.auto, limit=limit)
        stage = Stage(
            1, cells, "/CPU:0", seed=3, is_last=False, keeping=keeping, jit_compile=jit_compile
        )
        stage.trace_training(tf.TensorSpec([None, 4]), {}, (tf.TensorSpec([6, 4]), {}))
        stage.start_step()
        made, kept = stage.forward([x], MicroBatch(0, {}), step=1)
        gradients = stage.backward(kept, [gradient])
        sums = [stage.accumulators[path] for path in sorted(stage.accumulators)]
        found.append([np.asarray(t) for t in (*made, *gradients, *sums)])
        sizes.append(sum(tf.size(tensor) for tensor in kept))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert sizes[1] < sizes[0]


def test_rows_of_zeros_change_nothing() -> None:
    """An input of static shapes fills batches with them; here a whole micro-batch is of zeros."""
    found = []
    for num_rows in (4, 6):
        pipeline = make_recorder(
            CELLS,
            2,
            3 if num_rows == 6 else 2,
            micro_batch=TRANSLATION_MICRO_BATCH,
            signature=translation_signature(),
        )
        result = pipeline.train_step(filled(BATCH, num_rows, BATCH["source_ids"].shape[1]))
        pipeline.close()
        found.append({**gradients_of(pipeline), "sums": np.array(list(result.sums.values()))})
    assert_equal_arrays(found[1], found[0], rtol=1e-6, atol=0)


# ------------------------------------------------------------------ cells that make trouble


def printing(x: tf.Tensor) -> tf.Tensor:
    tf.print("x")
    return x + 1.0


def in_python(x: tf.Tensor) -> tf.Tensor:
    return x + tf.ensure_shape(tf.py_function(lambda y: y * 2, [x], tf.float32), [None, 4])


def of_text(x: tf.Tensor) -> tf.Tensor:
    return x * tf.cast(tf.strings.length(tf.strings.as_string(x)), tf.float32)


def repeating(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda y: tf.reduce_sum(y) < 9, lambda y: (tf.tanh(y) + 1,), (x,))[0]


def repeating_thrice(x: tf.Tensor) -> tf.Tensor:
    loop = tf.while_loop(lambda y: True, lambda y: (tf.tanh(y),), (x,), maximum_iterations=3)
    return loop[0]


def counting_signs(x: tf.Tensor) -> tf.Tensor:
    signs = tf.unique(tf.cast(x[:, 0] > 0, tf.int32))[0]
    return x * tf.cast(tf.size(signs), tf.float32)


def adding_some_rows(x: tf.Tensor) -> tf.Tensor:
    return x + tf.reduce_sum(tf.boolean_mask(x, x[:, 0] > 0))


def asserting(x: tf.Tensor) -> tf.Tensor:
    tf.debugging.assert_greater(x, 1e9)
    return x * 2.0


class Odd(Cell):
    """x [B, 4] -> what the function of that name in this file makes of it."""

    class Params(Cell.Params):
        function: str = ""

    params: Params

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        return globals()[self.params.function](inputs)


def odd_cells(function: Callable[[tf.Tensor], tf.Tensor]) -> Cells:
    odd = {"dense": Dense.Params(), "odd": Odd.Params(function=function.__name__)}
    return {"source": Source.Params(), **odd, "loss": SquareLoss.Params()}


@pytest.mark.parametrize(
    ("function", "cells", "operation"),
    [
        (printing, "cell odd", "PrintV2"),
        (in_python, "cell odd", "EagerPyFunc"),
        (of_text, "cell odd", "AsString"),
        (repeating, "cell odd", "fixed tensor list size"),
        (repeating_thrice, r"cells source \.\. odd", "TensorList crossing the XLA/TF boundary"),
    ],
)
def test_a_cell_that_cannot_be_compiled_is_named(
    function: Callable[[tf.Tensor], tf.Tensor], cells: str, operation: str
) -> None:
    words = (
        rf"^Stage 0 \({cells}, device /CPU:0\) cannot be compiled by XLA, in the forward pass of "
        rf"micro-batch 0: .*{operation}.* Set pipeline\.jit_compile=false, or write the cell "
    )
    with pytest.raises(CompilationError, match=words):
        train(make_pipeline(odd_cells(function), 2, 2, partition=[3, 1], jit_compile=True))


@pytest.mark.parametrize(
    ("function", "remat"),
    [(counting_signs, "none"), (adding_some_rows, "none"), (repeating_thrice, "layer")],
)
def test_shapes_that_depend_on_values_and_loops_that_are_computed_again_are_compiled(
    function: Callable[[tf.Tensor], tf.Tensor], remat: str
) -> None:
    cells = odd_cells(function)
    setting = (2, 1, "gpipe", remat)
    pipeline = make_recorder(cells, *setting, partition=[3, 1], jit_compile=True)
    train(pipeline)
    assert_equal_arrays(gradients_of(pipeline), reference_step(cells, dense_batch(6)).gradients)


def test_assertions_are_left_out() -> None:
    losses = train(make_pipeline(odd_cells(asserting), 2, 2, jit_compile=True))
    assert np.isfinite(losses).all()


def test_bits_of_recomputation_cannot_be_compared() -> None:
    params = Pipeline.Params(jit_compile=True, verify_recompute=True)
    with pytest.raises(ParamsError, match="verify_recompute compares bits, and XLA adds up in"):
        params.validate()


# ------------------------------------------------------------------ shapes


def micro_batches(*rows: int) -> list[MicroBatch]:
    return [MicroBatch(0, {"x": np.zeros([n, 4]), "unread": np.zeros([n, n])}) for n in rows]


def test_shapes_are_counted_for_each_kind_of_pass() -> None:
    shapes = CompiledShapes(["x", "y"])
    shapes.note(micro_batches(3, 3, 2), None)
    shapes.note(micro_batches(3, 2), None)
    assert len(shapes) == 2
    shapes.note(micro_batches(3), Inference.evaluation)
    assert len(shapes) == 3


def test_too_many_shapes_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    shapes = CompiledShapes(["x"])
    with caplog.at_level(logging.WARNING):
        shapes.note(micro_batches(*range(1, MOST_SHAPES + 1)), None)
        assert not caplog.records
        shapes.note(micro_batches(100, 101), None)
        shapes.note(micro_batches(102), None)
    (record,) = caplog.records
    assert "in 34 different shapes so far" in record.getMessage()
    assert "input.static_shapes=true" in record.getMessage()


def test_a_pipeline_counts_what_it_compiles(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = make_pipeline(dense_cells(2), jit_compile=True)
    for size in [5] * (MOST_SHAPES + 1):
        pipeline.train_step(dense_batch(size))
    pipeline.close()
    assert not caplog.records
