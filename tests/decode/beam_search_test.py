"""Beam search against every sentence that tiny random models could say."""

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.decode.beam_search import beam_search
from lingpipe.decode.greedy import greedy_search
from lingpipe.decode.output import BeamOutput
from lingpipe.decode.step import State, Step, tile_beams
from tests.decode.table_searches import (
    ALLOWED,
    ALPHAS,
    LENGTH,
    LENGTHS,
    MODELS,
    VOCABULARY,
    WIDE,
    assert_same,
    hypotheses,
    search,
)
from tests.decode.tiny_models import (
    BEGIN,
    END,
    Chances,
    HistoryModel,
    all_sentences,
    plain_beam_search,
    random_tables,
    table_chances,
    table_state,
    table_step,
    teacher_forcing,
)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_wide_beam_finds_the_best_of_all_sentences(alpha: float) -> None:
    tables = random_tables(1, MODELS, LENGTH, VOCABULARY)
    output = search(WIDE, alpha, 5, tables=tables)
    for row, max_length in enumerate(LENGTHS):
        best = all_sentences(table_chances(tables[row]), max_length, alpha, ALLOWED)
        assert_same(hypotheses(output, row), best[:5])


def test_a_beam_of_all_sentences_lists_them_all() -> None:
    tables = random_tables(2, 3, 3, VOCABULARY)
    output = search(50, 0.6, 50, tables=tables, lengths=[3, 3, 2])
    for row, max_length in enumerate([3, 3, 2]):
        every = all_sentences(table_chances(tables[row]), max_length, 0.6, ALLOWED)
        assert len(every) == (40 if max_length == 3 else 13)
        assert_same(hypotheses(output, row), every)


def test_padding_is_a_token_like_any_other_unless_forbidden() -> None:
    tables = random_tables(3, 4, 3, VOCABULARY)
    output = search(85, 1.0, 1, tables=tables, lengths=[3] * 4, forbidden_ids=[])
    for row in range(4):
        best = all_sentences(table_chances(tables[row]), 3, 1.0, range(VOCABULARY))[0]
        np.testing.assert_allclose(output.scores[row, 0], best.score, rtol=2e-5)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_a_narrow_beam_agrees_with_a_plain_search_that_never_stops(
    beam_size: int, alpha: float
) -> None:
    tables = random_tables(4, MODELS, LENGTH, VOCABULARY)
    for nbest in {1, beam_size}:
        output = search(beam_size, alpha, nbest, tables=tables)
        for row, max_length in enumerate(LENGTHS):
            expected = plain_beam_search(
                table_chances(tables[row]), max_length, alpha, beam_size, ALLOWED
            )
            assert_same(hypotheses(output, row), expected[:nbest])


@pytest.mark.parametrize("alpha", ALPHAS)
def test_scores_are_those_of_teacher_forcing(alpha: float) -> None:
    tables = random_tables(5, MODELS, LENGTH, VOCABULARY, scale=4.0)
    output = search(5, alpha, 5, tables=tables)
    for row in range(MODELS):
        for hypothesis in hypotheses(output, row):
            expected = teacher_forcing(table_chances(tables[row]), hypothesis.ids)
            np.testing.assert_allclose(hypothesis.log_probability, expected, rtol=1e-5, atol=1e-6)
            penalty = ((5 + len(hypothesis.ids)) / 6) ** alpha
            np.testing.assert_allclose(hypothesis.score, expected / penalty, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_of_one_is_greedy(alpha: float) -> None:
    tables = random_tables(6, MODELS, LENGTH, VOCABULARY)
    beam = search(1, alpha, 1, tables=tables)
    greedy = greedy_search(
        table_step,
        table_state(tables),
        batch_size=MODELS,
        begin_id=BEGIN,
        end_id=END,
        max_lengths=tf.constant(LENGTHS),
        length_penalty_alpha=alpha,
        forbidden_ids=[0],
    )
    np.testing.assert_array_equal(beam.ids, greedy.ids)
    np.testing.assert_array_equal(beam.lengths, greedy.lengths)
    np.testing.assert_allclose(beam.log_probabilities, greedy.log_probabilities, rtol=1e-6)
    np.testing.assert_allclose(beam.scores, greedy.scores, rtol=1e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_best_is_the_same_however_many_are_asked_for(alpha: float) -> None:
    tables = random_tables(7, MODELS, LENGTH, VOCABULARY)
    five = search(5, alpha, 5, tables=tables)
    for nbest in (1, 2, 4):
        fewer = search(5, alpha, nbest, tables=tables)
        for ours, theirs in zip(tf.nest.flatten(fewer), tf.nest.flatten(five), strict=True):
            np.testing.assert_array_equal(ours, theirs[:, :nbest])


@pytest.mark.parametrize("alpha", [-1.0, 0.6])
def test_a_sentence_does_not_depend_on_its_batch(alpha: float) -> None:
    tables = random_tables(8, MODELS, LENGTH, VOCABULARY)
    together = search(4, alpha, 3, tables=tables)
    shuffled = np.random.default_rng(0).permutation(MODELS)
    in_threes = np.array_split(shuffled, MODELS // 3)
    for rows in [shuffled, *in_threes, *shuffled[:, None]]:
        lengths = [LENGTHS[row] for row in rows]
        output = search(4, alpha, 3, tables=tables[rows], lengths=lengths)
        np.testing.assert_array_equal(
            output.ids, tf.gather(together.ids, rows)[:, :, : max(lengths)]
        )
        np.testing.assert_array_equal(output.lengths, tf.gather(together.lengths, rows))
        # TensorFlow's exp differs in the last bit with the place of a number in its tensor.
        np.testing.assert_allclose(output.scores, tf.gather(together.scores, rows), rtol=1e-6)


def _history_search(step: Step, state: State, beam_size: int, alpha: float) -> BeamOutput:
    return beam_search(
        step,
        tile_beams(state, beam_size),
        batch_size=4,
        begin_id=BEGIN,
        end_id=END,
        max_lengths=tf.constant([5, 3, 4, 5]),
        beam_size=beam_size,
        length_penalty_alpha=alpha,
        nbest=3,
        forbidden_ids=[0],
    )


@pytest.mark.parametrize(("beam_size", "is_parted"), [(3, True), (3, False), (WIDE, True)])
def test_a_growing_cache_follows_its_hypothesis(beam_size: int, is_parted: bool) -> None:
    model = HistoryModel(0, LENGTH, VOCABULARY)
    biases = np.random.default_rng(1).normal(size=[4, VOCABULARY]).astype(np.float32)

    def whole_step(ids: tf.Tensor, time: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        bias, history = state
        parted = {"fixed": {"bias": bias}, "cache": {"history": history}}
        logits, parted = model.step(ids, time, parted)
        return logits, (bias, parted["cache"]["history"])

    state = model.initial_state(biases)
    step: Step = model.step
    if not is_parted:
        state, step = (state["fixed"]["bias"], state["cache"]["history"]), whole_step
    # In a graph, where the loop's shapes are checked.
    output = tf.function(_history_search)(step, state, beam_size, 0.6)
    for row, max_length in enumerate([5, 3, 4, 5]):
        chances: Chances = model.chances(biases[row])
        if beam_size == WIDE:
            expected = all_sentences(chances, max_length, 0.6, ALLOWED)
        else:
            expected = plain_beam_search(chances, max_length, 0.6, beam_size, ALLOWED)
        assert_same(hypotheses(output, row), expected[:3])
