"""Every list of cells keeps its promise when activations are computed again, and fits its plan.

That stages change nothing is in stages_test.py; here they rematerialise, with whole backward
passes and with such as are cut in two.
"""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from lingpipe.base.layer import Scope
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.plan import make_plan
from tests.conformance.cases import CELL_LISTS, specs_of
from tests.pipeline.small_models import (
    assert_equal_arrays,
    gradients_of,
    make_recorder,
    reference_step,
)

every_model = pytest.mark.parametrize("name", CELL_LISTS)


@every_model
@pytest.mark.parametrize("schedule", ("1f1b", "zb_h1"))
def test_what_is_computed_again_changes_neither_loss_nor_gradients(
    name: str, schedule: str
) -> None:
    model = CELL_LISTS[name]
    batch = dict(model.batch)
    count = 2 if model.mixes_examples else 1
    expected = reference_step(model.cells, batch, num_micro_batches=count)
    pipeline = make_recorder(model.cells, 3, 2, schedule, "layer", micro_batch=specs_of(batch))
    result = pipeline.train_step(batch)
    pipeline.close()
    assert result.sums == pytest.approx(expected.sums, rel=1e-5)
    assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    assert_equal_arrays(gradients_of(pipeline), expected.gradients, atol=1e-6)


@every_model
def test_p09_the_plan_counts_the_weights_that_are_built_for_every_number_of_stages(
    name: str,
) -> None:
    model = CELL_LISTS[name]
    scope = Scope()
    for cell, params in model.cells.items():
        params.build(scope.child(cell))
    built = sum(variable.shape.num_elements() for variable in scope.variables.values())
    for num_stages in (1, 2, 4):
        plan = make_plan(model.cells, num_stages, specs_of(dict(model.batch)))
        assert plan.weights == built
        assert len(plan.stages) == num_stages
        assert sum(plan.shares()) == pytest.approx(1.0)


@every_model
@pytest.mark.parametrize("dtype", (tf.float32, tf.bfloat16))
def test_the_plan_counts_the_bytes_that_cross_each_cut(name: str, dtype: tf.DType) -> None:
    model = CELL_LISTS[name]
    batch = dict(model.batch)
    num_stages = len(model.cells)
    pipeline = make_recorder(
        model.cells, num_stages, micro_batch=specs_of(batch), compute_dtype=dtype
    )
    entries = {key: tf.TensorSpec(array.shape, array.dtype) for key, array in batch.items()}
    outputs: Any = ()
    for stage, planned in zip(pipeline.stages[:-1], pipeline.plan.stages[:-1], strict=True):
        outputs = stage.trace_inference(Inference.evaluation, outputs, entries)
        sent = tf.nest.flatten(outputs)
        assert planned.boundary_bytes == sum(x.shape.num_elements() * x.dtype.size for x in sent)
    pipeline.close()
