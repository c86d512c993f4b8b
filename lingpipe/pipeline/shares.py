"""What each replica gets: a share of every mini-batch, and of the weights that it updates.

Both are shared out as evenly as can be, by rules that depend on nothing but what is shared out, so
that every run, and every process of a run, shares out alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def share_out(items: Sequence[Item], num_replicas: int) -> list[Sequence[Item]]:
    """Runs of `items`, one for each replica, whose lengths differ by one at most.

    Longer ones come first; with fewer items than replicas the last replicas get none.
    """
    size, longer = divmod(len(items), num_replicas)
    ends = [size * r + min(r, longer) for r in range(num_replicas + 1)]
    return [items[start:end] for start, end in itertools.pairwise(ends)]


def share_weights(sizes: Mapping[str, int], num_replicas: int) -> dict[str, int]:
    """For each weight the replica that updates it, so that each updates about as many numbers.

    From the largest to the smallest, each goes to the replica that has least so far. No replica
    then has more than 4/3 of what the best sharing gives the fullest one (Graham 1969).

    Args:
      sizes: path -> number of elements.
      num_replicas: number of replicas.
    """
    held = [0] * num_replicas
    shares: dict[str, int] = {}
    for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
        replica = held.index(min(held))
        held[replica] += sizes[path]
        shares[path] = replica
    return shares
