"""How often each pair is seen, and which example stands where in the endless training stream.

A pair with D of all lines is drawn with probability p ~ D^(1/T): at temperature 1 as often as it
has text, at a high one all pairs alike (Arivazhagan et al. 2019, "Massively Multilingual NMT in
the Wild", use 5).

The stream repeats a *cycle* of 2^20 draws in which every pair has its share, in shuffled order:

    position in cycle    0   1   2   3   4   5 ...
    pair                 de  fr  de  sw  de  fr       (the same in every cycle)
    how many of it        0   0   1   0   2   1       (go on counting in the next cycle)

So the pair at a position and the number of its draws before are two look-ups. Draw n of a pair with
D lines belongs to its epoch n // D, and the epoch's permutation (permutation.py) says which line it
is: each line once an epoch, in another order each time. Memory is 8 MB, whatever the corpus;
nothing depends on what was read before.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lingpipe.input.permutation import Int64s, hash_words, key, permute, shuffled

CYCLE = 2**20
Float64s = npt.NDArray[np.float64]


def probabilities(counts: Sequence[int], temperature: float) -> Float64s:
    """The probability of each pair, p ~ D^(1/T).

    Args:
        counts: lines of each pair, each at least 1.
        temperature: T, greater than 0; infinity draws all pairs alike.

    Returns:
        float64 [pairs], sums to 1.

    Raises:
        ValueError: a count is below 1 or the temperature is not positive.
    """
    if not counts or min(counts) < 1:
        raise ValueError(f"Every pair must have at least 1 line; got {list(counts)}.")
    if not temperature > 0:
        raise ValueError(f"temperature ({temperature}) must be greater than 0.")
    # In logarithms, or D^(1/T) overflows at a small T.
    logs = np.log(np.asarray(counts, np.float64)) / temperature
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def expected_epochs(counts: Sequence[int], pair_probabilities: Float64s, draws: float) -> Float64s:
    """How many times each line of a pair is seen in so many draws, float64 [pairs]."""
    return draws * pair_probabilities / np.asarray(counts, np.float64)


@dataclasses.dataclass(frozen=True)
class Draws:
    """What stands at some positions of the stream.

    Attributes:
        pairs: int64 [n], which pair.
        lines: int64 [n], which line of it, from 0.
        epochs: int64 [n], how often that line was drawn before.
    """

    pairs: Int64s
    lines: Int64s
    epochs: Int64s


class MixedOrder:
    """The endless stream: position -> pair and line, a pure function of the seed."""

    def __init__(self, counts: Sequence[int], temperature: float, seed: int) -> None:
        """Lays out one cycle.

        Args:
            counts: lines of each pair.
            temperature: as in `probabilities`.
            seed: selects the order.

        Raises:
            ValueError: as `probabilities`, or there are more pairs than a cycle has draws.
        """
        self.probabilities = probabilities(counts, temperature)
        self._counts = np.asarray(counts, np.int64)
        self._quotas = _quotas(self.probabilities)
        self._pair_keys = hash_words(
            np.arange(len(counts), dtype=np.uint64) ^ np.uint64(key(seed, "lines"))
        )
        kind = np.uint16 if len(counts) <= 2**16 else np.uint32
        by_pair = np.repeat(np.arange(len(counts), dtype=kind), self._quotas)
        self._pairs = by_pair[shuffled(CYCLE, key(seed, "pairs"))]
        # Stable: of one pair, the draw that stands earlier is counted earlier. NumPy sorts 16-bit
        # numbers by radix, ten times faster.
        positions = np.argsort(self._pairs, kind="stable")
        first = np.cumsum(self._quotas) - self._quotas
        self._ranks = np.empty(CYCLE, np.int32)
        self._ranks[positions] = np.arange(CYCLE) - first[by_pair]

    def draws(self, positions: Int64s) -> Draws:
        """What stands at each of `positions`, int64 [n], each at least 0."""
        cycles, places = np.divmod(np.asarray(positions, np.int64), CYCLE)
        pairs = self._pairs[places].astype(np.int64)
        numbers = cycles * self._quotas[pairs] + self._ranks[places]
        epochs, numbers = np.divmod(numbers, self._counts[pairs])
        keys = hash_words(self._pair_keys[pairs] + epochs.astype(np.uint64))
        return Draws(pairs, permute(numbers, self._counts[pairs], keys), epochs)


def _quotas(pair_probabilities: Float64s) -> Int64s:
    """How many draws of a cycle each pair gets: at least 1, in all CYCLE, int64 [pairs]."""
    spare = CYCLE - len(pair_probabilities)
    if spare < 0:
        raise ValueError(f"{len(pair_probabilities)} pairs are too many; at most {CYCLE} can mix.")
    # One for each pair, and the rest by largest remainder of what the share still lacks.
    wanted = np.maximum(pair_probabilities * CYCLE - 1, 0)
    wanted *= spare / max(wanted.sum(), 1.0)
    quotas = np.floor(wanted).astype(np.int64)
    by_remainder = np.argsort(quotas - wanted, kind="stable")
    quotas[by_remainder[: spare - quotas.sum()]] += 1
    return quotas + 1
