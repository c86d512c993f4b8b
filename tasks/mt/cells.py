"""The Transformer for translation as a list of cells, the units that a pipeline cuts between.

    source_embedding  encoder_0 ...  target_embedding  decoder_0 ...  softmax
           |              |                 |               |            |
       {source}       {source}      {source, target}  {source, target}  {loss, weight, ...}

Between cells travel float tensors alone: 'source' [B, S, D] and 'target' [B, T, D]. Ids, labels and
weights come from the batch, straight to the cell that names them in `batch_keys`. Id 0 is padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost, total_cost
from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec, Specs
from lingpipe.layers.checks import check_rate
from lingpipe.layers.dropout import Dropout
from lingpipe.layers.embedding import Embedding
from lingpipe.layers.losses import smoothed_cross_entropy, weighted_sum
from lingpipe.layers.normalization import LayerNorm
from lingpipe.layers.position import SinusoidalPosition
from lingpipe.layers.softmax import Softmax
from lingpipe.layers.transformer import DecoderLayer, EncoderLayer

Tensors = Mapping[str, tf.Tensor]


class TokenEmbedding(Layer):
    """Embeddings plus positions, with dropout: ids [B, T] -> floats [B, T, D]."""

    class Params(Layer.Params):
        """The table and the dropout."""

        embedding: Embedding.Params = Embedding.Params(scale_by_sqrt_dim=True)  # The table.
        dropout: float = 0.0  # Share of the sums dropped in training.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_rate(self, "dropout")

        def children(self) -> dict[str, Layer.Params]:
            return {
                "embedding": self.embedding,
                "position": SinusoidalPosition.Params(model_dim=self.embedding.model_dim),
                "sum_dropout": Dropout.Params(rate=self.dropout),
            }

        def cost(self, inputs: Spec, batch: Mapping[str, Spec] | None = None) -> Cost:
            children = self.children()
            looked_up = children["embedding"].cost(inputs, batch)
            outputs = looked_up.outputs
            placed = children["position"].cost(outputs, batch)
            dropped = children["sum_dropout"].cost(outputs, batch)
            all_of_it = total_cost(looked_up, placed, dropped, outputs=outputs)
            # No step needs values to be derived; dropout keeps its mask.
            kept = dropped.activation_bytes or outputs.bytes
            return dataclasses.replace(all_of_it, activation_bytes=kept)

    params: Params
    embedding: Embedding
    position: SinusoidalPosition
    sum_dropout: Dropout

    def __call__(
        self, inputs: tf.Tensor, context: Context, *, offset: tf.Tensor | int = 0
    ) -> tf.Tensor:
        """Int ids [B, T], the first at position `offset` -> floats [B, T, D]."""
        embedded = self.embedding(inputs, context)
        placed = self.position(embedded, context, offset=offset)
        return self.sum_dropout(placed, context)


class SourceEmbeddingCell(Layer):
    """First cell: None -> {'source'}; reads `source_ids` [B, S]."""

    class Params(Layer.Params):
        """How ids become vectors."""

        tokens: TokenEmbedding.Params = TokenEmbedding.Params()

        def children(self) -> dict[str, Layer.Params]:
            return {"tokens": self.tokens}

        def batch_keys(self) -> tuple[str, ...]:
            return ("source_ids",)

        def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
            tokens = self.tokens.cost(_entry(batch, "source_ids"), batch)
            return total_cost(tokens, outputs={"source": tokens.outputs})

    params: Params
    tokens: TokenEmbedding

    def __call__(self, inputs: None, context: Context) -> dict[str, tf.Tensor]:
        """Embeds the source."""
        return {"source": self.tokens(context.batch["source_ids"], context)}


class EncoderCell(Layer):
    """{'source'} -> {'source'}; reads `source_ids` [B, S] for their paddings."""

    class Params(Layer.Params):
        """The layer of this cell."""

        layer: EncoderLayer.Params = EncoderLayer.Params()

        def children(self) -> dict[str, Layer.Params]:
            return {"layer": self.layer}

        def batch_keys(self) -> tuple[str, ...]:
            return ("source_ids",)

        def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
            layer = self.layer.cost(inputs["source"], batch)
            return total_cost(layer, outputs={"source": layer.outputs})

    params: Params
    layer: EncoderLayer

    def __call__(self, inputs: Tensors, context: Context) -> dict[str, tf.Tensor]:
        """Encodes the source once more."""
        paddings = paddings_of(context.batch["source_ids"])
        return {"source": self.layer(inputs["source"], context, paddings=paddings)}


class TargetEmbeddingCell(Layer):
    """{'source'} -> {'source', 'target'}; reads `target_ids` [B, T].

    Also applies the encoder's last norm where its layers are pre-norm, so that every decoder cell
    finds the source ready for use.
    """

    class Params(Layer.Params):
        """How ids become vectors, and the encoder's last norm."""

        tokens: TokenEmbedding.Params = TokenEmbedding.Params()
        source_norm: LayerNorm.Params | None = (
            None  # The encoder's last norm; None after post-norm.
        )

        def children(self) -> dict[str, Layer.Params]:
            norm = {"source_norm": self.source_norm} if self.source_norm else {}
            return {"tokens": self.tokens, **norm}

        def batch_keys(self) -> tuple[str, ...]:
            return ("target_ids",)

        def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
            tokens = self.tokens.cost(_entry(batch, "target_ids"), batch)
            outputs = {"source": inputs["source"], "target": tokens.outputs}
            norm = [self.source_norm.cost(inputs["source"], batch)] if self.source_norm else []
            passed = 0 if self.source_norm else inputs["source"].bytes
            return total_cost(tokens, *norm, outputs=outputs, passed_bytes=passed)

    params: Params
    tokens: TokenEmbedding
    source_norm: LayerNorm

    def __call__(self, inputs: Tensors, context: Context) -> dict[str, tf.Tensor]:
        """Ends the encoder and embeds the target."""
        return {
            "source": self.end_encoder(inputs["source"], context),
            "target": self.tokens(context.batch["target_ids"], context),
        }

    def end_encoder(self, source: tf.Tensor, context: Context) -> tf.Tensor:
        """The encoder's outputs [B, S, D] as decoder layers want them."""
        return self.source_norm(source, context) if self.params.source_norm else source


