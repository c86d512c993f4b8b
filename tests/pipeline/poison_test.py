"""What a device computes while it would idle does not matter: NaN there changes no bit."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers.embedding import Embedding
from lingpipe.learner.optimizers import Adam
from lingpipe.pipeline.graph_function import GraphFunction
from lingpipe.pipeline.schedules import ScheduleKind, make_schedule
from tests.pipeline.random_pipelines import (
    DIM,
    VOCABULARY,
    Enter,
    Look,
    Turn,
    WeightedLoss,
    make_case,
)
from tests.pipeline.small_models import (
    EVERY_SETTING,
    TRANSLATION_MICRO_BATCH,
    Batch,
    Cells,
    dense_batch,
    make_learner,
    make_pipeline,
    normalised_cells,
    transformer,
    translation_batch,
    translation_signature,
    weights_of,
)


def trained(cells: Cells, batch: Batch, setting: tuple, *, poisons: bool, **values: object) -> dict:
    """Weights, slots, loss and norm after two steps."""
    pipeline = make_pipeline(
        cells,
        4,
        3,
        *setting,
        learner=make_learner(Adam.Params(), rate=1e-2),
        debugging={"poison_bubbles": poisons},
        **values,
    )
    results = [pipeline.train_step(batch) for _ in range(2)]
    numbers = {f"{r.step}": np.array([r.loss, r.grad_norm]) for r in results}
    slots = {name: slot.numpy() for name, slot in pipeline.slots.items()}
    pipeline.close()
    return {**weights_of(pipeline), **slots, **numbers}


@pytest.mark.parametrize("setting", EVERY_SETTING)
def test_nan_in_the_bubbles_changes_no_bit(setting: tuple) -> None:
    """BatchNorms with state on two stages among the cells."""
    clean, poisoned = (
        trained(normalised_cells(), dense_batch(6), setting, poisons=p) for p in (False, True)
    )
    for name, value in clean.items():
        np.testing.assert_array_equal(poisoned[name], value, err_msg=name)


def test_a_transformer_with_dropout_and_ids_neither() -> None:
    settings = {"micro_batch": TRANSLATION_MICRO_BATCH, "signature": translation_signature()}
    cells, batch = transformer().cells(), translation_batch(6)
    clean, poisoned = (
        trained(cells, batch, ("1f1b", "layer"), poisons=p, **settings) for p in (False, True)
    )
    for name, value in clean.items():
        np.testing.assert_array_equal(poisoned[name], value, err_msg=name)


def test_of_ids_and_masks_that_cross_zeros_are_made() -> None:
    """The cells of random pipelines send ids and a boolean mask from stage to stage."""
    cells = {
        "enter": Enter.Params(),
        "look": Look.Params(layer=Embedding.Params(vocabulary_size=VOCABULARY, model_dim=DIM)),
        "turn": Turn.Params(),
        "again": Look.Params(layer=Embedding.Params(vocabulary_size=VOCABULARY, model_dim=DIM)),
        "loss": WeightedLoss.Params(),
    }
    batch = make_case(3).batches[0]
    clean, poisoned = (trained(cells, batch, ("1f1b",), poisons=p) for p in (False, True))
    for name, value in clean.items():
        np.testing.assert_array_equal(poisoned[name], value, err_msg=name)


def test_every_idle_slot_computes_on_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    call = GraphFunction.__call__

    def spying(function: GraphFunction, *inputs: tf.Tensor) -> list[tf.Tensor]:
        outputs = call(function, *inputs)
        floats = [tensor for tensor in inputs if tensor.dtype.is_floating]
        if floats and all(np.isnan(tensor).all() for tensor in floats):
            found.append(any(np.isnan(o).any() for o in outputs if o.dtype.is_floating))
        return outputs

    monkeypatch.setattr(GraphFunction, "__call__", spying)
    trained(normalised_cells(), dense_batch(6), ("gpipe",), poisons=True)
    rows = make_schedule(ScheduleKind.gpipe, 4, 3).rows_with_bubbles()
    steps = 2
    assert len(found) == steps * sum(action is None for row in rows for action in row)
    assert all(found)
