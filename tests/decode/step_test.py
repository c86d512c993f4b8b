"""The operations that searches do on a model's state and logits."""

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.decode.errors import DecodeError
from lingpipe.decode.step import (
    cache_of,
    check_forbidden_ids,
    next_log_probabilities,
    prefix_ids_at,
    state_tensors,
    tile_beams,
    with_cache,
)
from lingpipe.errors import UserError


def test_the_copies_of_a_row_are_beside_each_other() -> None:
    tiled = tile_beams({"a": tf.constant([1, 2]), "b": [tf.constant([[3.0], [4.0]])]}, 3)
    assert tiled["a"].numpy().tolist() == [1, 1, 1, 2, 2, 2]
    assert tiled["b"][0].numpy().tolist() == [[3.0], [3.0], [3.0], [4.0], [4.0], [4.0]]


def test_only_a_state_of_fixed_and_cache_is_cut() -> None:
    parted = {"fixed": 1, "cache": 2}
    assert cache_of(parted) == 2
    assert with_cache(parted, 3) == {"fixed": 1, "cache": 3}
    whole = {"cache": 2, "position": 4}
    assert cache_of(whole) == whole
    assert with_cache(whole, {"cache": 5, "position": 6}) == {"cache": 5, "position": 6}


def test_a_state_with_other_rows_is_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"tile_beams\(state, beam_size\)"):
        state_tensors({"keys": tf.zeros([2, 5])}, tf.constant(8))


def test_a_scalar_in_the_state_is_refused() -> None:
    with pytest.raises(DecodeError, match="needs a first dimension of rows"):
        state_tensors({"position": tf.constant(0)}, tf.constant(8))


def test_forbidding_leaves_the_other_probabilities_as_they_are() -> None:
    logits = tf.constant([[1.0, 2.0, 3.0, 4.0]])
    free = next_log_probabilities(logits, [])
    np.testing.assert_allclose(np.exp(free).sum(), 1.0, rtol=1e-6)
    restricted = next_log_probabilities(logits, [0, 2]).numpy()
    assert np.isneginf(restricted[0, [0, 2]]).all()
    np.testing.assert_array_equal(restricted[0, [1, 3]], free.numpy()[0, [1, 3]])


def test_a_forced_id_is_the_only_choice_even_where_forbidden() -> None:
    logits = tf.constant([[1.0, 2.0, 3.0, 4.0]] * 3)
    free = next_log_probabilities(logits, []).numpy()
    forced = next_log_probabilities(logits, [2], tf.constant([0, 2, 3])).numpy()
    none = -np.inf
    np.testing.assert_array_equal(forced[0], [*free[0, :2], none, free[0, 3]])
    np.testing.assert_array_equal(forced[1], [none, none, free[1, 2], none])
    np.testing.assert_array_equal(forced[2], [none, none, none, free[2, 3]])


def test_half_precision_logits_are_summed_in_float32() -> None:
    assert next_log_probabilities(tf.zeros([1, 4], tf.bfloat16), []).dtype == tf.float32


def test_a_prefix_has_an_end() -> None:
    prefix = tf.constant([[7, 8], [9, 0]])
    columns = [prefix_ids_at(prefix, tf.constant(time)).numpy().tolist() for time in range(4)]
    assert columns == [[7, 9], [8, 0], [0, 0], [0, 0]]


def test_end_of_sentence_cannot_be_forbidden() -> None:
    with pytest.raises(DecodeError, match=r"forbidden_ids \(\[0, 3\]\) holds end_id \(3\)"):
        check_forbidden_ids([3, 0], end_id=3)
    with pytest.raises(UserError, match=r"\[-1\].*0 or greater"):
        check_forbidden_ids([-1], end_id=3)
