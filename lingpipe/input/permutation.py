"""Shuffling without a list: where index i of n goes, computed from the index alone.

A shuffled list of 10^8 lines costs a gigabyte; a permutation that is computed costs nothing, and
position 10^9 of a run is as near as position 10. The indices 0..n-1 are written as (left, right)
on a grid just large enough, and each round adds to one half a hash of the other, modulo its size.
A round can be undone by subtracting, so the whole is one-to-one on the grid: a generalised Feistel
network (Black and Rogaway, 2002). The few cells beyond n are walked on from until the walk is back
below n. The hash is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
"""

import hashlib

import numpy as np
import numpy.typing as npt

UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]

_ROUNDS = 6
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, SplitMix64's increment.


def hash_words(words: UInt64s) -> UInt64s:
    """A well-mixed uint64 for each uint64, one-to-one."""
    words = words + np.uint64(_GOLDEN)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def key(*parts: int | str) -> int:
    """One 64-bit key from what it is for, such as (seed, "batches", window); no two share one."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def shuffled(size: int, key: int) -> Int64s:
    """The numbers 0..size-1 in a pseudo-random order, int64 [size]: a list, where one is needed."""
    words = hash_words(np.arange(size, dtype=np.uint64) ^ np.uint64(key))
    return np.argsort(words, kind="stable")


def permute(indices: Int64s, sizes: Int64s | int, keys: UInt64s | int) -> Int64s:
    """Where each index goes in a pseudo-random permutation of its own range.

    Args:
        indices: int64 [n], each in [0, size).
        sizes: how many indices the range of each has; one for all, or int64 [n].
        keys: selects the permutation; one for all, or uint64 [n].

    Returns:
        int64 [n], each in [0, size). For one size and key, distinct indices go to distinct places.
    """
    places = np.asarray(indices, np.int64).astype(np.uint64)
    sizes = np.broadcast_to(np.asarray(sizes, np.int64), places.shape).astype(np.uint64)
    keys = np.broadcast_to(np.asarray(keys, np.uint64), places.shape)
    width = np.ceil(np.sqrt(sizes.astype(np.float64))).astype(np.uint64)
    height = ((sizes + width - np.uint64(1)) // np.maximum(width, np.uint64(1))).astype(np.uint64)
    places = _shuffle_grid(places, width, height, keys)
    outside = np.flatnonzero(places >= sizes)
    while outside.size:
        places[outside] = _shuffle_grid(
            places[outside], width[outside], height[outside], keys[outside]
        )
        outside = outside[places[outside] >= sizes[outside]]
    return places.astype(np.int64)


def _shuffle_grid(places: UInt64s, width: UInt64s, height: UInt64s, keys: UInt64s) -> UInt64s:
    """One pass over the whole grid of width x height cells, one-to-one."""
    left, right = places // width, places % width
    for number in range(_ROUNDS):
        round_keys = keys + np.uint64(number * _GOLDEN % 2**64)
        if number % 2 == 0:
            right = (right + hash_words(left ^ round_keys) % width) % width
        else:
            left = (left + hash_words(right ^ round_keys) % height) % height
    return left * width + right
