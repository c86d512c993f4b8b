"""Routes against tables written by hand, and against a chain of stages that hand on everything."""

from __future__ import annotations

import random

from lingpipe.pipeline.routes import (
    EVERYTHING,
    Demand,
    Goods,
    StageLeaves,
    StageRoutes,
    demand_for,
    find_routes,
)

FIRST = StageLeaves(passed=(None,), makes=(0,), takes=(0,))
MIDDLE = StageLeaves(passed=(None,), reads=(0,), makes=(0,), gives=(0,), takes=(0,))


def test_a_chain_sends_one_leaf_a_boundary_and_one_gradient_back() -> None:
    assert find_routes([FIRST, MIDDLE, MIDDLE]) == (
        StageRoutes((), (Goods(1, (0,)),), (Goods(1, (0,)),), (), 0, 1),
        StageRoutes(
            (Goods(0, (0,)),), (Goods(2, (0,)),), (Goods(2, (0,)),), (Goods(0, (0,)),), 1, 1
        ),
        StageRoutes((Goods(1, (0,)),), (), (), (Goods(1, (0,)),), 1, 1),
    )


def test_one_stage_sends_nothing() -> None:
    assert find_routes([FIRST]) == (StageRoutes((), (), (), (), 0, 1),)


# Leaves are (skip, x). Stages 1 and 2 make x of x and pass skip on; stage 3 reads both.
ALONG = StageLeaves(passed=(0, None), reads=(1,), makes=(1,), gives=(1,), takes=(1,))
U_NET = [
    StageLeaves(passed=(None, None), makes=(0, 1), takes=(0, 1)),
    ALONG,
    ALONG,
    StageLeaves(passed=(None,), reads=(0, 1), makes=(0,), gives=(0, 1), takes=(0,)),
]


def test_a_skipped_leaf_goes_past_the_stages_between() -> None:
    first, second, third, last = find_routes(U_NET)
    assert first.outputs == (Goods(1, (1,)), Goods(3, (0,)))
    assert (second.inputs, second.outputs) == ((Goods(0, (0,)),), (Goods(2, (0,)),))
    assert (third.inputs, third.outputs) == ((Goods(1, (0,)),), (Goods(3, (0,)),))
    assert last.inputs == (Goods(0, (0,)), Goods(2, (1,)))
    # And back.
    assert last.input_gradients == (Goods(0, (0,)), Goods(2, (1,)))
    assert (third.gradients, third.input_gradients) == ((Goods(3, (0,)),), (Goods(1, (0,)),))
    assert (second.gradients, second.input_gradients) == ((Goods(2, (0,)),), (Goods(0, (0,)),))
    assert first.gradients == (Goods(1, (1,)), Goods(3, (0,)))


def test_gradients_of_several_readers_come_in_the_order_of_the_stages() -> None:
    """Stages 1, 2 and 3 read the one leaf of stage 0; stage 1 alone makes another."""
    stages = [
        FIRST,
        StageLeaves(passed=(0, None), reads=(0,), makes=(1,), gives=(0,), takes=(1,)),
        StageLeaves(passed=(0, 1), reads=(0,), gives=(0,)),
        StageLeaves(passed=(None,), reads=(0, 1), makes=(0,), gives=(0, 1), takes=(0,)),
    ]
    routes = find_routes(stages)
    assert routes[0].outputs == (Goods(1, (0,)), Goods(2, (0,)), Goods(3, (0,)))
    assert routes[0].gradients == (Goods(1, (0,)), Goods(2, (0,)), Goods(3, (0,)))
    assert routes[2] == StageRoutes((Goods(0, (0,)),), (), (), (Goods(0, (0,)),), 1, 0)
    assert routes[3].inputs == (Goods(0, (0,)), Goods(1, (1,)))


def test_one_parcel_holds_all_that_one_stage_has_for_another() -> None:
    """Stage 2 reads three leaves of stage 0, one of them at two places, in an order of its own."""
    stages = [
        StageLeaves(passed=(None,) * 3, makes=(0, 1, 2), takes=(0, 2)),
        StageLeaves(passed=(2, 0, 1, 2)),
        StageLeaves(passed=(None,), reads=(0, 1, 2, 3), makes=(0,), gives=(0, 1, 3), takes=(0,)),
    ]
    first, second, third = find_routes(stages)
    assert first.outputs == (Goods(2, (2, 0, 1, 2)),)
    assert third.inputs == (Goods(0, (0, 1, 2, 3)),)
    assert second == StageRoutes((), (), (), (), 0, 0)
    assert third.input_gradients == (Goods(0, (0, 1, 2)),)
    assert first.gradients == (Goods(2, (1, 0, 1)),)


