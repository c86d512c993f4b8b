"""Dropout: how much it drops, and that its mask belongs to the example."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.layers.dropout import Dropout, random_bits

LONG_AGO = (5_000_000, 2**24, 2**31 + 5, 2**40)


def training(step: int = 1, first_example: int = 0, seed: int = 1) -> Context:
    """A training step's context."""
    return Context(training=True, step=step, first_example=first_example, seed=seed)


def bits(context: Context, shape: tuple[int, ...] = (4, 16), path: str = "layer") -> np.ndarray:
    """The random bits that a layer would draw."""
    return random_bits(tf.zeros(shape), context, path).numpy()


def dropout(rate: float) -> Dropout:
    """A layer of that rate."""
    return Dropout.Params(rate=rate).build(Scope().child("dropout"))


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9])
def test_the_declared_share_is_dropped_and_the_rest_scaled_up(rate: float) -> None:
    count = 1_000_000
    outputs = dropout(rate)(tf.ones([100, count // 100]), training()).numpy()
    share = np.mean(outputs == 0)
    assert abs(share - rate) < 4 * np.sqrt(rate * (1 - rate) / count)
    kept = outputs[outputs != 0]
    np.testing.assert_allclose(kept, 1 / (1 - rate), rtol=1e-4)
    assert outputs.mean() == pytest.approx(1.0, abs=0.01)


def test_nothing_happens_outside_of_training_or_at_rate_zero() -> None:
    inputs = tf.ones([2, 3])
    assert dropout(0.5)(inputs, Context(training=False)) is inputs
    assert dropout(0.0)(inputs, training()) is inputs


def test_a_tiny_rate_still_drops_and_a_huge_one_still_keeps() -> None:
    inputs = tf.ones([1000, 1000])
    assert 0 < np.sum(dropout(1e-6)(inputs, training()).numpy() == 0) < 100
    assert 0 < np.sum(dropout(1 - 1e-9)(inputs, training()).numpy() != 0) < 100


@pytest.mark.parametrize("size", [(8,), (16,), (7,), (1,), (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("step", [3, *LONG_AGO])
def test_a_micro_batch_sees_its_slice_of_the_whole_mask(size: tuple[int, ...], step: int) -> None:
    whole = bits(training(step), (7, *size))
    for cuts in ((0, 7), (0, 2, 7), (0, 3, 6, 7), range(8)):
        for start, end in itertools.pairwise(cuts):
            part = bits(training(step, start), (end - start, *size))
            np.testing.assert_array_equal(part, whole[start:end])


def test_examples_of_a_far_part_of_the_stream_are_found_too() -> None:
    whole = bits(training(first_example=2**40), (4, 9))
    np.testing.assert_array_equal(bits(training(first_example=2**40 + 3), (1, 9)), whole[3:])
    assert not np.array_equal(whole, bits(training(first_example=0), (4, 9)))


def test_no_two_examples_share_a_mask() -> None:
    rows = bits(training(), (500, 8))
    assert len({row.tobytes() for row in rows}) == 500


@pytest.mark.parametrize("step", LONG_AGO)
def test_every_step_has_its_own_mask(step: int) -> None:
    masks = {bits(training(other)).tobytes() for other in (1, step - 1, step, step + 1)}
    assert len(masks) == 4


def test_layers_seeds_and_repeated_draws_have_their_own_masks() -> None:
    context = training()
    masks = [
        bits(context),
        bits(context),
        bits(training(), path="other"),
        bits(training(seed=2)),
        bits(training(), (4, 24))[:, :16],
    ]
    assert len({mask.tobytes() for mask in masks}) == 5
    np.testing.assert_array_equal(bits(training()), masks[0])


def test_bits_are_evenly_spread() -> None:
    drawn = bits(training(), (100, 6560))  # Some ten of each value.
    counts = np.bincount(drawn.ravel(), minlength=65_536)
    chi_squared = np.sum((counts - drawn.size / 65_536) ** 2) / (drawn.size / 65_536)
    assert abs(chi_squared - 65_535) < 5 * np.sqrt(2 * 65_535)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("wrap", [lambda function: function, tf.recompute_grad])
def test_p04_zeros_of_the_outputs_are_zeros_of_the_gradient(
    wrap: Callable[[Callable], Callable], jit_compile: bool
) -> None:
    layer = dropout(0.3)

    @tf.function(jit_compile=jit_compile)
    def run(inputs: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def apply(inputs: tf.Tensor) -> tf.Tensor:
            context = Context(training=True, step=step, first_example=tf.constant(3, tf.int64))
            return layer(inputs, context)

        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = wrap(apply)(inputs)
        return outputs, tape.gradient(outputs, inputs)

    patterns = set()
    for step in (1, *LONG_AGO):
        outputs, gradient = run(tf.ones([4, 33]), tf.constant(step, tf.int64))
        is_dropped = outputs.numpy() == 0
        np.testing.assert_array_equal(is_dropped, gradient.numpy() == 0)
        assert 10 < is_dropped.sum() < 80
        patterns.add(is_dropped.tobytes())
    assert len(patterns) == 5


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float64])
def test_every_dtype_has_the_same_mask(dtype: tf.DType) -> None:
    layer = dropout(0.5)
    expected = layer(tf.ones([4, 9]), training())
    outputs = layer(tf.ones([4, 9], dtype), training())
    assert outputs.dtype == dtype
    np.testing.assert_array_equal(tf.cast(outputs, tf.float32), expected)


def test_open_shapes_and_empty_tensors_are_fine() -> None:
    layer = dropout(0.5)
    function = tf.function(lambda x: layer(x, training()))
    concrete = function.get_concrete_function(tf.TensorSpec([None, None, 3]))
    np.testing.assert_array_equal(
        concrete(tf.ones([2, 5, 3])), layer(tf.ones([2, 5, 3]), training())
    )
    assert concrete(tf.ones([0, 5, 3])).shape == [0, 5, 3]
    assert concrete(tf.ones([2, 0, 3])).shape == [2, 0, 3]
