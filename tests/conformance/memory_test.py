"""What layers declare to keep for the backward pass is what it reads, and takes as much memory.

Truth is a trace of the layer: the buffers that its gradients read of its forward pass. Outputs are
kept only if what follows reads them, so that a declaration may count them or not. A reshaped tensor
lies in the buffer of the one it was made of, and so do the parts of one that was taken apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer, Scope
from lingpipe.base.spec import Spec, Specs, with_floats_as
from lingpipe.layers.activation import Activation
from lingpipe.layers.attention import CrossAttention, Masking, SelfAttention
from lingpipe.layers.batch_norm import BatchNorm
from lingpipe.layers.dropout import Dropout
from lingpipe.layers.embedding import Embedding
from lingpipe.layers.feed_forward import FeedForward
from lingpipe.layers.linear import Linear
from lingpipe.layers.normalization import LayerNorm
from lingpipe.layers.position import SinusoidalPosition
from lingpipe.layers.softmax import LogitClipping, Softmax
from lingpipe.layers.transformer import DecoderLayer, EncoderLayer, NormPosition
from lingpipe.pipeline.plan import make_plan
from tasks.mt.model import TransformerModel
from tests.conformance.layers_test import layer_classes

B, T, D, V = 4, 32, 64, 200
TOLERANCE = 0.05

# Operations whose results lie in the buffers of their inputs.
VIEWS = ("Reshape", "Identity", "IdentityN", "ExpandDims", "Squeeze", "Unpack", "StopGradient")


@dataclasses.dataclass(frozen=True)
class Kept:
    """Bytes that a backward pass reads of its forward pass, without outputs and with them."""

    least: int
    most: int


def kept_bytes(params: Layer.Params, inputs: Specs, batch: Mapping[str, Spec], dtype: str) -> Kept:
    """What a trace of a layer shows to be kept; its inputs do not count."""
    layer = params.build(Scope())
    found: list[Kept] = []

    def joint(values: Any, entries: Mapping[str, tf.Tensor], step: tf.Tensor) -> None:
        floats = [x for x in tf.nest.flatten(values) if x is not None and x.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            context = Context(
                training=True, step=step, batch=entries, compute_dtype=tf.as_dtype(dtype)
            )
            outputs = layer(values, context)
        is_loss = isinstance(outputs, dict) and "loss" in outputs
        ends = [outputs["loss"]] if is_loss else tf.nest.flatten(outputs)
        ends = [tensor for tensor in ends if buffer_of(tensor).op.type != "Placeholder"]
        given = [tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in ends]
        sources = [*floats, *layer.trainable_variables]
        gradients = [
            g.values if isinstance(g, tf.IndexedSlices) else g
            for g in tape.gradient(ends, sources, given)
        ]
        ahead, computed = ancestors(ends), made_of_inputs(step.graph)
        read = [
            tensor
            for op in ancestors(g for g in gradients if g is not None) - ahead
            for tensor in op.inputs
            if op.type != "Shape" and tensor.op in ahead & computed
        ]
        found.append(Kept(bytes_of(read), bytes_of([*read, *ends])))

    specs = tf.nest.map_structure(
        lambda s: None if s is None else tf.TensorSpec(s.shape, s.dtype), (inputs, dict(batch))
    )
    step = tf.TensorSpec([], tf.int64)
    tf.function(joint, autograph=False).get_concrete_function(*specs, step)
    return found[0]


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


def made_of_inputs(graph: tf.Graph) -> set[tf.Operation]:
    """All operations that depend on the inputs and not on weights alone."""
    found: set[tf.Operation] = set()
    for op in graph.get_operations():  # Each after those that it reads.
        if op.type != "Placeholder" and any(
            tensor.op in found or (tensor.op.type == "Placeholder" and tensor.dtype != tf.resource)
            for tensor in op.inputs
        ):
            found.add(op)
    return found


def buffer_of(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor whose buffer it lies in."""
    while tensor.op.type in VIEWS:
        index = tensor.value_index if tensor.op.type == "IdentityN" else 0
        tensor = tensor.op.inputs[index]
    return tensor


def bytes_of(tensors: Iterable[tf.Tensor]) -> int:
    """Bytes of all buffers that the tensors lie in, inputs of the graph not among them."""
    buffers = {buffer.name: buffer for buffer in map(buffer_of, tensors)}
    return sum(
        buffer.shape.num_elements() * buffer.dtype.size
        for buffer in buffers.values()
        if buffer.op.type != "Placeholder"
    )