def test_a_gradient_that_is_not_taken_is_not_sent() -> None:
    ids = StageLeaves(passed=(None,), makes=(0,))
    assert find_routes([ids, MIDDLE])[1].input_gradients == ()
    assert find_routes([ids, MIDDLE])[0].gradients == ()


# ------------------------------------------------------------------ what is wanted of a stage


def test_all_outputs_are_wanted_as_long_as_later_stages_are_not_known() -> None:
    assert demand_for([], 0) == Demand(taken=set())
    assert demand_for(U_NET[:1], 1) == Demand(taken={0, 1})
    assert demand_for(U_NET, 3) == Demand(taken={0, 1})
    assert not EVERYTHING.is_less_than(U_NET[0])


def test_a_leaf_is_wanted_if_some_later_stage_reads_it() -> None:
    assert demand_for(U_NET, 0) == Demand(read={0, 1}, given={0, 1}, taken=set())
    assert demand_for(U_NET, 2) == Demand(read={1}, given={1}, taken={0, 1})
    assert not any(demand_for(U_NET, i).is_less_than(U_NET[i]) for i in range(3))


def test_a_leaf_that_nobody_reads_or_gives_a_gradient_for_is_not_wanted() -> None:
    reads_x = StageLeaves(passed=(None,), reads=(1,), makes=(0,), gives=(1,), takes=(0,))
    unread = demand_for([U_NET[0], reads_x], 0)
    assert unread == Demand(read={1}, given={1}, taken=set())
    assert unread.is_less_than(U_NET[0])
    reads_both = StageLeaves(passed=(None,), reads=(0, 1), makes=(0,), gives=(1,), takes=(0,))
    in_vain = demand_for([U_NET[0], reads_both], 0)
    assert in_vain == Demand(read={0, 1}, given={1}, taken=set())
    assert in_vain.is_less_than(U_NET[0])
    assert not in_vain.is_less_than(StageLeaves((None, None), makes=(0, 1), takes=(1,)))


def test_gradients_of_leaves_that_have_none_are_not_asked_for() -> None:
    stages = [StageLeaves((None, None), makes=(0, 1), takes=(1,)), ALONG]
    assert demand_for(stages, 1).taken == {1}
    assert demand_for(stages, 2).taken == {1}


# ------------------------------------------------------------------ held against a chain


def random_stages(chance: random.Random) -> list[StageLeaves]:
    stages, num_inputs = [], 0
    for _ in range(chance.randint(1, 6)):
        sources = [None, None, *range(num_inputs)]
        passed = tuple(chance.choice(sources) for _ in range(chance.randint(1, 4)))
        new = tuple(i for i, source in enumerate(passed) if source is None)
        reads = tuple(i for i in range(num_inputs) if chance.random() < 0.5)
        gives = tuple(i for i in reads if chance.random() < 0.7)
        takes = tuple(i for i in new if chance.random() < 0.7)
        stages.append(StageLeaves(passed, reads, new, gives, takes))
        num_inputs = len(passed)
    return stages


def test_routes_carry_what_a_chain_that_hands_on_everything_would() -> None:
    for number in range(300):
        stages = random_stages(random.Random(number))
        routes = find_routes(stages)
        chain: list[str] = []
        sums: dict[str, list[str]] = {}
        sent: dict[tuple[int, int], list[str]] = {}
        sent_back: dict[tuple[int, int], list[str]] = {}
        for index, (stage, route) in enumerate(zip(stages, routes, strict=True)):
            read = [""] * route.num_inputs
            for sender, places in route.inputs:
                for place, leaf in zip(places, sent.pop((sender, index)), strict=True):
                    read[place] = leaf
            assert read == [chain[i] for i in stage.reads], number
            for position in stage.gives:
                sums.setdefault(chain[position], []).append(f"{index} {position}")
            for receiver, places in route.input_gradients:
                given = [f"{index} {stage.gives[place]}" for place in places]
                sent_back[index, receiver] = given
            made = [f"{index}.{i}" for i in stage.makes]
            for receiver, places in route.outputs:
                sent[index, receiver] = [made[place] for place in places]
            chain = [
                f"{index}.{i}" if source is None else chain[source]
                for i, source in enumerate(stage.passed)
            ]
        assert not sent
        for index, (stage, route) in enumerate(zip(stages, routes, strict=True)):
            totals: list[list[str]] = [[] for _ in range(route.num_gradients)]
            for sender, places in route.gradients:
                for place, gradient in zip(places, sent_back.pop((sender, index)), strict=True):
                    totals[place].append(gradient)
            assert totals == [sums.get(f"{index}.{i}", []) for i in stage.takes], number
        assert not sent_back
