"""Operations cost what their formulas say."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.graph_work import ELEMENT_FLOPS, product_flops, work_of


def operations(function: Callable[..., object], *shapes: tuple[int, ...]) -> list[tf.Operation]:
    specs = [tf.TensorSpec(shape) for shape in shapes]
    return tf.function(function).get_concrete_function(*specs).graph.get_operations()


@pytest.mark.parametrize(
    ("function", "shapes", "flops"),
    [
        (lambda x, y: x @ y, [(3, 5), (5, 7)], 2 * 3 * 5 * 7),
        (lambda x, y: tf.matmul(x, y, transpose_a=True), [(5, 3), (5, 7)], 2 * 3 * 5 * 7),
        (lambda x, y: tf.matmul(x, y, adjoint_b=True), [(2, 3, 5), (2, 7, 5)], 2 * 2 * 3 * 5 * 7),
        (
            lambda x, y: tf.einsum("btnh,bsnh->bnts", x, y),
            [(2, 3, 4, 5), (2, 7, 4, 5)],
            2 * 2 * 3 * 4 * 5 * 7,
        ),
        (lambda x, y: tf.einsum("...d,de->...e", x, y), [(2, 3, 5), (5, 7)], 2 * 2 * 3 * 5 * 7),
        (
            lambda x, y: tf.nn.conv2d(x, y, 2, "SAME"),
            [(2, 8, 8, 3), (3, 3, 3, 6)],
            2 * (3 * 3 * 3) * (2 * 4 * 4 * 6),
        ),
        (
            lambda x, y: tf.nn.depthwise_conv2d(x, y, [1, 1, 1, 1], "SAME"),
            [(2, 8, 8, 3), (3, 3, 3, 2)],
            2 * (3 * 3) * (2 * 8 * 8 * 6),
        ),
    ],
)
def test_products_and_convolutions(
    function: Callable[..., object], shapes: list[tuple[int, ...]], flops: int
) -> None:
    assert sum(product_flops(op) for op in operations(function, *shapes)) == flops


def test_other_operations_cost_by_the_element() -> None:
    assert sum(map(work_of, operations(tf.tanh, (3, 5)))) == 15 * ELEMENT_FLOPS
    row = np.int32(0)
    sums = operations(lambda x: tf.reduce_sum(x, row), (30, 5))
    assert sum(map(work_of, sums)) == 150 * ELEMENT_FLOPS


def test_views_cost_nothing() -> None:
    assert sum(map(work_of, operations(lambda x: tf.reshape(x, [5, 3]), (3, 5)))) == 0


def test_tensors_of_unknown_rank_count_as_elements() -> None:
    def product(x: tf.Tensor) -> tf.Tensor:
        unknown = tf.numpy_function(lambda a: a, [x], tf.float32)
        return tf.einsum("...id,...id->...i", unknown, unknown) + tf.matmul(unknown, unknown)

    found = operations(product, (3, 3))
    assert sum(map(product_flops, found)) == 0
    assert sum(map(work_of, found)) > 0
