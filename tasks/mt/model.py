"""The Transformer for translation: knobs, the list of cells they describe, and decoding.

`TransformerModel.Params.cells()` is the model: an ordered dict of cells' params. A pipeline builds
them on many devices; `params.build(scope)` builds all of them on one, under the same paths, with
what decoding and scoring need on top:

    model = params.build(Scope(seed=1))
    state = model.encode(source_ids)
    logits, state = model.step(ids, time, state)      # once a position, see lingpipe.decode.step

Source: Vaswani et al. 2017; the deep stacks follow Huang et al. 2019 (GPipe).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost, total_cost
from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec, Specs
from lingpipe.hyperparams import REQUIRED
from lingpipe.layers.activation import Activation
from lingpipe.layers.attention import CrossAttention, SelfAttention
from lingpipe.layers.checks import (
    MAX_LAYERS,
    MAX_VOCABULARY,
    check_heads,
    check_positive,
    check_rate,
    check_size,
)
from lingpipe.layers.embedding import Embedding
from lingpipe.layers.feed_forward import FeedForward
from lingpipe.layers.normalization import LayerNorm
from lingpipe.layers.softmax import LogitClipping, Softmax
from lingpipe.layers.transformer import DecoderLayer, EncoderLayer, NormPosition
from tasks.mt.cells import (
    DecoderCell,
    EncoderCell,
    SoftmaxCell,
    SourceEmbeddingCell,
    TargetEmbeddingCell,
    TokenEmbedding,
    paddings_of,
)

# Where shared tables live in a checkpoint.
_SHARED_TABLE = "token_embedding"


class SharedTables(enum.Enum):
    """Which of the three tables [V, D] are one: of source ids, of target ids, of the softmax."""

    none = "none"  # Three tables.
    embeddings = "embeddings"  # Two: source and target ids have one, as GPipe's models count.
    all = "all"  # One.


class TransformerModel(Layer):
    """All cells on one device: trains as a pipeline of one stage would, and decodes."""

    class Params(Layer.Params):
        """Knobs of the model."""

        vocabulary_size: int = REQUIRED  # V; the task sets it from the tokenizer.
        model_dim: int = 512  # D.
        ffn_dim: int = 2048  # F.
        num_heads: int = 8  # N.
        head_dim: int | None = None  # H; None for model_dim / num_heads.
        num_encoder_layers: int = 6
        num_decoder_layers: int = 6
        activation: Activation = Activation.relu  # Of the feed-forward layers.
        norm_position: NormPosition = NormPosition.pre  # Where the norm of a branch stands.
        dropout: float = 0.0  # Share dropped of embeddings and of every branch's outputs.
        attention_dropout: float = 0.0  # Share dropped of attention probabilities.
        feed_forward_dropout: float = 0.0  # Share dropped of hidden units of feed-forward layers.
        depth_scaled_init: bool = False  # Start feed-forward weights at 1/layers of their width.
        shared_tables: SharedTables = SharedTables.all  # Which embeddings and softmax are tied.
        logit_clipping: LogitClipping = LogitClipping.none  # How logits are kept in the limit.
        logit_limit: float = 30.0  # Greatest magnitude of a logit; our choice, none is published.
        label_smoothing: float = 0.0  # Share of the target distribution spread over all ids.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            layers = ("num_encoder_layers", "num_decoder_layers")
            yield from check_size(self, *layers, most=MAX_LAYERS)
            yield from check_size(self, "vocabulary_size", most=MAX_VOCABULARY)
            yield from check_size(self, "model_dim", "ffn_dim", "num_heads")
            yield from check_positive(self, "logit_limit")
            yield from check_heads(self.model_dim, self.num_heads, self.head_dim)
            rates = ("dropout", "attention_dropout", "feed_forward_dropout", "label_smoothing")
            yield from check_rate(self, *rates)

        def cells(self) -> dict[str, Layer.Params]:
            """Name -> params of each cell, in order. The name is the path of its weights."""
            last_norm = LayerNorm.Params(model_dim=self.model_dim)
            norm = last_norm if self.norm_position is NormPosition.pre else None
            encoder = EncoderCell.Params(layer=self._encoder_layer())
            decoder = DecoderCell.Params(layer=self._decoder_layer())
            smoothing = self.label_smoothing
            return {
                "source_embedding": SourceEmbeddingCell.Params(tokens=self._tokens()),
                **{f"encoder_{i}": encoder.copy() for i in range(self.num_encoder_layers)},
                "target_embedding": TargetEmbeddingCell.Params(
                    tokens=self._tokens(), source_norm=norm
                ),
                **{f"decoder_{i}": decoder.copy() for i in range(self.num_decoder_layers)},
                "softmax": SoftmaxCell.Params(
                    softmax=self._softmax(), norm=norm, label_smoothing=smoothing
                ),
            }

        def children(self) -> dict[str, Layer.Params]:
            return self.cells()

        def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
            costs: list[Cost] = []
            for cell in self.cells().values():
                costs.append(cell.cost(inputs, batch))
                inputs = costs[-1].outputs
            return total_cost(*costs, outputs=inputs)

        def _tokens(self) -> TokenEmbedding.Params:
            shared = None if self.shared_tables is SharedTables.none else _SHARED_TABLE
            table = Embedding.Params(
                vocabulary_size=self.vocabulary_size,
                model_dim=self.model_dim,
                scale_by_sqrt_dim=True,
                share_weights=shared,
            )
            return TokenEmbedding.Params(embedding=table, dropout=self.dropout)

        def _softmax(self) -> Softmax.Params:
            return Softmax.Params(
                vocabulary_size=self.vocabulary_size,
                model_dim=self.model_dim,
                logit_clipping=self.logit_clipping,
                logit_limit=self.logit_limit,
                share_weights=_SHARED_TABLE if self.shared_tables is SharedTables.all else None,
            )

        def _encoder_layer(self) -> EncoderLayer.Params:
            return EncoderLayer.Params(
                model_dim=self.model_dim,
                norm_position=self.norm_position,
                dropout=self.dropout,
                attention=self._attention(),
                feed_forward=self._feed_forward(self.num_encoder_layers),
            )

        def _decoder_layer(self) -> DecoderLayer.Params:
            return DecoderLayer.Params(
                model_dim=self.model_dim,
                norm_position=self.norm_position,
                dropout=self.dropout,
                attention=self._attention(),
                cross_attention=CrossAttention.Params(
                    num_heads=self.num_heads,
                    head_dim=self.head_dim,
                    dropout=self.attention_dropout,
                ),
                feed_forward=self._feed_forward(self.num_decoder_layers),
            )

        def _attention(self) -> SelfAttention.Params:
            return SelfAttention.Params(
                num_heads=self.num_heads, head_dim=self.head_dim, dropout=self.attention_dropout
            )

        def _feed_forward(self, num_layers: int) -> FeedForward.Params:
            return FeedForward.Params(
                hidden_dim=self.ffn_dim,
                activation=self.activation,
                dropout=self.feed_forward_dropout,
                depth_scale=1.0 / num_layers if self.depth_scaled_init else 1.0,
            )

    params: Params
    source_embedding: SourceEmbeddingCell
    target_embedding: TargetEmbeddingCell
    softmax: SoftmaxCell

    def __call__(self, inputs: None, context: Context) -> dict[str, tf.Tensor]:
        """The sums of `SoftmaxCell`, on the batch in `context`."""
        outputs: Any = inputs
        for name in self.params.cells():
            outputs = getattr(self, name)(outputs, context)
        return outputs

    def logits(
        self, source_ids: tf.Tensor, target_ids: tf.Tensor, *, context: Context | None = None
    ) -> tf.Tensor:
        """Logits of the token after each target position, given all up to it.

        Args:
          source_ids: int [B, S]; 0 is padding.
          target_ids: int [B, T], begin of sentence first; 0 is padding.
          context: compute dtype; its batch is not read.

        Returns:
          Floats [B, T, V], float32 at least.
        """
        context = _with_batch(context, source_ids=source_ids, target_ids=target_ids)
        outputs = self.target_embedding(self._encode(context), context)
        for cell in self._decoders().values():
            outputs = cell(outputs, context)
        return self.softmax.logits(outputs["target"], context)

    def encode(self, source_ids: tf.Tensor, *, context: Context | None = None) -> dict[str, Any]:
        """The decoding state before the first step.

        Args:
          source_ids: int [B, S]; 0 is padding.
          context: compute dtype; its batch is not read.

        Returns:
          'fixed', with the source's paddings and each decoder layer's keys and values of it, all
          [B, ...], to be repeated for every beam; and 'cache', each decoder layer's keys and values
          of the target so far, [B, N, 0, H], to be gathered as beams change places.
        """
        context = _with_batch(context, source_ids=source_ids)
        source = self.target_embedding.end_encoder(self._encode(context)["source"], context)
        layers = {name: cell.layer for name, cell in self._decoders().items()}
        rows = tf.shape(source_ids)[0]
        memory = {n: layer.cross_attention.remember(source, context) for n, layer in layers.items()}
        cache = {n: layer.attention.initial_cache(rows, context) for n, layer in layers.items()}
        return {
            "fixed": {"paddings": paddings_of(source_ids), "memory": memory},
            "cache": cache,
        }

    def step(
        self,
        ids: tf.Tensor,
        time: tf.Tensor | int,
        state: Mapping[str, Any],
        *,
        context: Context | None = None,
    ) -> tuple[tf.Tensor, dict[str, Any]]:
        """Decodes one position of every row.

        Args:
          ids: int [rows], the newest token of each row.
          time: int32 scalar, its position: the time length of the caches.
          state: from `encode` or the step before, 'fixed' repeated for every beam.
          context: compute dtype, the one given to `encode`; its batch is not read.

        Returns:
          Logits [rows, V] of the next token, float32 at least, and the state after `ids`.
        """
        context = _with_batch(context)
        fixed, cache = state["fixed"], {}
        target = self.target_embedding.tokens(ids[:, None], context, offset=time)  # [rows, 1, D]
        for name, cell in self._decoders().items():
            target, cache[name] = cell.layer.step(
                target,
                context,
                cache=state["cache"][name],
                memory=fixed["memory"][name],
                source_paddings=fixed["paddings"],
            )
        logits = self.softmax.logits(target, context)[:, 0]  # [rows, V]
        return logits, {"fixed": fixed, "cache": cache}

    def _encode(self, context: Context) -> dict[str, tf.Tensor]:
        outputs = self.source_embedding(None, context)
        for cell in self._encoders():
            outputs = cell(outputs, context)
        return outputs

    def _encoders(self) -> list[EncoderCell]:
        return [getattr(self, f"encoder_{i}") for i in range(self.params.num_encoder_layers)]

    def _decoders(self) -> dict[str, DecoderCell]:
        names = [f"decoder_{i}" for i in range(self.params.num_decoder_layers)]
        return {name: getattr(self, name) for name in names}


def _with_batch(context: Context | None, **batch: tf.Tensor) -> Context:
    """The context of an inference on `batch`."""
    return dataclasses.replace(context or Context(), training=False, batch=batch)
