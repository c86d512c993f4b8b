"""The contract between a search and a model, and the few operations on a model's state.

A search knows a model as one function, called once per target position:

    logits, state = step(ids, time, state)

    ids     int32 [rows], the newest token of each row (begin of sentence at time 0)
    time    int32 scalar, how many tokens the state has seen before this one
    state   any nested structure of tensors whose first dimension is rows
    logits  floats [rows, V], for the token that follows

Rows are sentences in a greedy search (B) and sentences x beams in a beam search (B*K, the beams
of a sentence beside each other). The attention caches of a state may grow along any other axis
from call to call; that is why a search hides the static sizes of the state's tensors (their rank
and dtype stay known): a step takes fixed sizes such as the number of heads from its params.

Beams change places as the search goes on, and a state has to follow them. What is the same for
all beams of a sentence (the encoder's output, keys and values of cross-attention, source masks)
need not: a state that is a dictionary of exactly 'fixed' and 'cache' has only its 'cache'
reordered and carried through the loop. Any other state is reordered whole.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import tensorflow as tf

from lingpipe.decode.errors import DecodeError

# Any nested structure of tensors [rows, ...]; what it holds is the model's affair.
State: TypeAlias = Any


class Step(Protocol):
    """One step of a model; the module's first paragraph has shapes and dtypes."""

    def __call__(self, ids: tf.Tensor, time: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        """Returns (logits, state after these ids)."""


def tile_beams(state: State, beam_size: int) -> State:
    """Repeats each row `beam_size` times, as a beam search wants its initial state.

    Args:
      state: State nested structure of tensors [B, ...].
      beam_size: K, number of beams.

    Returns:
      The same structure of tensors [B*K, ...]; the copies of a row are beside each other.
    """
    return tf.nest.map_structure(lambda leaf: tf.repeat(leaf, beam_size, axis=0), state)


def cache_of(state: State) -> State:
    """Returns the part of a state that belongs to a hypothesis and not to its sentence."""
    return state["cache"] if _has_fixed_part(state) else state


def with_cache(state: State, cache: State) -> State:
    """Returns `state` with its changing part replaced by `cache`."""
    return {"fixed": state["fixed"], "cache": cache} if _has_fixed_part(state) else cache


def open_shapes(cache: State) -> State:
    """Returns the shapes of a cache with every size unknown, as invariants of a loop."""
    return tf.nest.map_structure(lambda leaf: tf.TensorShape([None] * leaf.shape.rank), cache)


def state_tensors(state: State, rows: tf.Tensor) -> State:
    """Returns the state as tensors, having checked that each has `rows` rows.

    Args:
      state: Nested structure of tensors or arrays [rows, ...].
      rows: int32 scalar.

    Raises:
      DecodeError: When a part of the state is a scalar.
      tf.errors.InvalidArgumentError: In the running graph, when a part has other rows, most often
        since `tile_beams` was forgotten. Unchecked, rows would be taken from other sentences.
    """

    def checked(leaf: tf.Tensor) -> tf.Tensor:
        tensor = tf.convert_to_tensor(leaf)
        if tensor.shape.rank in (None, 0):
            raise DecodeError(
                f"A part of the decoding state has shape {tensor.shape}; every part needs a first "
                "dimension of rows. Repeat what is one value for all into one value a row."
            )
        message = (
            "A part of the decoding state has another number of rows than sentences x beams; "
            "repeat the initial state with tile_beams(state, beam_size)."
        )
        check = tf.debugging.assert_equal(tf.shape(tensor)[0], rows, message=message)
        with tf.control_dependencies([] if check is None else [check]):
            return tf.identity(tensor)

    return tf.nest.map_structure(checked, state)


def check_forbidden_ids(forbidden_ids: Sequence[int], end_id: int) -> None:
    """Raises DecodeError when ids are negative or the end of sentence is among them."""
    if end_id in forbidden_ids:
        raise DecodeError(
            f"forbidden_ids ({sorted(forbidden_ids)}) holds end_id ({end_id}); without it no "
            "sentence could end. Take it out."
        )
    if any(token < 0 for token in forbidden_ids):
        raise DecodeError(
            f"forbidden_ids ({sorted(forbidden_ids)}) must be ids of the vocabulary, 0 or greater."
        )


def next_log_probabilities(
    logits: tf.Tensor, forbidden_ids: Sequence[int], forced_ids: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns the log-probability of each next token, -inf where it may not be chosen.

    The softmax runs over the whole vocabulary, forbidden tokens included: forbidding or forcing
    changes which tokens are chosen, not their probability.

    Args:
      logits: Floats [rows, V].
      forbidden_ids: Ids never chosen, unless forced.
      forced_ids: int32 [rows], the only token that may follow; 0 leaves the choice free.

    Returns:
      float32 [rows, V].
    """
    chances = tf.nn.log_softmax(tf.cast(logits, tf.float32))  # [rows, V]
    vocabulary_size = tf.shape(chances)[-1]
    allowed = chances
    if forbidden_ids:
        forbidden = tf.constant(list(forbidden_ids), tf.int32)[:, None]
        hits = tf.scatter_nd(forbidden, tf.ones_like(forbidden[:, 0]), [vocabulary_size])  # [V]
        allowed = tf.where(hits[None, :] > 0, -float("inf"), chances)
    if forced_ids is None:
        return allowed
    is_forced = tf.range(vocabulary_size)[None, :] == forced_ids[:, None]  # [rows, V]
    return tf.where(forced_ids[:, None] > 0, tf.where(is_forced, chances, -float("inf")), allowed)


def prefix_ids_at(prefix_ids: tf.Tensor, time: tf.Tensor) -> tf.Tensor:
    """Returns column `time` of int32 [B, P], or zeros [B] beyond its end."""
    padded = tf.pad(tf.cast(prefix_ids, tf.int32), [[0, 0], [0, 1]])  # [B, P+1]
    return padded[:, tf.minimum(time, tf.shape(padded)[1] - 1)]


def _has_fixed_part(state: State) -> bool:
    return isinstance(state, dict) and set(state) == {"fixed", "cache"}
