"""Greedy search: the most probable next token, again and again, until the sentence ends."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from lingpipe.decode.length_penalty import normalised_score
from lingpipe.decode.output import BeamOutput
from lingpipe.decode.step import (
    State,
    Step,
    cache_of,
    check_forbidden_ids,
    next_log_probabilities,
    open_shapes,
    prefix_ids_at,
    state_tensors,
    with_cache,
)

_NOTHING = -float("inf")  # Log-probability where no token may follow.


class _Sentences(NamedTuple):
    """The one hypothesis of each sentence."""

    ids: tf.Tensor  # int32 [B, T]
    last_ids: tf.Tensor  # int32 [B]: what the step function reads next.
    lengths: tf.Tensor  # int32 [B]
    log_probabilities: tf.Tensor  # float32 [B]
    lives: tf.Tensor  # bool [B]


def greedy_search(
    step: Step,
    initial_state: State,
    *,
    batch_size: int | tf.Tensor,
    begin_id: int,
    end_id: int,
    max_lengths: tf.Tensor,
    length_penalty_alpha: float = 0.0,
    forbidden_ids: Sequence[int] = (),
    prefix_ids: tf.Tensor | None = None,
) -> BeamOutput:
    """Returns one hypothesis a sentence (N = 1), that of a beam search of one beam, for less work.

    Args:
      step: The model, see `lingpipe.decode.step`; it is given rows B.
      initial_state: Nested structure of tensors [B, ...]; may be empty.
      batch_size: B, a number or an int32 scalar.
      begin_id: Id that the first step reads.
      end_id: Id that ends a sentence.
      max_lengths: int32 [B], each sentence's own greatest length, the end of sentence and a
        prefix counted; a sentence that reaches it is cut there.
      length_penalty_alpha: Changes the score that is returned, not the choice of tokens.
      forbidden_ids: Ids never chosen; of the others, ties go to the lower id.
      prefix_ids: int32 [B, P], ids that each sentence begins with, then zeros.

    Raises:
      DecodeError: When forbidden_ids cannot be honoured.
    """
    check_forbidden_ids(forbidden_ids, end_id)
    max_lengths = tf.cast(max_lengths, tf.int32)
    steps = tf.maximum(tf.reduce_max(max_lengths), 0)
    state = state_tensors(initial_state, tf.cast(batch_size, tf.int32))
    forbidden_ids = tuple(forbidden_ids)

    def advance(
        time: tf.Tensor, sentences: _Sentences, cache: State
    ) -> tuple[tf.Tensor, _Sentences, State]:
        logits, new_state = step(sentences.last_ids, time, with_cache(state, cache))
        forced = None if prefix_ids is None else prefix_ids_at(prefix_ids, time)
        chances = next_log_probabilities(logits, forbidden_ids, forced)  # [B, V]
        best, choice = tf.math.top_k(chances, k=1)  # [B, 1]; the lower id where two are equal.
        sentences = _extend(sentences, choice[:, 0], best[:, 0], time)
        lives = sentences.lives & (sentences.last_ids != end_id) & (time + 1 < max_lengths)
        return time + 1, sentences._replace(lives=lives), cache_of(new_state)

    start = _beginning(batch_size, steps, begin_id, max_lengths)
    _, sentences, _ = tf.while_loop(
        lambda time, sentences, cache: tf.reduce_any(sentences.lives),
        advance,
        (tf.constant(0), start, cache_of(state)),
        shape_invariants=(
            tf.TensorShape([]),
            _Sentences(*[leaf.shape for leaf in start]),
            open_shapes(cache_of(state)),
        ),
        maximum_iterations=steps,
    )
    return _output(sentences, length_penalty_alpha)


def _beginning(
    batch_size: int | tf.Tensor, steps: tf.Tensor, begin_id: int, max_lengths: tf.Tensor
) -> _Sentences:
    """Sentences before their first token; those of maximum length 0 are over."""
    return _Sentences(
        ids=tf.zeros([batch_size, steps], tf.int32),
        last_ids=tf.fill([batch_size], begin_id),
        lengths=tf.zeros([batch_size], tf.int32),
        log_probabilities=tf.zeros([batch_size]),
        lives=max_lengths > 0,
    )


def _extend(
    sentences: _Sentences, choice: tf.Tensor, chance: tf.Tensor, time: tf.Tensor
) -> _Sentences:
    """Adds one token (int32 [B], its log-probability float32 [B]) to the sentences that live."""
    exists = sentences.lives & (chance > _NOTHING)
    is_now = tf.range(tf.shape(sentences.ids)[1])[None, :] == time  # [1, T]
    totals = tf.where(exists, sentences.log_probabilities + chance, _NOTHING)
    return _Sentences(
        ids=tf.where(is_now & exists[:, None], choice[:, None], sentences.ids),
        last_ids=tf.where(exists, choice, 0),
        lengths=tf.where(exists, time + 1, sentences.lengths),
        log_probabilities=tf.where(sentences.lives, totals, sentences.log_probabilities),
        lives=exists,
    )


def _output(sentences: _Sentences, alpha: float) -> BeamOutput:
    """Adds the axis of hypotheses, and empties those that no allowed token could go on with."""
    exists = sentences.log_probabilities > _NOTHING  # [B]
    lengths = tf.where(exists, sentences.lengths, 0)
    log_probabilities = sentences.log_probabilities
    scores = normalised_score(log_probabilities, lengths, alpha)
    ids = tf.where(exists[:, None], sentences.ids, 0)
    return BeamOutput(ids[:, None], lengths[:, None], log_probabilities[:, None], scores[:, None])
