"""Cells: what travels between them, and the loss."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.layers.softmax import Softmax
from tasks.mt.cells import SoftmaxCell
from tasks.mt.model import TransformerModel

PARAMS = TransformerModel.Params(
    vocabulary_size=13,
    model_dim=8,
    ffn_dim=16,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=1,
    dropout=0.1,
    attention_dropout=0.1,
    feed_forward_dropout=0.1,
)
LABELS = np.array([[4, 5, 3], [6, 3, 0]], np.int32)
WEIGHTS = np.array([[1, 1, 1], [1, 1, 0]], np.float32)


def softmax_cell(label_smoothing: float = 0.0) -> SoftmaxCell:
    """The last cell, without a norm."""
    softmax = Softmax.Params(model_dim=4, vocabulary_size=7)
    return SoftmaxCell.Params(softmax=softmax, label_smoothing=label_smoothing).build(Scope(seed=1))


def sums(cell: SoftmaxCell, rows: slice = slice(None)) -> dict[str, float]:
    """What the cell returns for some rows of a mini-batch."""
    target = tf.random.stateless_normal([2, 3, 4], [1, 2])[rows]
    batch = {"target_labels": LABELS[rows], "target_weights": WEIGHTS[rows]}
    context = Context(batch={key: tf.constant(value) for key, value in batch.items()})
    found = cell({"source": tf.zeros([1]), "target": target}, context)
    assert {value.dtype for value in found.values()} == {tf.float32}
    return {key: float(value) for key, value in found.items()}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_sums_are_over_weighted_tokens(smoothing: float) -> None:
    cell = softmax_cell(smoothing)
    target = tf.random.stateless_normal([2, 3, 4], [1, 2]).numpy()
    logits = target @ cell.softmax.table.numpy().T
    chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    nll = -np.log(np.take_along_axis(chances, LABELS[..., None], axis=-1)[..., 0])
    spread = -np.log(chances).mean(axis=-1)
    found = sums(cell)
    assert found["weight"] == 5.0
    assert found["negative_log_likelihood"] == pytest.approx(np.sum(WEIGHTS * nll), rel=1e-5)
    expected = np.sum(WEIGHTS * ((1 - smoothing) * nll + smoothing * spread))
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    assert found["correct"] == np.sum(WEIGHTS * (logits.argmax(axis=-1) == LABELS))


def test_sums_of_micro_batches_add_up_to_those_of_the_whole() -> None:
    cell = softmax_cell(0.1)
    whole, first, second = sums(cell), sums(cell, slice(0, 1)), sums(cell, slice(1, 2))
    for key, value in whole.items():
        assert first[key] + second[key] == pytest.approx(value, rel=1e-5)


def test_equal_logits_everywhere_are_not_taken_for_right_guesses() -> None:
    cell = softmax_cell()
    cell.softmax.table.assign(tf.zeros([7, 4]))
    assert sums(cell)["correct"] == 0.0


def test_cells_come_in_order_and_read_only_their_entries() -> None:
    cells = PARAMS.copy(num_encoder_layers=2).cells()
    assert {name: cell.batch_keys() for name, cell in cells.items()} == {
        "source_embedding": ("source_ids",),
        "encoder_0": ("source_ids",),
        "encoder_1": ("source_ids",),
        "target_embedding": ("target_ids",),
        "decoder_0": ("source_ids",),
        "softmax": ("target_labels", "target_weights"),
    }
    assert list(cells)[-1] == "softmax"


def test_a_cost_without_the_batch_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match=r"needs the spec of the batch entry 'source_ids'"):
        PARAMS.cells()["source_embedding"].cost(None)
