"""The cheapest choice of what to keep is that of trying all of them."""

import itertools
import math
import random

import pytest

from lingpipe.pipeline.recomputation import (
    Choice,
    ForwardPass,
    Operation,
    Value,
    cheapest,
    keep_within,
)


def every_choice(forward: ForwardPass) -> list[Choice]:
    """What follows from every set of operations that may run again."""
    may = [number for number, op in enumerate(forward.operations) if op.work < math.inf]
    choices = []
    for count in range(len(may) + 1):
        for rerun in itertools.combinations(may, count):
            read = {value for number in rerun for value in forward.operations[number].reads}
            kept = {v for v in forward.needed | read if forward.values[v].maker not in rerun}
            size = sum(forward.values[v].size for v in kept)
            work = sum(forward.operations[number].work for number in rerun)
            if size < math.inf:
                choices.append(Choice(frozenset(kept), frozenset(rerun), int(size), work))
    return choices


def random_pass(number: int) -> ForwardPass:
    chance = random.Random(number)
    values = [Value(None, chance.randint(1, 20))]
    operations = []
    for maker in range(chance.randint(1, 8)):
        reads = chance.sample(range(len(values)), min(len(values), chance.randint(1, 2)))
        operations.append(Operation(tuple(reads), chance.choice([0, 1, 5, 50, math.inf])))
        values += [Value(maker, chance.randint(1, 20)) for _ in range(chance.choice([1, 1, 2]))]
    needed = chance.sample(range(len(values)), chance.randint(1, len(values)))
    return ForwardPass(tuple(values), tuple(operations), frozenset(needed))


@pytest.mark.parametrize("number", range(100))
def test_no_choice_is_cheaper(number: int) -> None:
    forward = random_pass(number)
    for price in (0.1, 1.0, 3.0):
        found = cheapest(forward, price)
        best = min(price * choice.kept_bytes + choice.work for choice in every_choice(forward))
        # A byte's price differs by up to a thousandth from tensor to tensor.
        assert price * found.kept_bytes + found.work <= best * 1.002 + 1e-6


@pytest.mark.parametrize("number", range(100))
def test_what_fits_is_found_and_nothing_that_keeps_as_little_works_less(number: int) -> None:
    forward = random_pass(number)
    limit = random.Random(number).randint(1, 60)
    found = keep_within(forward, limit)
    choices = every_choice(forward)
    assert found in choices
    if any(choice.kept_bytes <= limit for choice in choices):
        assert found.kept_bytes <= limit
    as_small = [c.work for c in choices if c.kept_bytes <= found.kept_bytes]
    assert found.work <= min(as_small) * 1.003 + 1e-6


def test_a_chain_of_equal_layers_keeps_as_many_as_fit() -> None:
    """Equal layers have equal prices; still the limit decides, not all or none."""
    layers = 12
    values = [Value(None, 1000), *(Value(layer, 1000) for layer in range(2 * layers))]
    operations = [Operation((layer,), 10 if layer % 2 else 1000) for layer in range(2 * layers)]
    forward = ForwardPass(tuple(values), tuple(operations), frozenset(range(2 * layers + 1)))
    for fitting in range(layers + 1, 2 * layers + 2):
        assert keep_within(forward, 1000 * fitting).kept_bytes == 1000 * fitting


def test_a_value_that_may_not_be_kept_is_made_again() -> None:
    forward = ForwardPass(
        (Value(None, 100), Value(0, math.inf)), (Operation((0,), 7),), frozenset({1})
    )
    choice = keep_within(forward, 1e9)
    assert (choice.kept, choice.rerun, choice.work) == ({0}, {0}, 7)


def test_an_operation_that_reads_a_value_twice_is_like_any_other() -> None:
    forward = ForwardPass((Value(None, 8), Value(0, 100)), (Operation((0, 0), 1),), frozenset({1}))
    assert keep_within(forward, 50).kept == {0}
