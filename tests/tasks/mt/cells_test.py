"""Cells: what travels between them, the loss, and the memory that their costs foretell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer, Scope
from lingpipe.base.spec import Spec, Specs
from lingpipe.layers.softmax import Softmax
from lingpipe.layers.transformer import NormPosition
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


# -- Activation memory --------------------------------------------------------------------------


def ancestors(tensors: Iterable[tf.Tensor]) -> set[tf.Operation]:
    """All operations that the tensors need."""
    seen: set[tf.Operation] = set()
    waiting = [tensor.op for tensor in tensors]
    while waiting:
        operation = waiting.pop()
        if operation not in seen:
            seen.add(operation)
            waiting += [tensor.op for tensor in operation.inputs]
    return seen


def of_inputs(graph: tf.Graph) -> set[tf.Operation]:
    """All operations that depend on the inputs and not on weights alone."""
    found: set[tf.Operation] = set()
    for op in graph.get_operations():  # Each after those that it reads.
        if op.type != "Placeholder" and any(
            tensor.op in found or (tensor.op.type == "Placeholder" and tensor.dtype != tf.resource)
            for tensor in op.inputs
        ):
            found.add(op)
    return found


def is_input(tensor: tf.Tensor) -> bool:
    """Whether a tensor is an input, in whatever shape."""
    while tensor.op.type == "Reshape":
        tensor = tensor.op.inputs[0]
    return tensor.op.type == "Placeholder"


def kept_bytes(params: Layer.Params, inputs: Specs, batch: Mapping[str, Spec]) -> int:
    """Bytes of what the backward pass of a cell reads of its forward pass, outputs included.

    Values of which only the shape is read do not count, nor do inputs under another shape.
    """
    layer = params.build(Scope())
    found: list[tf.Tensor] = []

    def joint(values: Any, entries: Mapping[str, tf.Tensor], step: tf.Tensor) -> None:
        floats = tf.nest.flatten(values)
        with tf.GradientTape() as tape:
            tape.watch(floats)
            dtype = floats[0].dtype
            context = Context(training=True, step=step, batch=entries, compute_dtype=dtype)
            outputs = layer(values, context)
        ends = [outputs["loss"]] if "loss" in outputs else tf.nest.flatten(outputs)
        ends = [tensor for tensor in ends if not is_input(tensor)]
        gradients = tape.gradient(ends, [*floats, *layer.trainable_variables])
        gradients = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
        ahead, computed = ancestors(ends), of_inputs(floats[0].graph)
        read = {
            tensor.name: tensor
            for op in ancestors(g for g in gradients if g is not None) - ahead
            for tensor in op.inputs
            if op.type != "Shape" and tensor.op in ahead & computed and not is_input(tensor)
        }
        found.extend({**read, **{tensor.name: tensor for tensor in ends}}.values())

    specs = tf.nest.map_structure(lambda s: tf.TensorSpec(s.shape, s.dtype), (inputs, dict(batch)))
    step = tf.TensorSpec([], tf.int64)
    tf.function(joint, autograph=False).get_concrete_function(*specs, step)
    return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in found)


@pytest.mark.parametrize(
    ("name", "norm_position", "dtype"),
    [
        ("encoder_0", NormPosition.pre, "float32"),
        ("decoder_0", NormPosition.pre, "float32"),
        ("target_embedding", NormPosition.pre, "float32"),
        ("softmax", NormPosition.pre, "float32"),
        ("decoder_0", NormPosition.post, "float32"),
        ("encoder_0", NormPosition.pre, "bfloat16"),
    ],
)
def test_activation_bytes_are_what_the_backward_pass_keeps(
    name: str, norm_position: NormPosition, dtype: str
) -> None:
    params = PARAMS.copy(norm_position=norm_position, model_dim=32, ffn_dim=64, vocabulary_size=99)
    cell = params.cells()[name]
    inputs = {"source": Spec((4, 16, 32), dtype), "target": Spec((4, 16, 32), dtype)}
    if not name.startswith(("decoder", "softmax")):
        del inputs["target"]
    entries = {
        "source_ids": Spec((4, 16), "int32"),
        "target_ids": Spec((4, 16), "int32"),
        "target_labels": Spec((4, 16), "int32"),
        "target_weights": Spec((4, 16)),
    }
    batch = {key: entries[key] for key in cell.batch_keys()}
    kept = kept_bytes(cell, inputs, batch)
    assert cell.cost(inputs, batch).activation_bytes == pytest.approx(kept, rel=0.03)
