"""Embedding: rows, scale, sparse gradients, and the table that it shares with a softmax."""

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.layers.embedding import Embedding
from lingpipe.layers.softmax import Softmax


def test_each_id_gets_its_row() -> None:
    layer = Embedding.Params(vocabulary_size=5, model_dim=4).build(Scope())
    ids = tf.constant([[3, 0], [4, 4]])
    np.testing.assert_array_equal(layer(ids, Context()), layer.table.numpy()[ids.numpy()])


def test_scaled_embeddings_start_with_variance_one() -> None:
    plain = Embedding.Params(vocabulary_size=500, model_dim=64)
    ids = tf.range(500)[None]
    rows = plain.build(Scope())(ids, Context())
    scaled = plain.copy(scale_by_sqrt_dim=True).build(Scope())(ids, Context())
    assert np.std(rows) == pytest.approx(64**-0.5, rel=0.02)
    np.testing.assert_allclose(scaled, 8.0 * rows, rtol=1e-6)


def test_the_gradient_of_the_table_holds_the_rows_that_were_read() -> None:
    layer = Embedding.Params(vocabulary_size=1000, model_dim=2).build(Scope())
    context = Context(compute_dtype=tf.bfloat16)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([[7, 7, 2]]), context))
    gradient = tape.gradient(loss, layer.table)
    assert isinstance(gradient, tf.IndexedSlices)
    assert gradient.indices.numpy().tolist() == [7, 7, 2]
    assert gradient.values.dtype == tf.float32


def test_one_share_weights_ties_embedding_and_softmax() -> None:
    scope = Scope(seed=1)
    sizes = {"vocabulary_size": 6, "model_dim": 4, "share_weights": "tokens"}
    embedding = Embedding.Params(**sizes).build(scope.child("embedding"))
    softmax = Softmax.Params(**sizes).build(scope.child("softmax"))
    assert embedding.table is softmax.table
    assert list(scope.variables) == ["tokens/table"]
    apart = Softmax.Params(vocabulary_size=6, model_dim=4, share_weights="tokens")
    np.testing.assert_array_equal(apart.build(Scope(seed=1)).table, embedding.table)


def test_tied_tables_of_different_sizes_are_refused() -> None:
    scope = Scope()
    sizes = {"model_dim": 4, "share_weights": "tokens"}
    Embedding.Params(vocabulary_size=6, **sizes).build(scope)
    with pytest.raises(ValueError, match=r"share the weight 'tokens/table' but declare it differ"):
        Softmax.Params(vocabulary_size=7, **sizes).build(scope)
