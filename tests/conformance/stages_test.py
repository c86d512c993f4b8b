"""Every list of cells has equal loss and gradients on one device and in 1, 2 and 4 stages."""

from __future__ import annotations

import functools

import pytest

from tests.conformance.cases import CELL_LISTS, specs_of
from tests.pipeline.small_models import (
    Reference,
    assert_equal_arrays,
    gradients_of,
    make_recorder,
    reference_step,
)

NUM_MICRO_BATCHES = 3


@functools.cache
def on_one_device(name: str) -> Reference:
    model = CELL_LISTS[name]
    count = NUM_MICRO_BATCHES if model.mixes_examples else 1
    return reference_step(model.cells, dict(model.batch), num_micro_batches=count)


@pytest.mark.parametrize("num_stages", (1, 2, 4))
@pytest.mark.parametrize("name", CELL_LISTS)
def test_a_model_in_stages_is_the_model_on_one_device(name: str, num_stages: int) -> None:
    model = CELL_LISTS[name]
    pipeline = make_recorder(
        model.cells, num_stages, NUM_MICRO_BATCHES, micro_batch=specs_of(dict(model.batch))
    )
    result = pipeline.train_step(model.batch)
    pipeline.close()
    expected = on_one_device(name)
    assert result.loss == pytest.approx(expected.loss, rel=1e-5)
    assert_equal_arrays(gradients_of(pipeline), expected.gradients, atol=1e-6)
