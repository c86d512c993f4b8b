"""Where a beam search ends, what it may not say or must, and what it refuses."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.decode.beam_search import beam_search
from lingpipe.decode.errors import DecodeError
from lingpipe.decode.output import BeamOutput
from lingpipe.decode.step import State, tile_beams
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
    all_sentences,
    random_tables,
    table_chances,
    table_state,
    table_step,
    teacher_forcing,
)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_loop_ends_as_soon_as_nothing_better_can_come(alpha: float) -> None:
    calls = []

    def step(ids: tf.Tensor, time: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        calls.append(int(time))
        # The end is nearly certain at time 2, and nearly impossible before.
        end = tf.where(time >= 2, 20.0, -20.0)
        return tf.tile(tf.stack([0.0, 1.0, 0.0, end])[None, :], [tf.shape(ids)[0], 1]), state

    output = beam_search(
        step,
        {},
        batch_size=2,
        begin_id=BEGIN,
        end_id=END,
        max_lengths=tf.constant([60, 40]),
        beam_size=4,
        length_penalty_alpha=alpha,
    )
    assert output.ids[:, 0, :4].numpy().tolist() == [[1, 1, END, 0]] * 2
    assert calls == [0, 1, 2]


@pytest.mark.parametrize(
    ("alpha", "end_at_once", "later_length", "best_length"),
    [
        (2.0, -0.5, 10, 10),
        (2.0, -0.8, 2, 2),
        (0.6, -0.5, 20, 20),
        (0.6, -0.5, 2, 1),
        (0.0, -0.5, 10, 1),
        (0.0, -0.8, 10, 10),
        (-1.0, -0.8, 2, 2),
        (-1.0, -0.8, 10, 1),
    ],
)
def test_the_search_goes_on_while_a_longer_sentence_may_win(
    alpha: float, end_at_once: float, later_length: int, best_length: int
) -> None:
    # The sentence ends at once or, nearly surely, with the token of `later_length`.
    go_on = float(np.log(1 - np.exp(end_at_once)))

    def step(ids: tf.Tensor, time: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        at_first = tf.constant([-50.0, go_on, -50.0, end_at_once])
        between = tf.constant([-50.0, 0.0, -50.0, -50.0])
        at_last = tf.constant([-50.0, -50.0, -50.0, 0.0])
        logits = tf.where(time < later_length - 1, between, at_last)
        logits = tf.where(time == 0, at_first, logits)
        return tf.tile(logits[None, :], [tf.shape(ids)[0], 1]), state

    output = beam_search(
        step,
        {},
        batch_size=1,
        begin_id=BEGIN,
        end_id=END,
        max_lengths=tf.constant([20]),
        beam_size=2,
        length_penalty_alpha=alpha,
    )
    assert output.lengths.numpy().tolist() == [[best_length]]


@pytest.mark.parametrize("beam_size", [2, WIDE])
def test_a_target_prefix_is_continued(beam_size: int) -> None:
    tables = random_tables(9, 4, LENGTH, VOCABULARY)
    # One is empty, one an id that is forbidden elsewhere, one a whole sentence.
    prefixes = [(4, 1), (), (2,), (2, END)]
    padded = tf.constant([[4, 1, 0], [0, 0, 0], [2, 0, 0], [2, END, 0]])
    output = search(
        beam_size,
        0.6,
        2,
        tables=tables,
        lengths=[5, 4, 5, 5],
        prefix_ids=padded,
        forbidden_ids=[0, 2],
    )
    for row, max_length in enumerate([5, 4, 5, 5]):
        prefix = prefixes[row]
        found = hypotheses(output, row)
        chances = table_chances(tables[row])
        possible = [
            sentence
            for sentence in all_sentences(chances, max_length, 0.6, ALLOWED)
            if sentence.ids[: len(prefix)] == prefix and 2 not in sentence.ids[len(prefix) :]
        ]
        if beam_size == WIDE:
            assert_same(found, possible[:2])
        for hypothesis in found:
            assert hypothesis.ids in {sentence.ids for sentence in possible}
            expected = teacher_forcing(chances, hypothesis.ids)
            np.testing.assert_allclose(hypothesis.log_probability, expected, rtol=1e-5)


def test_a_prefix_is_cut_at_the_maximum_length() -> None:
    tables = random_tables(10, 1, LENGTH, VOCABULARY)
    output = search(2, 0.0, 1, tables=tables, lengths=[2], prefix_ids=tf.constant([[4, 1, 2]]))
    assert output.ids.numpy().tolist() == [[[4, 1]]]


def test_forbidden_ids_never_come_and_change_no_probability() -> None:
    tables = random_tables(11, MODELS, LENGTH, VOCABULARY)
    output = search(4, 1.0, 4, tables=tables, forbidden_ids=[0, 1, 4])
    for row in range(MODELS):
        for hypothesis in hypotheses(output, row):
            assert set(hypothesis.ids) <= {2, END}
            expected = teacher_forcing(table_chances(tables[row]), hypothesis.ids)
            np.testing.assert_allclose(hypothesis.log_probability, expected, rtol=1e-5, atol=1e-6)


def test_missing_hypotheses_have_no_probability() -> None:
    tables = random_tables(12, 2, LENGTH, VOCABULARY)
    # With two allowed ids there are 3 sentences of up to 2 tokens, and 2 of up to 1.
    output = search(8, 0.6, 5, tables=tables, lengths=[2, 1], forbidden_ids=[0, 1, 4])
    assert [len(hypotheses(output, row)) for row in range(2)] == [3, 2]
    assert np.isneginf(output.scores.numpy()[0]).tolist() == [False] * 3 + [True] * 2


def test_a_maximum_length_of_zero_gives_one_empty_sentence() -> None:
    tables = random_tables(13, 2, LENGTH, VOCABULARY)
    output = search(3, 0.6, 2, tables=tables, lengths=[0, 5])
    assert output.lengths.numpy()[0].tolist() == [0, 0]
    assert output.scores.numpy()[0].tolist() == [0.0, -np.inf]
    alone = search(3, 0.6, 2, tables=tables[1:], lengths=[5])
    np.testing.assert_array_equal(output.ids[1], alone.ids[0])
    nothing = search(3, 0.6, 2, tables=tables, lengths=[0, 0])
    assert nothing.ids.shape == (2, 2, 0)


def test_a_batch_without_sentences_gives_no_output() -> None:
    output = beam_search(
        table_step,
        table_state(np.zeros([0, LENGTH, VOCABULARY, VOCABULARY], np.float32)),
        batch_size=0,
        begin_id=BEGIN,
        end_id=END,
        max_lengths=tf.zeros([0], tf.int32),
        beam_size=2,
        length_penalty_alpha=0.6,
    )
    assert output.ids.shape == (0, 1, 0)


def test_ties_go_to_the_lower_ids() -> None:
    tables = np.zeros([1, 3, VOCABULARY, VOCABULARY], np.float32)
    output = search(2, 0.0, 2, tables=tables, lengths=[3])
    assert output.ids.numpy().tolist() == [[[1, 1, 1], [1, 1, 2]]]
    output = search(3, 0.0, 3, tables=tables, lengths=[1])
    assert output.ids.numpy().tolist() == [[[1], [2], [3]]]


def test_numbers_of_empty_places_do_not_matter() -> None:
    tables = random_tables(14, MODELS, LENGTH, VOCABULARY)
    clean = search(4, 0.6, 4, tables=tables)
    tables[:, :, 0] = np.nan  # What the model says after padding, which fills empty places.
    spoilt = search(4, 0.6, 4, tables=tables)
    for ours, theirs in zip(tf.nest.flatten(spoilt), tf.nest.flatten(clean), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_one_trace_serves_every_batch() -> None:
    traces = []

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, VOCABULARY, VOCABULARY]),
            tf.TensorSpec([None], tf.int32),
        ]
    )
    def in_graph(tables: tf.Tensor, lengths: tf.Tensor) -> BeamOutput:
        traces.append(1)
        return beam_search(
            table_step,
            tile_beams(table_state(tables), 3),
            batch_size=tf.shape(tables)[0],
            begin_id=BEGIN,
            end_id=END,
            max_lengths=lengths,
            beam_size=3,
            length_penalty_alpha=0.6,
            nbest=2,
            forbidden_ids=[0],
        )

    tables = random_tables(15, MODELS, LENGTH, VOCABULARY)
    for rows in (MODELS, 7, 1):
        graph = in_graph(tables[:rows], tf.constant(LENGTHS[:rows]))
        eager = search(3, 0.6, 2, tables=tables[:rows], lengths=LENGTHS[:rows])
        np.testing.assert_array_equal(graph.ids, eager.ids)
        np.testing.assert_allclose(graph.scores, eager.scores, rtol=1e-6)
    assert len(traces) == 1
    assert in_graph.get_concrete_function().structured_outputs.ids.shape.as_list()[1:] == [2, None]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"beam_size": 4, "nbest": 5}, r"nbest \(5\) must not exceed beam_size \(4\).*beam_size=5"),
        ({"beam_size": 4, "nbest": 0}, r"nbest \(0\) must be 1 or more"),
        ({"beam_size": 0, "nbest": 1}, r"beam_size \(0\) must be 1 or more"),
        ({"beam_size": 1, "nbest": 1, "alpha": np.inf}, r"length_penalty_alpha \(inf\).*finite"),
        ({"beam_size": 1, "nbest": 1, "forbidden_ids": [END]}, r"holds end_id \(3\)"),
    ],
)
def test_requests_that_cannot_be_honoured_are_refused(wrong: dict[str, Any], words: str) -> None:
    tables = random_tables(16, 1, LENGTH, VOCABULARY)
    with pytest.raises(DecodeError, match=words):
        search(**{"alpha": 0.6, "tables": tables, "lengths": [3], **wrong})


def test_a_state_that_was_not_tiled_is_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="tile_beams"):
        beam_search(
            table_step,
            table_state(random_tables(17, 2, LENGTH, VOCABULARY)),
            batch_size=2,
            begin_id=BEGIN,
            end_id=END,
            max_lengths=tf.constant([3, 3]),
            beam_size=4,
            length_penalty_alpha=0.6,
        )
