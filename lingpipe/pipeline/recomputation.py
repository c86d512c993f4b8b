"""Which values to keep from a forward to its backward pass, and which to compute again.

A backward pass reads values that the forward pass made. Each can be kept, which takes memory until
then, or computed again from others, which takes time. At a price for a kept byte, in the unit of
work, the cheapest choice is a minimum cut (as in Chen et al. 2016 each choice splits a graph; the
formulation is that of Zheng et al., "Efficient rematerialization ...", and of PyTorch's min-cut
partitioner), so it is found exactly:

    side "source" of a value       it is there when the backward pass needs it
    side "source" of an operation  it runs again
    source -> value      never cut: values that the backward pass reads
    value -> its maker   price x bytes: the value is there though its maker does not run again: kept
    maker -> its inputs  never cut: to run again it needs what it reads
    maker -> sink        its work

The higher the price, the less is kept. `keep_within` looks for the lowest price at which what is
kept fits a limit: of all choices that keep no more bytes than that one, it works least again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

# Prices are searched by bisection on their logarithm: 60 halvings leave no gap worth having.
_HALVINGS = 60
# The flow is computed in 32-bit integers: finite capacities add up to less than this, and what must
# never be cut has more.
_WHOLE = 2**30
_NEVER = 2**31 - 1
# Equal layers would all flip at one price, so that half of them could never be kept: a byte of the
# last value costs this much more than one of the first.
_TILT = 1e-3


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of the forward pass.

    Attributes:
      maker: number of the operation that makes it; None for an input, which can only be kept.
      size: bytes; infinite for one that may not be kept.
    """

    maker: int | None
    size: float


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation of the forward pass.

    Attributes:
      reads: numbers of the values that it reads.
      work: cost of running it again, in any unit; infinite for one that must not run again.
    """

    reads: tuple[int, ...]
    work: float


@dataclasses.dataclass(frozen=True)
class ForwardPass:
    """What there is to choose from.

    Attributes:
      values: the tensors.
      operations: the operations, each after those whose values it reads.
      needed: numbers of the values that the backward pass reads.
    """

    values: tuple[Value, ...]
    operations: tuple[Operation, ...]
    needed: frozenset[int]


@dataclasses.dataclass(frozen=True)
class Choice:
    """What is kept and what is computed again.

    Attributes:
      kept: numbers of the values kept.
      rerun: numbers of the operations that run again.
      kept_bytes: bytes of the kept values.
      work: work of the operations that run again.
    """

    kept: frozenset[int]
    rerun: frozenset[int]
    kept_bytes: int
    work: float


def keep_within(forward: ForwardPass, limit: float) -> Choice:
    """The choice with the least work among those on the curve of minimum cuts that fit `limit`.

    Args:
      forward: values and operations.
      limit: bytes that may be kept.

    Returns:
      the choice; the one that keeps least where none fits: compare `kept_bytes`.
    """
    works = [op.work for op in forward.operations if 0 < op.work < math.inf]
    sizes = [value.size for value in forward.values if 0 < value.size < math.inf]
    if not works or not sizes:
        return cheapest(forward, 1.0)
    # At the low end no byte is worth any work, at the high end every byte is worth all of it.
    low, high = min(works) / sum(sizes) / 2, 2 * sum(works) / min(sizes)
    best = cheapest(forward, low)
    if best.kept_bytes <= limit:
        return best
    best = cheapest(forward, high)
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if not low < middle < high or high / low < 1 + _TILT / 10 / len(forward.values):
            break
        choice = cheapest(forward, middle)
        if choice.kept_bytes <= limit:
            high = middle
            if (choice.work, choice.kept_bytes) < (best.work, best.kept_bytes):
                best = choice
        else:
            low = middle
    return best


def cheapest(forward: ForwardPass, price: float) -> Choice:
    """The choice that makes `price` x kept bytes + work smallest; `price` is greater than 0."""
    source_side = _source_side(*_edges(forward, price))
    first_operation = 2 + len(forward.values)
    rerun = frozenset(
        number
        for number in range(len(forward.operations))
        if first_operation + number in source_side
    )
    kept = frozenset(
        number
        for number, value in enumerate(forward.values)
        if 2 + number in source_side and value.maker not in rerun
    )
    return Choice(
        kept,
        rerun,
        sum(int(forward.values[number].size) for number in kept),
        sum(forward.operations[number].work for number in rerun),
    )


def _edges(forward: ForwardPass, price: float) -> tuple[list[int], list[int], list[float], int]:
    """The network: tails, heads and capacities, and the number of its nodes.

    Node 0 is the source, 1 the sink; values follow, then operations.
    """
    first_operation = 2 + len(forward.values)
    edges: list[tuple[int, int, float]] = [(0, 2 + number, math.inf) for number in forward.needed]
    step = _TILT / max(1, len(forward.values))
    for number, value in enumerate(forward.values):
        head = 1 if value.maker is None else first_operation + value.maker
        edges.append((2 + number, head, value.size * price * (1 + step * number)))
    for number, operation in enumerate(forward.operations):
        node = first_operation + number
        edges += [(node, 2 + read, math.inf) for read in set(operation.reads)]
        edges.append((node, 1, operation.work))
    tails, heads, capacities = (list(column) for column in zip(*edges, strict=True))
    return tails, heads, capacities, first_operation + len(forward.operations)


def _source_side(
    tails: Sequence[int], heads: Sequence[int], capacities: Sequence[float], count: int
) -> set[int]:
    """The nodes on the source's side of a minimum cut: those that the leftover flow reaches."""
    exact = np.asarray(capacities)
    finite = np.isfinite(exact)
    scale = (_WHOLE - len(exact)) / max(exact[finite].sum(), np.finfo(float).tiny)
    whole = np.full(len(exact), _NEVER, np.int64)
    whole[finite] = np.ceil(exact[finite] * scale)
    network = csr_array(
        (np.minimum(whole, _NEVER).astype(np.int32), (tails, heads)), shape=(count, count)
    )
    network.sum_duplicates()
    left = network - maximum_flow(network, 0, 1).flow
    left.data = np.maximum(left.data, 0)
    left.eliminate_zeros()
    reached = breadth_first_order(left, 0, return_predecessors=False)
    return set(reached.tolist())
