"""Attention against NumPy written position by position, masks, and decoding with a cache."""

import math

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.base.spec import Spec
from lingpipe.hyperparams import ParamsError
from lingpipe.layers.attention import (
    CrossAttention,
    Masking,
    MultiHeadAttention,
    SelfAttention,
    causal_bias,
)
from lingpipe.layers.linear import Linear

SELF = SelfAttention.Params(model_dim=8, num_heads=2, head_dim=3)
CROSS = CrossAttention.Params(model_dim=8, num_heads=2, head_dim=3)
PADDINGS = np.array([[False] * 5, [False, False, True, False, True]])


def tensor(*shape: int, key: int = 1) -> tf.Tensor:
    """Normal random numbers."""
    return tf.random.stateless_normal(shape, [key, 7])


def build(params: MultiHeadAttention.Params) -> MultiHeadAttention:
    """A layer with random biases, which start at 0 otherwise."""
    layer = params.build(Scope(seed=1))
    for index, variable in enumerate(layer.trainable_variables):
        if "bias" in variable.name:
            variable.assign(tensor(*variable.shape, key=index))
    return layer


def heads(inputs: np.ndarray, linear: Linear, num_parts: int) -> np.ndarray:
    """[B, T, D] -> [parts, B, T, N, H]."""
    product = inputs @ linear.kernel.numpy() + linear.bias.numpy()
    return np.moveaxis(product.reshape(*product.shape[:2], num_parts, 2, 3), 2, 0)


def plain_attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, seen: np.ndarray, output: Linear
) -> np.ndarray:
    """Attention of [B, T, N, H] to [B, S, N, H], where bool `seen` [B, T, S] lets it."""
    batch, time, num_heads, width = query.shape
    gathered = np.zeros([batch, time, num_heads, width])
    for b, t, n in np.ndindex(batch, time, num_heads):
        scores = [query[b, t, n] @ key[b, s, n] / math.sqrt(width) for s in range(key.shape[1])]
        chances = np.where(seen[b, t], np.exp(scores), 0.0)
        gathered[b, t, n] = chances @ value[b, :, n] / chances.sum()
    return gathered.reshape(batch, time, -1) @ output.kernel.numpy() + output.bias.numpy()


@pytest.mark.parametrize("masking", list(Masking))
def test_self_attention_follows_the_definition(masking: Masking) -> None:
    layer = build(SELF.copy(masking=masking))
    inputs = tensor(2, 5, 8)
    seen = np.repeat(~PADDINGS[:, None, :], 5, axis=1)
    if masking is Masking.causal:
        seen &= np.tri(5, dtype=bool)
    query, key, value = heads(inputs.numpy(), layer.query_key_value, 3)
    expected = plain_attention(query, key, value, seen, layer.output)
    outputs = layer(inputs, Context(), paddings=tf.constant(PADDINGS))
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


def test_cross_attention_follows_the_definition() -> None:
    layer = build(CROSS)
    target, source = tensor(2, 3, 8), tensor(2, 5, 8, key=2)
    (query,) = heads(target.numpy(), layer.query, 1)
    key, value = heads(source.numpy(), layer.key_value, 2)
    seen = np.repeat(~PADDINGS[:, None, :], 3, axis=1)
    expected = plain_attention(query, key, value, seen, layer.output)
    inputs = {"target": target, "source": source}
    outputs = layer(inputs, Context(), paddings=tf.constant(PADDINGS))
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


def test_appended_paddings_change_nothing() -> None:
    layer = build(SELF)
    inputs = tensor(2, 5, 8)
    longer = tf.concat([inputs, 100.0 * tensor(2, 20, 8, key=3)], axis=1)
    paddings = tf.range(25)[None] >= tf.constant([[5], [5]])
    outputs = layer(longer, Context(), paddings=paddings)[:, :5]
    np.testing.assert_allclose(outputs, layer(inputs, Context()), atol=1e-6)


@pytest.mark.parametrize("dtype", (tf.float32, tf.bfloat16, tf.float16))
def test_a_row_of_paddings_alone_gives_no_nan(dtype: tf.DType) -> None:
    for masking in Masking:
        layer = build(SELF.copy(masking=masking, dropout=0.5))
        inputs = tf.cast(tensor(2, 5, 8), dtype)
        paddings = tf.constant([[True] * 5, [False] * 5])
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            context = Context(training=True, compute_dtype=dtype)
            outputs = layer(inputs, context, paddings=paddings)
        gradients = tape.gradient(outputs, [inputs, *layer.trainable_variables])
        for value in (outputs, *gradients):
            assert np.all(np.isfinite(tf.cast(value, tf.float32)))


