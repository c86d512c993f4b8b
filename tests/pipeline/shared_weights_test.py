"""A weight that several cells use is one weight, whichever stages the cells are on."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.initializers import normal
from lingpipe.base.layer import SharedWeightError, Weight
from lingpipe.errors import UserError
from lingpipe.learner.optimizers import Momentum
from tests.pipeline.small_models import (
    EVERY_SETTING,
    Batch,
    Cell,
    Cells,
    Dense,
    Source,
    SquareLoss,
    assert_equal_arrays,
    dense_batch,
    gradients_of,
    make_learner,
    make_pipeline,
    make_recorder,
    reference_step,
    weights_of,
)

VOCABULARY = 11


class Embed(Cell):
    """None -> rows of the table [V, 4] for 'ids' [B, T]."""

    class Params(Cell.Params):
        keys = ["ids"]
        share_weights = "tied"
        stddev: float = 0.5
        trainable: bool = True

        def weights(self) -> dict[str, Weight]:
            return {"table": Weight((VOCABULARY, 4), normal(self.stddev), self.trainable)}

    table: tf.Variable

    def __call__(self, inputs: None, context: Context) -> tf.Tensor:
        return tf.gather(self.table, context.batch["ids"])


class Score(Embed):
    """x [B, T, 4] -> cross-entropy of 'labels' [B, T] under x times the table."""

    class Params(Embed.Params):
        keys = ["labels"]

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        logits = tf.einsum("btd,vd->btv", inputs, self.table)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(context.batch["labels"], logits)
        return {"loss": tf.reduce_sum(losses), "weight": tf.cast(tf.size(losses), tf.float32)}


def tied_cells(**score: object) -> Cells:
    return {
        "embed": Embed.Params(),
        "dense_0": Dense.Params(),
        "dense_1": Dense.Params(),
        "score": Score.Params().copy(**score),
    }


def id_batch(seed: int) -> Batch:
    numbers = np.random.default_rng(seed)
    ids = numbers.integers(0, VOCABULARY, (2, 5, 3)).astype(np.int32)
    return {"ids": ids[0], "labels": ids[1]}


@pytest.mark.parametrize(
    "setting",
    [(1, 2, "gpipe"), (2, 2, "zb_h1"), (3, 2, "1f1b"), *((4, 3, *s) for s in EVERY_SETTING)],
    ids=str,
)
def test_p06_gradients_of_both_uses_are_added(setting: tuple) -> None:
    pipeline = make_recorder(tied_cells(), *setting)
    result = pipeline.train_step(id_batch(0))
    expected = reference_step(tied_cells(), id_batch(0))
    assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    assert_equal_arrays(gradients_of(pipeline), expected.gradients, atol=1e-6)
    pipeline.close()


def test_p06_both_uses_read_equal_values_after_fifty_steps() -> None:
    learner = make_learner(Momentum.Params(momentum=0.9), rate=0.05, clip_global_norm=1.0)
    apart = make_pipeline(tied_cells(), 3, 2, learner=learner)
    alone = make_pipeline(tied_cells(), learner=learner)
    for seed in range(50):
        loss = apart.train_step(id_batch(seed)).loss
        assert loss == pytest.approx(alone.train_step(id_batch(seed)).loss, rel=1e-5)
    first, last = apart.stages[0], apart.stages[-1]
    assert first.variables["tied/table"].device != last.variables["tied/table"].device
    np.testing.assert_array_equal(first.variables["tied/table"], last.variables["tied/table"])
    assert_equal_arrays(weights_of(apart), weights_of(alone), atol=1e-6)
    assert [name for name in apart.slots if "table" in name] == ["tied/table/velocity"]
    assert list(apart.weights) == list(alone.weights)
    apart.close()
    alone.close()


def test_ties_that_start_differently_start_from_the_first() -> None:
    losses = []
    for num_stages in (1, 4):
        pipeline = make_pipeline(tied_cells(stddev=3.0), num_stages)
        losses.append(pipeline.train_step(id_batch(0)).loss)
        pipeline.close()
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_weights_set_from_outside_reach_every_use() -> None:
    pipeline = make_pipeline(tied_cells(), 2)
    pipeline.weights["tied/table"].assign(tf.zeros([VOCABULARY, 4]))
    pipeline.copy_shared_weights()
    np.testing.assert_array_equal(pipeline.stages[-1].variables["tied/table"], 0)
    assert pipeline.evaluate_step(id_batch(0))["loss"] == pytest.approx(15 * np.log(11), rel=1e-6)
    pipeline.close()


@pytest.mark.parametrize("setting", EVERY_SETTING, ids=str)
def test_p06_a_layer_may_be_used_twice_in_a_stage_and_once_more_in_another(
    setting: tuple[str, str, int],
) -> None:
    shared = Dense.Params(share_weights="shared")
    cells = {
        "source": Source.Params(),
        "once": shared,
        "twice": shared.copy(),
        "own": Dense.Params(),
        "again": shared.copy(),
        "loss": SquareLoss.Params(),
    }
    pipeline = make_recorder(cells, 2, 2, *setting, partition=[3, 3])
    pipeline.train_step(dense_batch(5))
    expected = reference_step(cells, dense_batch(5))
    assert set(pipeline.weights) == {"shared/kernel", "own/kernel"}
    assert_equal_arrays(gradients_of(pipeline), expected.gradients, atol=1e-6)
    pipeline.close()


@pytest.mark.parametrize("num_stages", (1, 2))
def test_layers_that_share_a_weight_must_agree_on_it(num_stages: int) -> None:
    words = (
        r"share the weight 'tied/table' but declare it differently: shape \(11, 4\), "
        r"trainable=True against shape \(11, 4\), trainable=False"
    )
    with pytest.raises(SharedWeightError, match=words) as refusal:
        make_pipeline(tied_cells(trainable=False), num_stages)
    assert isinstance(refusal.value, UserError)
