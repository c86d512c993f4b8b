"""The cost of a computation that declares none, read off its graph.

Our own layers work their cost out from their params. A function or a layer from elsewhere is traced
once with placeholders of the shapes it would get, which runs nothing, and the floating-point
operations of its graph are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lingpipe.base.cost import Cost
from lingpipe.base.spec import Spec, Specs
from lingpipe.pipeline.errors import CellError
from lingpipe.pipeline.graph_work import FREE_OPERATIONS, product_flops

_ASSIGNMENTS = ("Assign", "ResourceScatter", "ResourceStridedSliceAssign")


def traced_cost(function: Callable[..., Any], *arguments: Specs) -> Cost:
    """The cost of `function(*arguments)`.

    Args:
      function: takes and returns nested structures of tensors, in graph mode.
      arguments: nested structures of `Spec`; None stands for no input.

    Returns:
      flops: those of products of matrices and of convolutions, and one for each number that another
        operation writes.
      activation_bytes: bytes of every floating tensor in the graph, an upper bound of what the
        backward pass needs.

    Raises:
      CellError: the computation assigns variables: what a cell computes must not depend on how
        often it was computed before, since micro-batches and recomputations would change it.
      ValueError: the shape of an output depends on values, so that it is not known beforehand.
      whatever tracing `function` raises.
    """
    traced = tf.function(function, autograph=False).get_concrete_function(
        *(_tensor_specs(argument) for argument in arguments)
    )
    _refuse_assignments(traced.graph)
    return Cost(
        flops=sum(_flops(operation) for operation in traced.graph.get_operations()),
        outputs=tf.nest.map_structure(_spec, traced.structured_outputs),
        activation_bytes=sum(
            tensor.dtype.size * tensor.shape.num_elements()
            for operation in traced.graph.get_operations()
            for tensor in operation.outputs
            if tensor.dtype.is_floating and tensor.shape.is_fully_defined()
        ),
    )


def _tensor_specs(specs: Specs) -> Any:
    return tf.nest.map_structure(
        lambda spec: None if spec is None else tf.TensorSpec(spec.shape, spec.dtype), specs
    )


def _spec(tensor: tf.Tensor | tf.TensorSpec) -> Spec:
    if not tensor.shape.is_fully_defined():
        raise ValueError(
            f"An output has the shape {tensor.shape}: it depends on values, so neither its cost "
            "nor what it sends to the next stage can be known beforehand. Give it a fixed shape."
        )
    return Spec(tuple(tensor.shape.as_list()), tensor.dtype.name)


def _refuse_assignments(graph: tf.Graph) -> None:
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    found = sorted({node.op for node in nodes if node.op.startswith(_ASSIGNMENTS)})
    if found:
        raise CellError(
            f"The cell changes variables when it is called ({', '.join(found)}). A pipeline calls "
            "it once a micro-batch, and again to recompute: let it return what is to be kept."
        )


def _flops(operation: tf.Operation) -> int:
    """Floating-point operations: of a product, else one for each floating number written."""
    if operation.type in FREE_OPERATIONS:
        return 0
    written = sum(
        tensor.shape.num_elements() or 0 for tensor in operation.outputs if tensor.dtype.is_floating
    )
    return product_flops(operation) or written