def test_future_positions_do_not_change_the_past() -> None:
    layer = build(SELF.copy(masking=Masking.causal))
    inputs = tensor(1, 6, 8)
    changed = tf.concat([inputs[:, :4], 9.0 * tensor(1, 2, 8, key=2)], axis=1)
    before, after = layer(inputs, Context()), layer(changed, Context())
    np.testing.assert_allclose(after[:, :4], before[:, :4], atol=1e-6)
    assert np.abs(after[:, 4:] - before[:, 4:]).max() > 0.1


def test_a_cache_gives_what_the_whole_sequence_gives() -> None:
    layer = build(SELF.copy(masking=Masking.causal))
    inputs = tensor(2, 6, 8)
    whole = layer(inputs, Context())
    for sizes in ([1] * 6, [3, 1, 2]):
        cache = layer.initial_cache(2, Context())
        outputs = []
        for part in tf.split(inputs, sizes, axis=1):
            extended, cache = layer.extend(part, Context(), cache=cache)
            outputs.append(extended)
        np.testing.assert_allclose(tf.concat(outputs, axis=1), whole, atol=1e-6)
        assert cache["key"].shape == cache["value"].shape == [2, 2, 6, 3]


def test_a_remembered_source_gives_what_the_source_gives() -> None:
    layer = build(CROSS)
    target, source = tensor(2, 3, 8), tensor(2, 5, 8, key=2)
    paddings = tf.constant(PADDINGS)
    whole = layer({"target": target, "source": source}, Context(), paddings=paddings)
    memory = layer.remember(source, Context())
    assert memory["key"].shape == [2, 2, 5, 3]
    recalled = layer.recall(target, Context(), memory=memory, paddings=paddings)
    np.testing.assert_allclose(recalled, whole, atol=1e-6)


def test_the_last_query_sees_every_key() -> None:
    hidden = causal_bias(2, 4).numpy() < 0
    np.testing.assert_array_equal(hidden, [[False, False, False, True], [False] * 4])


def test_probabilities_are_dropped_at_the_declared_rate() -> None:
    layer = SelfAttention.Params(model_dim=4, num_heads=2, dropout=0.25).build(Scope())
    probabilities = layer.probability_dropout(tf.ones([8, 2, 50, 50]), Context(training=True))
    assert np.mean(probabilities.numpy() == 0) == pytest.approx(0.25, abs=0.01)
    inputs = tensor(1, 5, 4)
    train, test = layer(inputs, Context(training=True)), layer(inputs, Context())
    assert not np.allclose(train, test)


def test_heads_of_one_product_start_as_wide_as_heads_of_separate_products() -> None:
    layer = SelfAttention.Params(model_dim=64, num_heads=4).build(Scope())
    assert np.var(layer.query_key_value.kernel) == pytest.approx(2 / (64 + 64), rel=0.05)
    layer = CrossAttention.Params(model_dim=64, num_heads=4).build(Scope())
    assert np.var(layer.key_value.kernel) == pytest.approx(2 / (64 + 64), rel=0.05)


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ParamsError, match=r"model_dim \(10\) must be a multiple of num_heads \(4"):
        SelfAttention.Params(model_dim=10, num_heads=4).build(Scope())
    SelfAttention.Params(model_dim=10, num_heads=4, head_dim=5).build(Scope())
    with pytest.raises(ParamsError, match=r"head_dim \(-5\) must be greater than 0"):
        SelfAttention.Params(model_dim=10, num_heads=4, head_dim=-5).build(Scope())


def test_the_cost_counts_projections_and_both_products() -> None:
    params = SelfAttention.Params(model_dim=512, num_heads=8)
    projections = 2 * 4 * 128 * 512 * 512 * 4
    products = 2 * 2 * 4 * 128 * 128 * 512
    cost = params.cost(Spec((4, 128, 512)))
    assert cost.flops == pytest.approx(projections + products, rel=0.01)


@pytest.mark.parametrize("dtype", (tf.bfloat16, tf.float16))
def test_the_softmax_is_float32_in_short_dtypes(dtype: tf.DType) -> None:
    layer = build(SELF)
    inputs = tf.cast(tensor(2, 5, 8), dtype)
    function = tf.function(lambda x: layer(x, Context(compute_dtype=dtype)))
    graph = function.get_concrete_function(inputs).graph
    (softmax,) = [op for op in graph.get_operations() if op.type == "Softmax"]
    assert softmax.inputs[0].dtype == tf.float32
    assert function(inputs).dtype == dtype
