"""Every layer and every list of cells that conforms to the house's contract, each named once.

A new layer joins `CASES` with small params, inputs and, if it is a cell, the batch entries that it
reads; a new model joins `CELL_LISTS`. All tests of this folder then run on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec, Specs
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
from tasks.mt.model import SharedTables, TransformerModel
from tests.pipeline.small_models import normalised_cells

EXAMPLES, SOURCE, TARGET, DIM, VOCABULARY = 5, 4, 3, 8, 11


@dataclasses.dataclass(frozen=True)
class Case:
    """One layer on one input.

    Attributes:
      params: of the layer; dropout on where it has any, activations smooth.
      inputs: nested structure of arrays [5, ...]; None for a first cell.
      batch: what a cell reads from its context.
      mixes_examples: True if in training an example's outputs depend on its micro-batch's others.
    """

    params: Layer.Params
    inputs: Any
    batch: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    mixes_examples: bool = False


@dataclasses.dataclass(frozen=True)
class CellList:
    """A model as cells, the last of which returns the loss, and a mini-batch for it.

    One that mixes examples, as in `Case`, equals one device that runs the same micro-batches.
    """

    cells: Mapping[str, Layer.Params]
    batch: Mapping[str, np.ndarray]
    mixes_examples: bool = False


def specs_of(arrays: Any) -> Specs:
    """The specs of a nested structure of arrays."""
    if arrays is None:
        return None
    return tf.nest.map_structure(lambda x: Spec(tuple(x.shape), tf.as_dtype(x.dtype).name), arrays)


def normal(*shape: int, key: int = 1) -> np.ndarray:
    """Normal random numbers, float32."""
    return np.random.default_rng(key).normal(size=shape).astype(np.float32)


def ids(length: int, key: int) -> np.ndarray:
    """Random ids [5, length], int32, the last ones of every second example paddings."""
    found = np.random.default_rng(key).integers(1, VOCABULARY, (EXAMPLES, length))
    found[::2, length - 1 :] = 0
    return found.astype(np.int32)


def translation_batch() -> dict[str, np.ndarray]:
    """A mini-batch of translation."""
    labels = ids(TARGET, 3)
    return {
        "source_ids": ids(SOURCE, 1),
        "target_ids": ids(TARGET, 2),
        "target_labels": labels,
        "target_weights": (labels > 0).astype(np.float32),
    }


def transformer_params(**values: Any) -> TransformerModel.Params:
    """A Transformer of two layers and two layers."""
    return TransformerModel.Params(
        vocabulary_size=VOCABULARY,
        model_dim=DIM,
        ffn_dim=12,
        num_heads=2,
        num_encoder_layers=2,
        num_decoder_layers=2,
        activation=Activation.gelu,
        dropout=0.2,
        attention_dropout=0.1,
        feed_forward_dropout=0.3,
        label_smoothing=0.1,
        **values,
    )


def _layer_cases() -> dict[str, Case]:
    source, target = normal(EXAMPLES, SOURCE, DIM), normal(EXAMPLES, TARGET, DIM, key=2)
    pair = {"source": source, "target": target}
    feed_forward = FeedForward.Params(hidden_dim=12, activation=Activation.gelu, dropout=0.3)
    attention = SelfAttention.Params(num_heads=2, head_dim=3, dropout=0.1)
    cross_attention = CrossAttention.Params(num_heads=2, dropout=0.1)
    causal = attention.copy(model_dim=DIM, masking=Masking.causal)
    encoder = EncoderLayer.Params(
        model_dim=DIM, dropout=0.2, attention=attention, feed_forward=feed_forward
    )
    decoder = DecoderLayer.Params(
        model_dim=DIM,
        dropout=0.2,
        attention=attention,
        cross_attention=cross_attention,
        feed_forward=feed_forward,
    )
    softmax = Softmax.Params(model_dim=DIM, vocabulary_size=VOCABULARY)
    smooth = softmax.copy(logit_clipping=LogitClipping.smooth, logit_limit=2.0)
    embedding = Embedding.Params(vocabulary_size=VOCABULARY, model_dim=DIM)
    return {
        "linear": Case(Linear.Params(input_dim=DIM, output_dim=3), source),
        "linear_without_bias": Case(
            Linear.Params(input_dim=DIM, output_dim=3, use_bias=False), source
        ),
        "embedding": Case(embedding, ids(SOURCE, 1)),
        "scaled_embedding": Case(embedding.copy(scale_by_sqrt_dim=True), ids(SOURCE, 1)),
        "position": Case(SinusoidalPosition.Params(model_dim=DIM), source),
        "layer_norm": Case(LayerNorm.Params(model_dim=DIM), source),
        "batch_norm": Case(BatchNorm.Params(model_dim=DIM), source, mixes_examples=True),
        "plain_batch_norm": Case(
            BatchNorm.Params(model_dim=DIM, use_scale=False, use_bias=False),
            normal(EXAMPLES, DIM),
            mixes_examples=True,
        ),
        "dropout": Case(Dropout.Params(rate=0.3), source),
        "feed_forward": Case(feed_forward.copy(model_dim=DIM), source),
        "self_attention": Case(attention.copy(model_dim=DIM), source),
        "causal_self_attention": Case(causal, source),
        "cross_attention": Case(cross_attention.copy(model_dim=DIM), pair),
        "encoder_layer": Case(encoder, source),
        "post_norm_encoder_layer": Case(encoder.copy(norm_position=NormPosition.post), source),
        "decoder_layer": Case(decoder, pair),
        "softmax": Case(softmax, target),
        "smoothly_clipped_softmax": Case(smooth, target),
    }


def _cell_cases(
    model: TransformerModel.Params, prefix: str, names: Sequence[str]
) -> dict[str, Case]:
    """Some of the cells of a model."""
    cells = model.cells()
    source, target = normal(EXAMPLES, SOURCE, DIM), normal(EXAMPLES, TARGET, DIM, key=2)
    pair = {"source": source, "target": target}
    inputs = {
        "source_embedding": None,
        "encoder_0": {"source": source},
        "target_embedding": {"source": source},
        "decoder_1": pair,
        "softmax": pair,
    }
    batch = translation_batch()
    return {f"{prefix}_{name}": Case(cells[name], inputs[name], batch) for name in names}


CASES: dict[str, Case] = {
    **_layer_cases(),
    **_cell_cases(
        transformer_params(),
        "transformer",
        ["source_embedding", "encoder_0", "target_embedding", "decoder_1", "softmax"],
    ),
    **_cell_cases(
        transformer_params(norm_position=NormPosition.post, shared_tables=SharedTables.none),
        "post_norm_transformer",
        ["target_embedding", "decoder_1", "softmax"],
    ),
    "transformer": Case(transformer_params(), None, translation_batch()),
}

# Models for "equal loss and gradients in 1, 2 and 4 stages".
CELL_LISTS: dict[str, CellList] = {
    "transformer": CellList(transformer_params().cells(), translation_batch()),
    "transformer_with_three_tables": CellList(
        transformer_params(shared_tables=SharedTables.none).cells(), translation_batch()
    ),
    "batch_norm": CellList(
        normalised_cells(),
        {"x": normal(EXAMPLES, SOURCE, 4), "y": normal(EXAMPLES, SOURCE, 4, key=2)},
        mixes_examples=True,
    ),
}
