r"""Beam search: the K most probable beginnings of each sentence, extended token by token.

    time 0      time 1          time 2
    <s> --- the --- the cat --- the cat sat </s>   finished: keeps one of the K = 2 places
        \-- a   \-- the dog --- the dog ran        live: has the other

Each step extends every live hypothesis by every token and keeps the best by log-probability, as
many as there are free places. A hypothesis that ends keeps its place for good, so that a sentence
gets K finished hypotheses at most and a beam of one is exactly the greedy search. Finished
hypotheses are ranked by their length-normalised score.

A sentence stops early when no live hypothesis could still enter its n best. Log-probabilities
only fall, so the best that a live hypothesis of log-probability s and length n can reach is s
over the largest length penalty of the lengths n+1 to the sentence's maximum. The penalty is
monotonic in the length: that is the one at an end of this range, whatever the sign of alpha.
Stopping is therefore never a guess: the n best are those of a search that runs to the maximum
length. All ties go to the hypothesis found first, then to the better parent, then to the lower
id. Rows of a batch share nothing but the loop: when a sentence has stopped, its result is frozen.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from lingpipe.decode.errors import DecodeError
from lingpipe.decode.length_penalty import length_penalty, normalised_score
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

_NOTHING = -float("inf")  # Log-probability and score of a place that holds no hypothesis.


class _Live(NamedTuple):
    """Hypotheses that go on; a place without one has log-probability -inf."""

    ids: tf.Tensor  # int32 [B, K, T]
    last_ids: tf.Tensor  # int32 [B, K]: what the step function reads next.
    log_probabilities: tf.Tensor  # float32 [B, K]


class _Finished(NamedTuple):
    """Hypotheses that ended, best first; a place without one has score -inf."""

    ids: tf.Tensor  # int32 [B, K, T]
    lengths: tf.Tensor  # int32 [B, K]
    log_probabilities: tf.Tensor  # float32 [B, K]
    scores: tf.Tensor  # float32 [B, K]


class _Candidates(NamedTuple):
    """The best extensions of a sentence's live hypotheses, best first."""

    ids: tf.Tensor  # int32 [B, K, T], the new token included.
    last_ids: tf.Tensor  # int32 [B, K]
    log_probabilities: tf.Tensor  # float32 [B, K]
    parents: tf.Tensor  # int32 [B, K]: places in the live hypotheses.


def beam_search(
    step: Step,
    initial_state: State,
    *,
    batch_size: int | tf.Tensor,
    begin_id: int,
    end_id: int,
    max_lengths: tf.Tensor,
    beam_size: int,
    length_penalty_alpha: float,
    nbest: int = 1,
    forbidden_ids: Sequence[int] = (),
    prefix_ids: tf.Tensor | None = None,
) -> BeamOutput:
    """Returns the `nbest` best hypotheses that a beam of `beam_size` finds for each sentence.

    Runs in one `tf.while_loop`, eagerly or inside a `tf.function`. Reference: Wu et al. 2016,
    arXiv 1609.08144, section 7, for the scores; the stopping rule is this module's own.

    Args:
      step: The model, see `lingpipe.decode.step`; it is given rows B*K.
      initial_state: Nested structure of tensors [B*K, ...], see `tile_beams`; may be empty.
      batch_size: B, a number or an int32 scalar.
      begin_id: Id that the first step reads.
      end_id: Id that ends a sentence.
      max_lengths: int32 [B], each sentence's own greatest length, the end of sentence and a
        prefix counted. A hypothesis that reaches it without ending counts as finished there.
        A maximum of 0 gives one empty hypothesis of log-probability 0.
      beam_size: K, 1 or more; may exceed the vocabulary.
      length_penalty_alpha: Any finite number, see `length_penalty`.
      nbest: N, from 1 to `beam_size`.
      forbidden_ids: Ids never chosen (padding, begin of sentence, control tags).
      prefix_ids: int32 [B, P], ids that every hypothesis of a sentence begins with, then zeros.
        They are scored and returned like chosen ones; forbidden ids may be among them.

    Returns:
      BeamOutput of N hypotheses a sentence, best first.

    Raises:
      DecodeError: When beam_size, nbest, length_penalty_alpha or forbidden_ids cannot be honoured.
    """
    _check_request(beam_size, nbest, length_penalty_alpha)
    check_forbidden_ids(forbidden_ids, end_id)
    max_lengths = tf.cast(max_lengths, tf.int32)
    steps = tf.maximum(tf.reduce_max(max_lengths), 0)
    state = state_tensors(initial_state, tf.cast(batch_size, tf.int32) * beam_size)
    live, finished = _beginning(batch_size, beam_size, steps, begin_id, max_lengths)
    forbidden_ids = tuple(forbidden_ids)
    alpha = length_penalty_alpha
    rules = _Rules(end_id, max_lengths, beam_size, alpha, nbest, forbidden_ids, prefix_ids)
    finished = _search(step, state, live, finished, rules, steps)
    return BeamOutput(*[leaf[:, :nbest] for leaf in finished])


