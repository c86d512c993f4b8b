"""The promise, tried at random: any cells, cut anyhow, give the gradients of one device.

Two hundred cases run with every test. More, of other numbers:

    RANDOM_PIPELINES=1000:3000 pytest -n 2 tests/pipeline/random_pipelines_test.py
"""

import os

import pytest

from tests.pipeline.random_pipelines import check_case, make_case

BLOCK = 10  # Cases of one test.
FIRST, LAST = (int(end) for end in os.environ.get("RANDOM_PIPELINES", "0:200").split(":"))


@pytest.mark.parametrize("start", range(FIRST, LAST, BLOCK))
def test_random_cells_and_settings_give_the_gradients_of_one_device(start: int) -> None:
    for number in range(start, min(start + BLOCK, LAST)):
        check_case(number)


def test_the_cases_reach_every_corner() -> None:
    cases = [make_case(number) for number in range(200)]
    settings = [case.setting for case in cases]
    assert {s["schedule"] for s in settings} == {"gpipe", "1f1b", "zb_h1", "interleaved"}
    assert {s["remat"] for s in settings} == {"none", "layer", "stage"}
    assert {s["num_stages"] for s in settings} == {1, 2, 3, 4}
    assert {s["stages_per_device"] for s in settings} == {1, 2}
    kinds = {name.partition("_")[0] for case in cases for name in case.cells}
    assert {"tied", "twice", "attend", "look", "keep", "add", "turn", "dropout"} < kinds
    sizes = [len(case.batch["x"]) for case in cases]
    assert any(size < s["num_micro_batches"] for size, s in zip(sizes, settings, strict=True))
