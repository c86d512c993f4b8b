"""A traced cost is that of the formula, and says what comes out."""

import pytest
import tensorflow as tf

from lingpipe.base.spec import Spec
from lingpipe.pipeline.traced_cost import traced_cost


def test_operations_are_those_of_the_formula() -> None:
    kernel = tf.ones([5, 7])
    product = traced_cost(lambda x: x @ kernel, Spec((3, 5)))
    assert (product.flops, product.outputs) == (2 * 3 * 5 * 7, Spec((3, 7)))
    filters = tf.ones([3, 3, 2, 4])
    images = Spec((2, 8, 8, 2))
    convolution = traced_cost(lambda x: tf.nn.conv2d(x, filters, 1, "SAME"), images)
    assert convolution.flops == 2 * (3 * 3 * 2) * (2 * 8 * 8 * 4)


def test_structures_and_dtypes_go_through() -> None:
    def function(inputs: dict[str, tf.Tensor], batch: dict[str, tf.Tensor]) -> object:
        return {"sum": inputs["x"] + 1.0, "ids": (batch["ids"], batch["ids"] > 0)}

    cost = traced_cost(function, {"x": Spec((2, 3), "bfloat16")}, {"ids": Spec((2,), "int32")})
    ids = (Spec((2,), "int32"), Spec((2,), "bool"))
    assert cost.outputs == {"sum": Spec((2, 3), "bfloat16"), "ids": ids}


def test_no_input_is_none() -> None:
    assert traced_cost(lambda inputs: tf.zeros([2]), None).outputs == Spec((2,))


def test_a_shape_that_depends_on_values_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(None,\): it depends on values"):
        traced_cost(lambda x: tf.boolean_mask(x, x > 0), Spec((4,)))
