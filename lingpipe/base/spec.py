"""Shapes and dtypes as plain data, so that costs and plans need no TensorFlow.

A `Spec` describes one tensor; a layer's inputs and outputs are any nested structure (dict, list,
tuple) of them. The planner passes specs through `Params.cost` the way the executor passes tensors
through the layers.

Letters used for dimensions everywhere in the house: B batch (examples), T target time, S source
time, D model, F feed-forward, N heads, H head, V vocabulary, M micro-batches, K stages.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}

# Any nesting of dicts, lists and tuples with `Spec` leaves.
Specs = Any


@dataclasses.dataclass(frozen=True)
class Spec:
    """Shape and dtype of one tensor, every dimension known.

    Attributes:
      shape: dimensions, outermost first; `()` is a scalar.
      dtype: a TensorFlow dtype by name, such as "float32" or "int32".
    """

    shape: tuple[int, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in _BYTES:
            raise ValueError(f"dtype ({self.dtype!r}) must be one of {', '.join(sorted(_BYTES))}.")

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.elements * _BYTES[self.dtype]

    def replace_last(self, dim: int) -> Spec:
        """The same tensor with its last dimension changed to `dim`."""
        return Spec((*self.shape[:-1], dim), self.dtype)


def flatten_specs(specs: Specs) -> Iterator[Spec]:
    """Yields the `Spec` leaves of a nested structure; dicts in the order of their sorted keys.

    None stands for "no input" (the first cell of a list) and yields nothing.

    Raises:
      TypeError: a leaf is not a `Spec`.
    """
    if specs is None:
        return
    if isinstance(specs, Spec):
        yield specs
    elif isinstance(specs, dict):
        for key in sorted(specs):
            yield from flatten_specs(specs[key])
    elif isinstance(specs, (list, tuple)):
        for item in specs:
            yield from flatten_specs(item)
    else:
        raise TypeError(f"A spec structure holds {type(specs).__name__}; its leaves must be Spec.")


def with_floats_as(specs: Specs, dtype: str) -> Specs:
    """The structure with `dtype` in the place of float32; integers, booleans and None stay.

    Raises:
      TypeError: a leaf is not a `Spec`.
    """
    if isinstance(specs, dict):
        return {key: with_floats_as(item, dtype) for key, item in specs.items()}
    if isinstance(specs, (list, tuple)):
        return type(specs)(with_floats_as(item, dtype) for item in specs)
    leaves = list(flatten_specs(specs))
    return Spec(leaves[0].shape, dtype) if leaves and leaves[0].dtype == "float32" else specs


def specs_bytes(specs: Specs) -> int:
    """Total size in bytes of a nested structure of specs."""
    return sum(spec.bytes for spec in flatten_specs(specs))