def layers(dropout: float) -> dict[str, tuple[Layer.Params, Specs]]:
    """Layers, and what they are given."""
    vectors, ids = Spec((B, T, D)), Spec((B, T), "int32")
    pair = {"source": vectors, "target": vectors}
    feed_forward = FeedForward.Params(hidden_dim=3 * D, dropout=dropout)
    attention = SelfAttention.Params(num_heads=4, dropout=dropout)
    cross = CrossAttention.Params(num_heads=4, dropout=dropout)
    encoder = EncoderLayer.Params(
        model_dim=D, dropout=dropout, attention=attention, feed_forward=feed_forward
    )
    decoder = DecoderLayer.Params(
        model_dim=D,
        dropout=dropout,
        attention=attention,
        cross_attention=cross,
        feed_forward=feed_forward,
    )
    softmax = Softmax.Params(model_dim=D, vocabulary_size=V)
    post = NormPosition.post
    return {
        "linear": (Linear.Params(input_dim=D, output_dim=2 * D), vectors),
        "embedding": (Embedding.Params(vocabulary_size=V, model_dim=D), ids),
        "position": (SinusoidalPosition.Params(model_dim=D), vectors),
        "layer_norm": (LayerNorm.Params(model_dim=D), vectors),
        "batch_norm": (BatchNorm.Params(model_dim=D), vectors),
        "dropout": (Dropout.Params(rate=dropout), vectors),
        **{
            f"feed_forward_{kind.name}": (
                feed_forward.copy(model_dim=D, activation=kind),
                vectors,
            )
            for kind in Activation
        },
        "self_attention": (attention.copy(model_dim=D, masking=Masking.causal), vectors),
        "narrow_self_attention": (attention.copy(model_dim=D, head_dim=8), vectors),
        "cross_attention": (cross.copy(model_dim=D), pair),
        "encoder_layer": (encoder, vectors),
        "post_norm_encoder_layer": (encoder.copy(norm_position=post), vectors),
        "decoder_layer": (decoder, pair),
        "post_norm_decoder_layer": (decoder.copy(norm_position=post), pair),
        "softmax": (softmax, vectors),
        "clipped_softmax": (softmax.copy(logit_clipping=LogitClipping.smooth), vectors),
    }


@pytest.mark.parametrize(
    ("name", "dropout", "dtype"),
    [
        (name, dropout, dtype)
        for dropout, dtype in ((0.0, "float32"), (0.1, "bfloat16"))
        for name in layers(dropout)
    ],
)
def test_a_layer_declares_what_its_backward_pass_reads(
    name: str, dropout: float, dtype: str
) -> None:
    params, inputs = layers(dropout)[name]
    inputs = with_floats_as(inputs, dtype)
    kept = kept_bytes(params, inputs, {}, dtype)
    cost = params.cost(inputs, {})
    declared = cost.activation_bytes
    if name == "embedding":  # Made of ids, it says float32; the plan puts that right.
        declared = with_floats_as(cost.outputs, dtype).bytes
    assert kept.least * (1 - TOLERANCE) <= declared <= kept.most * (1 + TOLERANCE), kept


def model(norm_position: NormPosition, dropout: float) -> TransformerModel.Params:
    """A layer of each kind."""
    return TransformerModel.Params(
        vocabulary_size=V,
        model_dim=D,
        ffn_dim=4 * D,
        num_heads=4,
        num_encoder_layers=1,
        num_decoder_layers=1,
        norm_position=norm_position,
        dropout=dropout,
        attention_dropout=dropout,
        feed_forward_dropout=dropout,
    )


BATCH = {
    "source_ids": Spec((B, T), "int32"),
    "target_ids": Spec((B, T), "int32"),
    "target_labels": Spec((B, T), "int32"),
    "target_weights": Spec((B, T)),
}

every_model = pytest.mark.parametrize(
    ("norm_position", "dropout", "dtype"),
    [
        (NormPosition.pre, 0.1, "float32"),
        (NormPosition.pre, 0.0, "bfloat16"),
        (NormPosition.post, 0.1, "bfloat16"),
    ],
)


@every_model
def test_a_cell_declares_what_its_backward_pass_reads(
    norm_position: NormPosition, dropout: float, dtype: str
) -> None:
    inputs: Specs = None
    for name, params in model(norm_position, dropout).cells().items():
        batch = {key: BATCH[key] for key in params.batch_keys()}
        kept = kept_bytes(params, inputs, batch, dtype)
        cost = params.cost(inputs, batch)
        inputs = with_floats_as(cost.outputs, dtype)
        declared = cost.activation_bytes
        if name.endswith("embedding"):  # Made of ids, vectors say float32 here.
            declared -= Spec((B, T, D)).bytes - Spec((B, T, D), dtype).bytes
        assert kept.least * (1 - TOLERANCE) <= declared <= kept.most * (1 + TOLERANCE), name


@every_model
def test_cells_together_keep_what_they_declare(
    norm_position: NormPosition, dropout: float, dtype: str
) -> None:
    params = model(norm_position, dropout)
    kept = kept_bytes(params, None, BATCH, dtype)
    plan = make_plan(params.cells(), 1, BATCH, compute_dtype=dtype)
    # Embeddings count their outputs, which no gradient reads where a norm follows.
    unread = 2 * Spec((B, T, D), dtype).bytes if norm_position is NormPosition.pre else 0
    assert plan.stages[0].activation_bytes == pytest.approx(kept.least + unread, rel=TOLERANCE)


def test_every_layer_of_the_library_is_among_them() -> None:
    tried = {type(part) for params, _ in layers(0.1).values() for part in parts_of(params)}
    missing = {cls for cls in layer_classes() if cls.__module__.startswith("lingpipe.layers")}
    assert missing <= tried


def parts_of(params: Layer.Params) -> Iterator[tf.Module]:
    """The layer and those within it."""
    layer = params.build(Scope())
    yield layer
    yield from layer.submodules