class _Rules(NamedTuple):
    """What the caller of `beam_search` asked for."""

    end_id: int
    max_lengths: tf.Tensor
    beam_size: int
    alpha: float
    nbest: int
    forbidden_ids: tuple[int, ...]
    prefix_ids: tf.Tensor | None


def _search(
    step: Step, state: State, live: _Live, finished: _Finished, rules: _Rules, steps: tf.Tensor
) -> _Finished:
    """Extends the live hypotheses until none is left that could still be among the best."""
    max_lengths, beam_size = rules.max_lengths, rules.beam_size

    def advance(
        time: tf.Tensor, live: _Live, finished: _Finished, cache: State
    ) -> tuple[tf.Tensor, _Live, _Finished, State]:
        logits, new_state = step(tf.reshape(live.last_ids, [-1]), time, with_cache(state, cache))
        forced = None
        if rules.prefix_ids is not None:
            forced = tf.repeat(prefix_ids_at(rules.prefix_ids, time), beam_size, axis=0)  # [B*K]
        chances = next_log_probabilities(logits, rules.forbidden_ids, forced)  # [B*K, V]
        candidates = _extend(live, chances, time, beam_size)
        exists = _has_place(candidates, finished)  # [B, K]
        # Reaching the maximum length ends a hypothesis as the end of sentence does.
        ends = (candidates.last_ids == rules.end_id) | (time + 1 >= max_lengths[:, None])
        finished = _admit(finished, candidates, exists & ends, time + 1, rules.alpha)
        live = _survivors(candidates, exists & ~ends)
        bound = _best_reachable(live, time + 1, max_lengths, rules.alpha)  # [B]
        live = _stopped(live, bound <= finished.scores[:, rules.nbest - 1])
        new_cache = _follow(cache_of(new_state), candidates.parents, beam_size)
        return time + 1, live, finished, new_cache

    _, _, finished, _ = tf.while_loop(
        lambda time, live, *_: tf.reduce_any(live.log_probabilities > _NOTHING),
        advance,
        (tf.constant(0), live, finished, cache_of(state)),
        shape_invariants=(
            tf.TensorShape([]),
            _Live(*[leaf.shape for leaf in live]),
            _Finished(*[leaf.shape for leaf in finished]),
            open_shapes(cache_of(state)),
        ),
        maximum_iterations=steps,
    )
    return finished


def _check_request(beam_size: int, nbest: int, alpha: float) -> None:
    if not math.isfinite(alpha):
        raise DecodeError(f"length_penalty_alpha ({alpha}) must be a finite number, such as 0.6.")
    if beam_size < 1:
        raise DecodeError(f"beam_size ({beam_size}) must be 1 or more.")
    if nbest < 1:
        raise DecodeError(f"nbest ({nbest}) must be 1 or more.")
    if nbest > beam_size:
        raise DecodeError(
            f"nbest ({nbest}) must not exceed beam_size ({beam_size}): a beam finds no more "
            f"hypotheses than it has places. Use beam_size={nbest} or nbest={beam_size}."
        )


def _beginning(
    batch_size: int | tf.Tensor,
    beam_size: int,
    steps: tf.Tensor,
    begin_id: int,
    max_lengths: tf.Tensor,
) -> tuple[_Live, _Finished]:
    """One live hypothesis without tokens a sentence, or one finished where none may follow."""
    shape = [batch_size, beam_size]
    is_first_place = tf.range(beam_size)[None, :] == 0  # [1, K]
    may_begin = (max_lengths > 0)[:, None]  # [B, 1]
    nothing = tf.fill(shape, _NOTHING)
    empty_ids = tf.zeros([batch_size, beam_size, steps], tf.int32)
    live = _Live(
        ids=empty_ids,
        last_ids=tf.fill(shape, begin_id),
        log_probabilities=tf.where(is_first_place & may_begin, 0.0, nothing),
    )
    of_nothing = tf.where(is_first_place & ~may_begin, 0.0, nothing)
    finished = _Finished(
        ids=empty_ids,
        lengths=tf.zeros(shape, tf.int32),
        log_probabilities=of_nothing,
        scores=of_nothing,
    )
    return live, finished


