"""Greedy search against a plain loop over random tables."""

import numpy as np
import tensorflow as tf

from lingpipe.decode.greedy import greedy_search
from lingpipe.decode.output import BeamOutput
from lingpipe.decode.step import State
from tests.decode.tiny_models import (
    BEGIN,
    END,
    random_tables,
    score_of,
    table_chances,
    table_state,
    table_step,
    teacher_forcing,
)

LENGTHS = [5, 1, 4, 0, 3, 5, 2, 5]


def _greedy(tables: np.ndarray, lengths: list[int]) -> BeamOutput:
    return greedy_search(
        table_step,
        table_state(tables),
        batch_size=len(lengths),
        begin_id=BEGIN,
        end_id=END,
        max_lengths=tf.constant(lengths),
        length_penalty_alpha=0.6,
        forbidden_ids=[0],
    )


def test_each_token_is_the_most_probable_one() -> None:
    tables = random_tables(0, len(LENGTHS), 5, 5)
    output = _greedy(tables, LENGTHS)
    assert output.ids.shape == (8, 1, 5)
    for row, max_length in enumerate(LENGTHS):
        chances = table_chances(tables[row])
        ids: tuple[int, ...] = ()
        while len(ids) < max_length and END not in ids:
            ids = (*ids, 1 + int(np.argmax(chances(ids)[1:])))
        assert output.lengths[row, 0] == len(ids)
        assert output.ids[row, 0].numpy().tolist() == [*ids, *[0] * (5 - len(ids))]
        log_probability = teacher_forcing(chances, ids)
        np.testing.assert_allclose(output.log_probabilities[row, 0], log_probability, rtol=1e-5)
        score = score_of(log_probability, len(ids), 0.6)
        np.testing.assert_allclose(output.scores[row, 0], score, rtol=1e-5)


def test_a_sentence_does_not_depend_on_its_batch() -> None:
    tables = random_tables(1, len(LENGTHS), 5, 5)
    together = _greedy(tables, LENGTHS)
    for row, max_length in enumerate(LENGTHS):
        alone = _greedy(tables[row : row + 1], [max_length])
        np.testing.assert_array_equal(alone.ids[0, 0], together.ids[row, 0, :max_length])
        # TensorFlow's exp differs in the last bit with the place of a number in its tensor.
        np.testing.assert_allclose(
            alone.log_probabilities[0], together.log_probabilities[row], rtol=1e-6
        )


def test_the_loop_ends_with_the_last_sentence() -> None:
    calls = []

    def step(ids: tf.Tensor, time: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        calls.append(int(time))
        rows = tf.range(2)[:, None]
        return tf.where((rows <= time) == (tf.range(5)[None, :] == END), 1.0, 0.0), state

    output = greedy_search(
        step, {}, batch_size=2, begin_id=BEGIN, end_id=END, max_lengths=tf.constant([50, 50])
    )
    assert output.lengths.numpy().tolist() == [[1], [2]]
    assert calls == [0, 1]


def test_no_sentence_is_told_of_where_no_token_is_possible() -> None:
    def step(ids: tf.Tensor, time: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        return tf.constant([[1.0, -np.inf, -np.inf, -np.inf]]), state

    output = greedy_search(
        step,
        {},
        batch_size=1,
        begin_id=BEGIN,
        end_id=END,
        max_lengths=tf.constant([3]),
        forbidden_ids=[0],
    )
    assert output.log_probabilities[0, 0] == -np.inf
    assert output.lengths[0, 0] == 0
    assert not output.ids.numpy().any()
