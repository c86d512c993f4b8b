"""Encoder and decoder layers: how their parts are put together, and decoding step by step.

The parts have tests of their own; the whole model is compared with NumPy in
tests/tasks/mt/model_test.py.
"""

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer, Scope
from lingpipe.base.spec import Spec
from lingpipe.hyperparams import ParamsError
from lingpipe.layers.attention import CrossAttention, SelfAttention
from lingpipe.layers.feed_forward import FeedForward
from lingpipe.layers.transformer import DecoderLayer, EncoderLayer, NormPosition

ATTENTION = SelfAttention.Params(num_heads=2)
CROSS = CrossAttention.Params(num_heads=2)
ENCODER = EncoderLayer.Params(
    model_dim=8, attention=ATTENTION, feed_forward=FeedForward.Params(hidden_dim=16)
)
DECODER = DecoderLayer.Params(
    model_dim=8,
    attention=ATTENTION,
    cross_attention=CROSS,
    feed_forward=FeedForward.Params(hidden_dim=16),
)


def tensor(*shape: int, key: int = 1) -> tf.Tensor:
    """Normal random numbers."""
    return tf.random.stateless_normal(shape, [key, 7])


def test_an_encoder_layer_adds_normalised_branches() -> None:
    layer, inputs, context = ENCODER.build(Scope(seed=1)), tensor(2, 5, 8), Context()
    middle = inputs + layer.attention(layer.attention_norm(inputs, context), context)
    expected = middle + layer.feed_forward(layer.feed_forward_norm(middle, context), context)
    np.testing.assert_allclose(layer(inputs, context), expected, atol=1e-6)


def test_post_norm_normalises_the_sums() -> None:
    layer = ENCODER.copy(norm_position=NormPosition.post).build(Scope(seed=1))
    inputs, context = tensor(2, 5, 8), Context()
    middle = layer.attention_norm(inputs + layer.attention(inputs, context), context)
    expected = layer.feed_forward_norm(middle + layer.feed_forward(middle, context), context)
    np.testing.assert_allclose(layer(inputs, context), expected, atol=1e-6)


def test_a_decoder_layer_adds_three_branches() -> None:
    layer, context = DECODER.build(Scope(seed=1)), Context()
    target, source = tensor(2, 3, 8), tensor(2, 5, 8, key=2)
    x = target + layer.attention(layer.attention_norm(target, context), context)
    pair = {"target": layer.cross_attention_norm(x, context), "source": source}
    x = x + layer.cross_attention(pair, context)
    expected = x + layer.feed_forward(layer.feed_forward_norm(x, context), context)
    outputs = layer({"target": target, "source": source}, context)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


def test_a_decoder_layer_does_not_see_the_future() -> None:
    layer = DECODER.build(Scope(seed=1))
    target, source = tensor(1, 6, 8), tensor(1, 5, 8, key=2)
    changed = tf.concat([target[:, :4], tensor(1, 2, 8, key=3)], axis=1)
    before = layer({"target": target, "source": source}, Context())
    after = layer({"target": changed, "source": source}, Context())
    np.testing.assert_allclose(after[:, :4], before[:, :4], atol=1e-6)


@pytest.mark.parametrize("norm_position", list(NormPosition))
def test_steps_give_what_the_whole_target_gives(norm_position: NormPosition) -> None:
    layer = DECODER.copy(norm_position=norm_position).build(Scope(seed=1))
    target, source = tensor(2, 4, 8), tensor(2, 5, 8, key=2)
    paddings = tf.constant([[False] * 5, [False] * 2 + [True] * 3])
    context = Context()
    inputs = {"target": target, "source": source}
    whole = layer(inputs, context, source_paddings=paddings)
    memory = layer.cross_attention.remember(source, context)
    cache = layer.attention.initial_cache(2, context)
    for time in range(4):
        position = target[:, time : time + 1]
        outputs, cache = layer.step(
            position, context, cache=cache, memory=memory, source_paddings=paddings
        )
        np.testing.assert_allclose(outputs[:, 0], whole[:, time], atol=1e-6)


def test_every_branch_is_dropped_with_a_mask_of_its_own() -> None:
    layer = DECODER.copy(dropout=0.5).build(Scope(seed=1))
    masks = []
    context = Context(training=True)
    for _ in range(3):
        masks.append(layer.residual_dropout(tf.ones([2, 3, 8]), context).numpy())
    assert len({mask.tobytes() for mask in masks}) == 3
    used = Context(training=True)
    layer({"target": tensor(2, 3, 8), "source": tensor(2, 5, 8)}, used)
    assert used.draws["residual_dropout"] == 3


def test_parts_are_templates_that_a_subclass_may_replace() -> None:
    class Doubled(FeedForward):
        def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
            return 2.0 * super().__call__(inputs, context)

    plain = ENCODER.build(Scope(seed=1))
    params = ENCODER.copy(feed_forward=Doubled.Params(hidden_dim=16))
    layer = params.build(Scope(seed=1))
    assert isinstance(layer.feed_forward, Doubled)
    inputs = tensor(1, 2, 8)
    np.testing.assert_allclose(
        layer.feed_forward(inputs, Context()), 2.0 * plain.feed_forward(inputs, Context())
    )


def test_uneven_heads_are_refused_when_the_layer_is_built() -> None:
    with pytest.raises(ParamsError, match=r"model_dim \(9\) must be a multiple of num_heads \(2"):
        ENCODER.copy(model_dim=9).build(Scope())


@pytest.mark.parametrize("params", [ENCODER, DECODER], ids=["encoder", "decoder"])
def test_the_cost_is_the_sum_of_the_parts_products(params: Layer.Params) -> None:
    big = params.copy(model_dim=512)
    big.feed_forward.hidden_dim = 2048
    spec = Spec((4, 128, 512))
    inputs = {"target": spec, "source": spec} if params is DECODER else spec
    attentions = 2 if params is DECODER else 1
    expected = 2 * 4 * 128 * (attentions * (4 * 512 * 512 + 2 * 128 * 512) + 2 * 512 * 2048)
    assert big.cost(inputs).flops == pytest.approx(expected, rel=0.02)
    assert big.cost(inputs).outputs == spec
