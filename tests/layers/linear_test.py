"""Linear against a plain matrix product."""

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Scope
from lingpipe.base.spec import Spec
from lingpipe.layers.linear import Linear


@pytest.mark.parametrize("leading", [(5,), (2, 3), (2, 3, 4), (0, 3)])
def test_the_last_dimension_is_multiplied_and_the_others_stay(leading: tuple[int, ...]) -> None:
    layer = Linear.Params(input_dim=4, output_dim=3).build(Scope(seed=1))
    layer.bias.assign([1.0, 2.0, 3.0])
    inputs = np.random.default_rng(1).normal(size=(*leading, 4)).astype(np.float32)
    outputs = layer(tf.constant(inputs), Context())
    expected = inputs @ layer.kernel.numpy() + layer.bias.numpy()
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


def test_open_dimensions_stay_open_and_known_ones_known() -> None:
    layer = Linear.Params(input_dim=4, output_dim=3).build(Scope())
    function = tf.function(lambda x: layer(x, Context()))
    concrete = function.get_concrete_function(tf.TensorSpec([None, 7, 4]))
    assert concrete.output_shapes.as_list() == [None, 7, 3]


def test_without_a_bias_there_is_one_weight() -> None:
    params = Linear.Params(input_dim=4, output_dim=3, use_bias=False)
    assert list(params.weights()) == ["kernel"]
    assert params.cost(Spec((5, 4))).flops == 2 * 5 * 4 * 3
    layer = params.build(Scope())
    np.testing.assert_allclose(layer(tf.zeros([2, 4]), Context()), np.zeros([2, 3]))


def test_the_initial_kernel_has_the_variance_of_xavier_times_the_square_of_gain() -> None:
    plain = Linear.Params(input_dim=300, output_dim=100).build(Scope())
    small = Linear.Params(input_dim=300, output_dim=100, gain=0.1).build(Scope())
    assert np.var(plain.kernel) == pytest.approx(2 / 400, rel=0.03)
    np.testing.assert_allclose(small.kernel, 0.1 * plain.kernel, rtol=1e-6)
    assert not np.any(plain.bias)


def test_products_run_in_the_compute_dtype() -> None:
    layer = Linear.Params(input_dim=4, output_dim=3).build(Scope())
    for dtype in (tf.bfloat16, tf.float16, tf.float64):
        assert layer(tf.ones([2, 4], dtype), Context(compute_dtype=dtype)).dtype == dtype
        assert layer.kernel.dtype == tf.float32


@pytest.mark.parametrize("dtype", (tf.bfloat16, tf.float16, tf.float32, tf.float64))
def test_the_gradient_of_the_bias_is_added_up_in_float32(dtype: tf.DType) -> None:
    """In bfloat16 a sum of ones ends at 256, in float16 at 2,048."""
    layer = Linear.Params(input_dim=2, output_dim=3).build(Scope())
    inputs = tf.zeros([5, 1000, 2], dtype)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(tf.cast(layer(inputs, Context(compute_dtype=dtype)), tf.float32))
    gradient = tape.gradient(total, layer.bias)
    assert gradient.dtype == tf.float32
    np.testing.assert_array_equal(gradient, [5000.0] * 3)
