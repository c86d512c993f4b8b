"""What an operation of a graph costs: its floating-point operations, and the elements it writes.

TensorFlow's own profiler counts no `Einsum`, of which attention and most projections are made, so
products and convolutions are counted here, from the shapes in the graph. All else is taken to be
bound by memory: it costs by the element that it writes or adds up.
"""

from __future__ import annotations

import math

import tensorflow as tf

# Operations that hand a buffer on, or look at its shape: they compute nothing.
FREE_OPERATIONS = frozenset(
    {
        "Const",
        "ExpandDims",
        "Identity",
        "IdentityN",
        "Placeholder",
        "Rank",
        "ReadVariableOp",
        "Reshape",
        "Shape",
        "ShapeN",
        "Size",
        "Squeeze",
        "StopGradient",
        "VarHandleOp",
    }
)

# Time of an element that is written, in FLOPs of a product. Measured on one core: a product of
# matrices 258 GFLOP/s; 12 elements a nanosecond of a multiplication, 4 of tanh, 2.4 of exp. On a
# GPU the ratio is larger; what matters is that products cost more than what lies between them.
ELEMENT_FLOPS = 50

_PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")


def product_flops(operation: tf.Operation) -> int:
    """Floating-point operations of a product of matrices or a convolution; 0 for all others.

    A multiply-add counts as two. Dimensions that are not known count as one; where not even their
    number is known, nothing is counted.
    """
    if any(tensor.shape.rank is None for tensor in (*operation.inputs, *operation.outputs)):
        return 0
    if operation.type in _PRODUCTS:
        left = _dims(operation.inputs[0])
        attributes = operation.node_def.attr
        is_transposed = attributes["transpose_a"].b or attributes["adj_x"].b
        inner = left[-2] if is_transposed else left[-1]
        return 2 * inner * math.prod(_dims(operation.outputs[0]))
    if operation.type == "Einsum":
        equation = operation.node_def.attr["equation"].s.decode()
        return 2 * _einsum_points(equation, [_dims(tensor) for tensor in operation.inputs])
    if operation.type in ("Conv2D", "Conv3D", "DepthwiseConv2dNative"):
        *window, channels, _ = _dims(operation.inputs[1])
        is_depthwise = operation.type == "DepthwiseConv2dNative"
        per_output = math.prod(window) * (1 if is_depthwise else channels)
        return 2 * per_output * math.prod(_dims(operation.outputs[0]))
    return 0


def work_of(operation: tf.Operation) -> int:
    """Cost of running an operation, in FLOPs: of products, else `ELEMENT_FLOPS` an element.

    An element counts where it is written or, in a sum, read: the larger of inputs and outputs.
    """
    if operation.type in FREE_OPERATIONS:
        return 0
    written = sum(math.prod(_dims(tensor)) for tensor in operation.outputs)
    read = max((math.prod(_dims(tensor)) for tensor in operation.inputs), default=0)
    if flops := product_flops(operation):
        return flops + ELEMENT_FLOPS * written
    return ELEMENT_FLOPS * max(written, read)


def _einsum_points(equation: str, shapes: list[list[int]]) -> int:
    """Number of products that an einsum adds up: one for each value of all of its letters."""
    sizes: dict[str, int] = {}
    rest = 1
    for letters, shape in zip(equation.split("->")[0].split(","), shapes, strict=True):
        before, ellipsis, after = letters.partition("...")
        named = [*zip(before, shape, strict=False)]
        if ellipsis:
            if after:
                named += zip(after, shape[-len(after) :], strict=True)
            broadcast = shape[len(before) : len(shape) - len(after)]
            rest = max(rest, math.prod(broadcast))
        sizes.update({letter: max(size, sizes.get(letter, 1)) for letter, size in named})
    return rest * math.prod(sizes.values())


def _dims(tensor: tf.Tensor) -> list[int]:
    """The dimensions, 1 for each that is not known."""
    if tensor.shape.rank is None:
        return [1]
    return [dim or 1 for dim in tensor.shape.as_list()]
