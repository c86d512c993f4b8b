"""The context casts to the compute dtype and gives every draw a key of its own."""

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.initializers import key_of


def test_a_context_is_inference_in_float32_unless_told_otherwise() -> None:
    context = Context()
    assert (context.training, context.compute_dtype, dict(context.batch)) == (False, tf.float32, {})


def test_values_and_variables_are_cast_to_the_compute_dtype() -> None:
    context = Context(compute_dtype=tf.bfloat16)
    assert context.cast(tf.constant([1.5])).dtype == tf.bfloat16
    assert context.cast(tf.Variable([1.5])).dtype == tf.bfloat16


def test_draws_of_one_layer_differ_and_are_the_same_in_a_recomputation() -> None:
    first, again = Context(seed=3), Context(seed=3)
    keys = [first.random_key("a"), first.random_key("b"), first.random_key("a")]
    assert len(set(keys)) == 3
    # What other layers draw in between does not matter.
    assert [again.random_key("a"), again.random_key("a")] == [keys[0], keys[2]]
    assert Context(seed=4).random_key("a") not in keys


def test_contexts_do_not_share_their_counts() -> None:
    assert Context().random_key("a") == Context().random_key("a")


def test_keys_are_equal_on_every_machine_and_parts_do_not_run_together() -> None:
    assert key_of(1, "a", "b") == 17729283312778053147
    assert len({key_of(1, "ab"), key_of(1, "a", "b"), key_of(11, "ab"), key_of(1, "b", "a")}) == 4
    assert all(0 <= key_of(seed, "x") < 2**64 for seed in range(50))
