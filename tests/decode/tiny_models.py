"""Random models small enough to list every sentence they could say, and plain searches over them.

A table model's logits depend on the sentence, the time and the previous id; a history model's on
all earlier ids, which it keeps in a growing cache. Both exist twice: as a step function in
TensorFlow and as a function from a beginning to log-probabilities in NumPy.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from lingpipe.decode.step import State

BEGIN, END = 2, 3

# From the ids so far to the log-probability of each next one, float64 [V].
Chances = Callable[[tuple[int, ...]], np.ndarray]


class Hypothesis(NamedTuple):
    """One sentence of a plain search."""

    ids: tuple[int, ...]
    log_probability: float
    score: float


def random_tables(
    seed: int, sentences: int, length: int, vocabulary: int, scale: float = 2.0
) -> np.ndarray:
    """Returns logits, float32 [sentences, length, previous id, V]."""
    tables = np.random.default_rng(seed).normal(size=(sentences, length, vocabulary, vocabulary))
    return (scale * tables).astype(np.float32)


def table_step(ids: tf.Tensor, time: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
    """The step function of a table model; the tables are the fixed part of its state."""
    return tf.gather(state["fixed"][:, time], ids, batch_dims=1), state


def table_state(tables: np.ndarray | tf.Tensor) -> State:
    """Returns the state before the first step; `tables` are [B, length, previous id, V]."""
    return {"fixed": tf.convert_to_tensor(tables), "cache": {}}


def table_chances(table: np.ndarray) -> Chances:
    """The same model for one sentence, [length, previous id, V]."""
    return lambda ids: log_softmax(table[len(ids), ids[-1] if ids else BEGIN])


class HistoryModel:
    """Logits are a random function of every earlier id and its position."""

    def __init__(self, seed: int, length: int, vocabulary: int) -> None:
        """Draws the weights from `seed`."""
        size = (length, length, vocabulary, vocabulary)
        self._weights = np.random.default_rng(seed).normal(size=size).astype(np.float32)

    def initial_state(self, biases: np.ndarray) -> State:
        """`biases` float32 [B, V] makes the sentences different."""
        history = tf.zeros([len(biases), 0], tf.int32)
        return {"fixed": {"bias": tf.constant(biases)}, "cache": {"history": history}}

    def step(self, ids: tf.Tensor, time: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        """Adds one id to the history, which is all that the cache holds."""
        history = tf.concat([state["cache"]["history"], ids[:, None]], axis=1)  # [rows, time+1]
        weights = tf.constant(self._weights)[time, : time + 1]  # [time+1, V, V]
        seen = tf.one_hot(history, weights.shape[-1])  # [rows, time+1, V]
        summed = tf.einsum("rtv,tvw->rw", seen, weights)  # [rows, V]
        logits = 3.0 * tf.sin(summed) + state["fixed"]["bias"]
        return logits, {"fixed": state["fixed"], "cache": {"history": history}}

    def chances(self, bias: np.ndarray) -> Chances:
        """The same model for the sentence with this bias, [V]."""

        def next_chances(ids: tuple[int, ...]) -> np.ndarray:
            history = (BEGIN, *ids)
            time = len(ids)
            total = sum(self._weights[time, place, token] for place, token in enumerate(history))
            return log_softmax(3.0 * np.sin(total) + bias)

        return next_chances


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the log-probabilities in float64."""
    logits = logits.astype(np.float64)
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


def teacher_forcing(chances: Chances, ids: Sequence[int]) -> float:
    """Returns the log-probability of a sentence, token by token."""
    return float(sum(chances(tuple(ids[:place]))[token] for place, token in enumerate(ids)))


def score_of(log_probability: float, length: int, alpha: float) -> float:
    """Returns the log-probability over the length penalty of GNMT."""
    return log_probability / ((5 + length) / 6) ** alpha


def all_sentences(
    chances: Chances, max_length: int, alpha: float, allowed: Sequence[int]
) -> list[Hypothesis]:
    """Lists every sentence that ends, or is cut at `max_length`, best score first."""
    found = []

    def extend(ids: tuple[int, ...], log_probability: float) -> None:
        if len(ids) == max_length or (ids and ids[-1] == END):
            score = score_of(log_probability, len(ids), alpha)
            found.append(Hypothesis(ids, log_probability, score))
            return
        following = chances(ids)
        for token in allowed:
            extend((*ids, token), log_probability + following[token])

    extend((), 0.0)
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


def plain_beam_search(
    chances: Chances, max_length: int, alpha: float, beam_size: int, allowed: Sequence[int]
) -> list[Hypothesis]:
    """Beam search that never stops before `max_length`, best score first."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[Hypothesis] = []
    for _ in range(max_length):
        extended = [
            ((*ids, token), log_probability + chances(ids)[token])
            for ids, log_probability in live
            for token in allowed
        ]
        extended.sort(key=lambda pair: -pair[1])
        live = []
        for ids, log_probability in extended[: beam_size - len(finished)]:
            if ids[-1] == END or len(ids) == max_length:
                score = score_of(log_probability, len(ids), alpha)
                finished.append(Hypothesis(ids, log_probability, score))
            else:
                live.append((ids, log_probability))
    return sorted(finished, key=lambda hypothesis: -hypothesis.score)