def _extend(live: _Live, chances: tf.Tensor, time: tf.Tensor, beam_size: int) -> _Candidates:
    """Returns the K best extensions of each sentence; `chances` is float32 [B*K, V]."""
    vocabulary_size = tf.shape(chances)[-1]
    batch_size = tf.shape(live.last_ids)[0]
    # No hypothesis can fill more than K places: its own K best tokens are enough to compare.
    tokens_each = tf.minimum(vocabulary_size, beam_size)
    chances, tokens = tf.math.top_k(chances, k=tokens_each)  # [B*K, k]
    chances = tf.reshape(chances, [batch_size, beam_size, tokens_each])  # [B, K, k]
    totals = live.log_probabilities[:, :, None] + chances  # [B, K, k]
    # The model's numbers for a place without hypothesis mean nothing, and may be NaN.
    is_live = (live.log_probabilities > _NOTHING)[:, :, None]
    totals = tf.where(is_live & (totals > _NOTHING), totals, _NOTHING)
    wide = [batch_size, beam_size * tokens_each]
    log_probabilities, places = tf.math.top_k(tf.reshape(totals, wide), k=beam_size)  # [B, K]
    parents = places // tokens_each  # [B, K]
    last_ids = tf.gather(tf.reshape(tokens, wide), places, batch_dims=1)  # [B, K]
    histories = tf.gather(live.ids, parents, batch_dims=1)  # [B, K, T]
    is_now = tf.range(tf.shape(histories)[-1]) == time  # [T]
    ids = tf.where(is_now, last_ids[:, :, None], histories)  # [B, K, T]
    return _Candidates(ids, last_ids, log_probabilities, parents)


def _has_place(candidates: _Candidates, finished: _Finished) -> tf.Tensor:
    """Returns bool [B, K]: the candidate exists and finished hypotheses leave a place for it."""
    taken = tf.reduce_sum(tf.cast(finished.scores > _NOTHING, tf.int32), axis=1)  # [B]
    beam_size = tf.shape(candidates.last_ids)[1]
    is_within = tf.range(beam_size)[None, :] < (beam_size - taken)[:, None]  # [B, K]
    return is_within & (candidates.log_probabilities > _NOTHING)


def _admit(
    finished: _Finished,
    candidates: _Candidates,
    ends: tf.Tensor,
    length: tf.Tensor,
    alpha: float,
) -> _Finished:
    """Returns the finished hypotheses with the candidates that end (bool [B, K]) among them."""
    log_probabilities = tf.where(ends, candidates.log_probabilities, _NOTHING)
    newcomers = _Finished(
        ids=tf.where(ends[:, :, None], candidates.ids, 0),
        lengths=tf.where(ends, length, 0),
        log_probabilities=log_probabilities,
        scores=normalised_score(log_probabilities, length, alpha),
    )
    everyone = [tf.concat(pair, axis=1) for pair in zip(finished, newcomers, strict=True)]
    # Places are handed out so that at most K of these 2K exist: the cut loses none.
    beam_size = tf.shape(ends)[1]
    _, order = tf.math.top_k(everyone[-1], k=beam_size)  # [B, K]
    return _Finished(*[tf.gather(leaf, order, batch_dims=1) for leaf in everyone])


def _survivors(candidates: _Candidates, lives: tf.Tensor) -> _Live:
    """Returns the candidates that go on (bool [B, K]); the other places are empty."""
    return _Live(
        ids=candidates.ids,
        last_ids=tf.where(lives, candidates.last_ids, 0),
        log_probabilities=tf.where(lives, candidates.log_probabilities, _NOTHING),
    )


def _best_reachable(
    live: _Live, length: tf.Tensor, max_lengths: tf.Tensor, alpha: float
) -> tf.Tensor:
    """Returns float32 [B], which no score exceeds that live hypotheses of `length` may reach."""
    best = tf.reduce_max(live.log_probabilities, axis=1)  # [B]
    at_next = length_penalty(length + 1, alpha)
    at_most = length_penalty(tf.maximum(max_lengths, length + 1), alpha)  # [B]
    return best / tf.maximum(at_next, at_most)


def _stopped(live: _Live, stops: tf.Tensor) -> _Live:
    """Returns the live hypotheses without those of sentences that stop (bool [B])."""
    log_probabilities = tf.where(stops[:, None], _NOTHING, live.log_probabilities)
    return live._replace(log_probabilities=log_probabilities)


def _follow(cache: State, parents: tf.Tensor, beam_size: int) -> State:
    """Returns the cache with each place holding what its hypothesis' parent held."""
    if beam_size == 1:
        return cache
    first_rows = tf.range(tf.shape(parents)[0])[:, None] * beam_size  # [B, 1]
    rows = tf.reshape(first_rows + parents, [-1])  # [B*K]
    return tf.nest.map_structure(lambda leaf: tf.gather(leaf, rows), cache)
