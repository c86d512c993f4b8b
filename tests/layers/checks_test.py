"""The checks that params of several layers share: what they refuse, and in which words."""

import pytest

from lingpipe.base.layer import Layer, Scope
from lingpipe.hyperparams import ParamsError
from lingpipe.layers.attention import SelfAttention
from lingpipe.layers.checks import MAX_DIM, check_heads, check_size
from lingpipe.layers.dropout import Dropout
from lingpipe.layers.embedding import Embedding
from lingpipe.layers.feed_forward import FeedForward
from lingpipe.layers.linear import Linear
from lingpipe.layers.normalization import LayerNorm
from lingpipe.layers.softmax import Softmax


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_a_rate_outside_of_zero_to_one_is_refused(rate: float) -> None:
    with pytest.raises(ParamsError, match=r"must be at least 0 and less than 1"):
        Dropout.Params(rate=rate).build(Scope())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (Linear.Params(input_dim=0, output_dim=3), r"input_dim \(0\) must be greater than 0"),
        (Linear.Params(input_dim=3, output_dim=-1), r"output_dim \(-1\) must be greater than 0"),
        (Embedding.Params(vocabulary_size=0, model_dim=2), r"vocabulary_size \(0\) must be great"),
        (LayerNorm.Params(model_dim=2, epsilon=0.0), r"epsilon \(0.0\) must be greater than 0"),
        (FeedForward.Params(model_dim=2, hidden_dim=0), r"hidden_dim \(0\) must be greater"),
        (
            Softmax.Params(model_dim=2, vocabulary_size=2, logit_limit=0.0),
            r"logit_limit \(0.0\) must be greater than 0",
        ),
    ],
)
def test_sizes_are_greater_than_zero(params: Layer.Params, message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        params.build(Scope())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            Embedding.Params(vocabulary_size=2**24 + 1, model_dim=2),
            r"y_size \(16777217\) must be at",
        ),
        (Softmax.Params(vocabulary_size=2**24 + 1, model_dim=2), r"must be at most 16_777_216\."),
        (
            FeedForward.Params(model_dim=2, hidden_dim=10**12),
            r"hidden_dim \(1000000000000\) must be",
        ),
        (
            LayerNorm.Params(model_dim=2**20 + 1),
            r"model_dim \(1048577\) must be at most 1_048_576\.",
        ),
    ],
)
def test_sizes_beyond_all_reason_are_refused_with_their_bound(
    params: Layer.Params, message: str
) -> None:
    with pytest.raises(ParamsError, match=message):
        params.build(Scope())


def test_the_greatest_sizes_and_none_are_no_mistake() -> None:
    assert not list(check_size(FeedForward.Params(model_dim=1, hidden_dim=MAX_DIM), "hidden_dim"))
    attention = SelfAttention.Params(model_dim=8, num_heads=2)
    assert not list(check_size(attention, "head_dim", "num_heads", most=2))


def test_heads_are_not_wider_than_a_model_may_be() -> None:
    (problem,) = check_heads(8, 4, MAX_DIM // 4 + 1)
    words = "num_heads (4) times head_dim (262145) must be at most 1_048_576."
    assert problem == ("head_dim", words)
    assert not list(check_heads(8, 4, MAX_DIM // 4))


@pytest.mark.parametrize(("model_dim", "num_heads"), [(-1, 8), (0, 8), (100, 0), (100, 10**12)])
def test_heads_of_impossible_sizes_get_no_advice(model_dim: int, num_heads: int) -> None:
    assert not list(check_heads(model_dim, num_heads, None))


def test_a_size_left_out_is_named() -> None:
    with pytest.raises(ParamsError, match=r"REQUIRED is left in.*output_dim"):
        Linear.Params(input_dim=3).build(Scope())


@pytest.mark.parametrize("head_dim", [0, -3])
def test_a_width_of_heads_is_greater_than_zero(head_dim: int) -> None:
    (problem,) = check_heads(8, 2, head_dim)
    words = f"head_dim ({head_dim}) must be greater than 0; None takes model_dim / num_heads."
    assert problem == ("head_dim", words)


def test_uneven_heads_are_refused_with_two_widths_that_would_do() -> None:
    ((field, message),) = check_heads(model_dim=100, num_heads=8, head_dim=None)
    assert field == "num_heads"
    assert "model_dim (100) must be a multiple of num_heads (8)" in message
    assert "use model_dim 96 or 104, or set head_dim" in message
    assert not list(check_heads(model_dim=100, num_heads=8, head_dim=64))
    assert not list(check_heads(model_dim=96, num_heads=8, head_dim=None))
