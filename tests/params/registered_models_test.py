"""Every registered model can be built, and applies the dropout that it declares."""

import enum
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer, Scope
from lingpipe.layers.dropout import Dropout
from lingpipe.registry import lookup, registered_names
from lingpipe.runtime.parts import build_task, plan_of
from lingpipe.task.experiment import Experiment
from lingpipe.task.model_params import ModelParams, make_experiment

NAMES = list(registered_names())
# A model of two layers with the dropout of the model it is made from.
SMALL = ("num_layers=1", "model_dim=32", "ffn_dim=64", "num_heads=2", "vocabulary_size=300")


def built(experiment: Experiment.Params) -> dict[str, Layer]:
    scope = Scope(seed=1)
    return {
        name: cell.build(scope.child(name)) for name, cell in build_task(experiment).cells().items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_model_has_a_docstring_and_a_plan(name: str) -> None:
    assert registered_names()[name]
    experiment = make_experiment(lookup(name))
    plan = plan_of(experiment)
    assert len(plan.stages) == experiment.pipeline.num_stages
    assert sum(plan.shares()) == pytest.approx(1.0)
    assert max(plan.shares()) < 2 / len(plan.stages), "no stage does twice its share"


@pytest.mark.parametrize("name", NAMES)
def test_the_params_of_every_model_come_back_from_their_text(name: str) -> None:
    experiment = make_experiment(lookup(name))
    assert Experiment.Params.from_text(experiment.to_text()) == experiment


def turned(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, enum.Enum):
        return next(member for member in type(value) if member is not value)
    if isinstance(value, bool):
        return not value
    return f"{value}-2" if isinstance(value, str) else value + 1


@pytest.mark.parametrize("name", NAMES)
def test_every_knob_of_every_model_changes_its_experiment(name: str) -> None:
    model: type[ModelParams] = lookup(name)
    plain = model().experiment().to_text()
    for field in model.fields():
        knobs = model()
        knobs.override(field.name, turned(getattr(knobs, field.name)))
        assert knobs.experiment().to_text() != plain, f"{field.name} is ignored"


# -- The dropout that is declared is the dropout that is applied ----------------------------------


def batch_of(rows: int, length: int) -> dict[str, tf.Tensor]:
    ids = np.random.default_rng(0).integers(5, 300, [rows, length]).astype(np.int32)
    batch = dict.fromkeys(("source_ids", "target_ids", "target_labels"), tf.constant(ids))
    return {**batch, "target_weights": tf.ones([rows, length])}


def outputs_of(cells: dict[str, Layer], context: Context) -> dict[str, tf.Tensor]:
    """What the last cell returns, each having been given what the one before returned."""
    outputs: Any = None
    for cell in cells.values():
        outputs = cell(outputs, context)
    return outputs


@pytest.mark.parametrize("name", NAMES)
def test_every_branch_has_the_declared_dropout(name: str) -> None:
    experiment = make_experiment(lookup(name), SMALL)
    model: Any = experiment.task.model  # type: ignore[attr-defined]
    cells = built(experiment)
    context = Context(training=True, step=1, seed=1, batch=batch_of(2, 3))
    outputs_of(cells, context)
    branches = {"encoder_0/layer/residual_dropout": 2, "decoder_0/layer/residual_dropout": 3}
    embeddings = {f"{side}_embedding/tokens/sum_dropout": 1 for side in ("source", "target")}
    # How often each layer has drawn a mask.
    assert context.draws == ({**branches, **embeddings} if model.dropout else {})
    for cell in cells.values():
        for layer in cell.submodules:
            if isinstance(layer, Dropout):
                assert layer.params.rate == (model.dropout if layer.path in context.draws else 0)


def test_a_declared_dropout_drops_that_share() -> None:
    cells = built(make_experiment(lookup("mt.multilingual.Corpus"), SMALL))
    batch = batch_of(64, 20)

    def embedded(training: bool) -> np.ndarray:
        context = Context(training=training, step=3, seed=1, batch=batch)
        return cells["source_embedding"](None, context)["source"].numpy()

    values, rate = embedded(training=True), 0.1
    error = math.sqrt(rate * (1 - rate) / values.size)
    assert abs(np.mean(values == 0) - rate) < 5 * error
    kept = values != 0
    np.testing.assert_allclose(values[kept], embedded(training=False)[kept] / (1 - rate), rtol=1e-4)


@pytest.mark.parametrize(("dropout", "changes"), [(0.1, True), (0.0, False)])
def test_the_loss_changes_with_the_step_where_there_is_dropout(
    dropout: float, changes: bool
) -> None:
    experiment = make_experiment(lookup("mt.multilingual.Tiny"), [*SMALL, f"dropout={dropout}"])
    cells, batch = built(experiment), batch_of(4, 6)

    def loss(step: int, training: bool) -> float:
        context = Context(training=training, step=step, seed=1, batch=batch)
        return float(outputs_of(cells, context)["loss"])

    assert (loss(1, training=True) != loss(2, training=True)) is changes
    assert loss(1, training=False) == loss(2, training=False)
