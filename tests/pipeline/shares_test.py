"""Shares are even, whole, and the same every time."""

from __future__ import annotations

import itertools
import random

import pytest

from lingpipe.pipeline.shares import share_out, share_weights


@pytest.mark.parametrize(("count", "num_replicas"), itertools.product(range(9), range(1, 5)))
def test_items_are_shared_out_in_order_and_evenly(count: int, num_replicas: int) -> None:
    shares = share_out(list(range(count)), num_replicas)
    assert [item for share in shares for item in share] == list(range(count))
    lengths = [len(share) for share in shares]
    assert len(lengths) == num_replicas
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) - min(lengths) <= 1


def test_weights_are_shared_out_by_size() -> None:
    sizes = {"table": 100, "kernel_0": 40, "kernel_1": 40, "bias_1": 5, "bias_0": 5}
    assert share_weights(sizes, 2) == {
        "table": 0,
        "kernel_0": 1,
        "kernel_1": 1,
        "bias_0": 1,
        "bias_1": 1,
    }
    assert set(share_weights(sizes, 1).values()) == {0}
    assert share_weights({}, 3) == {}


@pytest.mark.parametrize("number", range(30))
def test_no_replica_has_much_more_than_the_best_sharing_gives(number: int) -> None:
    """The best, by trying all, and the bound that Graham proved for this rule."""
    chance = random.Random(number)
    num_replicas = chance.randint(2, 3)
    sizes = {f"w{i}": chance.randint(1, 50) for i in range(chance.randint(1, 7))}
    shares = share_weights(sizes, num_replicas)
    assert shares.keys() == sizes.keys()
    assert share_weights(dict(reversed(sizes.items())), num_replicas) == shares

    def fullest(replicas: list[int]) -> int:
        held = [0] * num_replicas
        for replica, size in zip(replicas, sizes.values(), strict=True):
            held[replica] += size
        return max(held)

    every = itertools.product(range(num_replicas), repeat=len(sizes))
    best = min(fullest(list(replicas)) for replicas in every)
    assert fullest([shares[path] for path in sizes]) <= (4 / 3 - 1 / (3 * num_replicas)) * best
