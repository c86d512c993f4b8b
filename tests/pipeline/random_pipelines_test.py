"""The promise, tried at random: any cells, cut anyhow, learn what one device learns.

Two hundred cases run with every test. More, of other numbers:

    RANDOM_PIPELINES=1000:3000 pytest -n 2 tests/pipeline/random_pipelines_test.py
"""

import os

import pytest

from tests.pipeline.plain_optimizers import OPTIMIZERS
from tests.pipeline.random_pipelines import Case, check_case, make_case

BLOCK = 10  # Cases of one test.
FIRST, LAST = (int(end) for end in os.environ.get("RANDOM_PIPELINES", "0:200").split(":"))


@pytest.mark.parametrize("start", range(FIRST, LAST, BLOCK))
def test_random_cells_and_settings_learn_what_one_device_learns(start: int) -> None:
    for number in range(start, min(start + BLOCK, LAST)):
        check_case(number)


SCHEDULES = {"gpipe", "1f1b", "zb_h1", "interleaved"}
CASES = [make_case(number) for number in range(200)]


def test_the_cases_reach_every_setting() -> None:
    settings = [case.setting for case in CASES]
    assert {s["schedule"] for s in settings} == SCHEDULES
    assert {s["remat"] for s in settings} == {"none", "layer", "stage", "auto"}
    assert {s["num_stages"] for s in settings} == {1, 2, 3, 4}
    assert {s["stages_per_device"] for s in settings} == {1, 2}
    assert any(len(batch["x"]) < case.num_slices for case in CASES for batch in case.batches)
    # Replicas under every schedule and with every share of the weights, some without an example.
    replicated = [case for case in CASES if case.setting["num_replicas"] > 1]
    assert {case.setting["num_replicas"] for case in replicated} == {2, 3}
    assert {case.setting["schedule"] for case in replicated} == SCHEDULES
    assert {case.setting["shards_optimizer"] for case in replicated} == {True, False}
    assert {case.setting["num_stages"] for case in replicated} == {1, 2, 3, 4}
    assert any(
        len(batch["x"]) < case.setting["num_replicas"]
        for case in replicated
        for batch in case.batches
    )


def test_the_cases_reach_every_kind_of_cell() -> None:
    kinds = {name.partition("_")[0] for case in CASES for name in case.cells}
    assert kinds > {"tied", "twice", "attend", "look", "keep", "add", "turn", "dropout", "plain"}
    # State moves under every schedule and every rematerialisation, also in cases that go on.
    normalised = [case for case in CASES if case.num_reference_slices > 1]
    assert {case.setting["schedule"] for case in normalised} == SCHEDULES
    assert {case.setting["remat"] for case in normalised} == {"none", "layer", "stage", "auto"}
    assert any(len(case.batches) > 1 for case in normalised)
    assert "frozen" in kinds
    # Models without any weight, with frozen weights alone, with some of both.
    learning = [{weight.trainable for weight in all_weights(case)} for case in CASES]
    assert all(kind in learning for kind in (set(), {False}, {True}, {True, False}))


def all_weights(case: Case) -> list:
    return [w for name, cell in case.cells.items() for w in cell.all_weights(name).values()]


def test_a_third_of_the_cases_goes_on_with_other_batches() -> None:
    longer = [case for case in CASES if len(case.batches) == 2]
    assert len(longer) == 67
    shapes = [[batch["x"].shape for batch in (*c.batches, c.evaluated)] for c in longer]
    # Numbers of examples, and lengths, that grow, shrink and stay, between steps and evaluations.
    for axis in (0, 1):
        for other in (1, 2):
            signs = {(s[other][axis] > s[0][axis]) - (s[other][axis] < s[0][axis]) for s in shapes}
            assert signs == {-1, 0, 1}
    assert {type(case.optimizer) for case in longer} == set(OPTIMIZERS)
    assert {"signature" in case.setting for case in longer} == {True, False}
    assert {case.setting["schedule"] for case in longer} == SCHEDULES