class DecoderCell(Layer):
    """{'source', 'target'} -> the same; reads `source_ids` [B, S] for their paddings.

    Paddings of the target need no mask: they stand last, so that no real position sees them.
    """

    class Params(Layer.Params):
        """The layer of this cell."""

        layer: DecoderLayer.Params = DecoderLayer.Params()

        def children(self) -> dict[str, Layer.Params]:
            return {"layer": self.layer}

        def batch_keys(self) -> tuple[str, ...]:
            return ("source_ids",)

        def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
            layer = self.layer.cost(inputs, batch)
            outputs = {**inputs, "target": layer.outputs}
            return total_cost(layer, outputs=outputs, passed_bytes=inputs["source"].bytes)

    params: Params
    layer: DecoderLayer

    def __call__(self, inputs: Tensors, context: Context) -> dict[str, tf.Tensor]:
        """Decodes the target once more and passes the source on."""
        paddings = paddings_of(context.batch["source_ids"])
        target = self.layer(inputs, context, source_paddings=paddings)
        return {"source": inputs["source"], "target": target}


class SoftmaxCell(Layer):
    """Last cell: {'source', 'target'} -> sums; reads `target_labels`, `target_weights` [B, T]."""

    class Params(Layer.Params):
        """Scores of the vocabulary, and the loss."""

        softmax: Softmax.Params = Softmax.Params()
        norm: LayerNorm.Params | None = None  # The decoder's last norm; None after post-norm.
        label_smoothing: float = 0.0  # Share of the target distribution spread over all ids.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_rate(self, "label_smoothing")

        def children(self) -> dict[str, Layer.Params]:
            norm = {"norm": self.norm} if self.norm else {}
            return {**norm, "softmax": self.softmax}

        def batch_keys(self) -> tuple[str, ...]:
            return ("target_labels", "target_weights")

        def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
            norm = [self.norm.cost(inputs["target"], batch)] if self.norm else []
            logits = self.softmax.cost(inputs["target"], batch)
            # Exponentials take the place of the logits until the backward pass.
            loss = Cost(6 * logits.outputs.elements, None, 0, 2 * logits.outputs.bytes)
            sums = ("loss", "weight", "negative_log_likelihood", "correct")
            return total_cost(*norm, logits, loss, outputs=dict.fromkeys(sums, Spec(())))

    params: Params
    softmax: Softmax
    norm: LayerNorm

    def __call__(self, inputs: Tensors, context: Context) -> dict[str, tf.Tensor]:
        """Scores the labels.

        Returns:
          Float32 scalars, sums over tokens times their weights: 'loss' is the label-smoothed
          cross-entropy, 'negative_log_likelihood' that of the labels alone, 'correct' counts labels
          that had the greatest logit, 'weight' adds up the weights.
        """
        labels, weights = context.batch["target_labels"], context.batch["target_weights"]
        logits = self.logits(inputs["target"], context)
        losses = smoothed_cross_entropy(logits, labels, self.params.label_smoothing)
        guesses = tf.argmax(logits, axis=-1, output_type=labels.dtype)
        hits = tf.cast(guesses == labels, logits.dtype)
        loss, weight = weighted_sum(losses.smoothed, weights)
        return {
            "loss": loss,
            "weight": weight,
            "negative_log_likelihood": weighted_sum(losses.negative_log_likelihood, weights).total,
            "correct": weighted_sum(hits, weights).total,
        }

    def logits(self, target: tf.Tensor, context: Context) -> tf.Tensor:
        """Floats [B, T, D] of the last decoder layer -> logits [B, T, V]."""
        normalised = self.norm(target, context) if self.params.norm else target
        return self.softmax(normalised, context)


def paddings_of(ids: tf.Tensor) -> tf.Tensor:
    """Bool, True where `ids` are padding."""
    return tf.equal(ids, 0)


def _entry(batch: Mapping[str, Spec] | None, key: str) -> Any:
    """The spec of one entry of the batch."""
    if batch is None or key not in batch:
        raise ValueError(
            f"The cost of this cell needs the spec of the batch entry {key!r}; pass batch={{...}} "
            f"with its shape, such as Spec((8, 64), 'int32')."
        )
    return batch[key]
