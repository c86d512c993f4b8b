"""Schedules against tables worked out by hand and the published formulas."""

import math
import subprocess
import sys

import pytest

from lingpipe.hyperparams import ParamsError
from lingpipe.learner.schedules import (
    Constant,
    Cosine,
    InverseSquareRoot,
    LearningRateSchedule,
    Piecewise,
)


def test_constant_is_the_same_at_every_step() -> None:
    schedule = Constant.Params(value=0.25).build()
    assert [schedule.learning_rate(step) for step in (1, 2, 10**6)] == [0.25, 0.25, 0.25]


@pytest.mark.parametrize(
    ("step", "rate"),
    [(1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0), (16, 1.0), (64, 0.5), (400, 0.2), (40_000, 0.02)],
)
def test_inverse_square_root_follows_the_hand_made_table(step: int, rate: float) -> None:
    schedule = InverseSquareRoot.Params(peak=2.0, warmup_steps=4).build()
    assert schedule.learning_rate(step) == pytest.approx(rate, rel=1e-15)


def test_inverse_square_root_is_equation_3_of_attention_is_all_you_need() -> None:
    model_dim, warmup_steps = 512, 4000
    peak = 1 / math.sqrt(model_dim * warmup_steps)
    schedule = InverseSquareRoot.Params(peak=peak, warmup_steps=warmup_steps).build()
    for step in (1, 17, 3999, 4000, 4001, 100_000, 10**6):
        published = model_dim**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
        assert schedule.learning_rate(step) == pytest.approx(published, rel=1e-12)


def test_one_warm_up_step_starts_at_the_peak() -> None:
    schedule = InverseSquareRoot.Params(peak=3.0, warmup_steps=1).build()
    assert [schedule.learning_rate(step) for step in (1, 4, 9)] == [3.0, 1.5, 1.0]


@pytest.mark.parametrize(
    ("step", "rate"),
    [(1, 0.5), (2, 1.0), (3, 0.1 + 0.9 * (2 + math.sqrt(2)) / 4), (4, 0.55), (6, 0.1), (99, 0.1)],
)
def test_cosine_follows_the_hand_made_table(step: int, rate: float) -> None:
    params = Cosine.Params(peak=1.0, warmup_steps=2, total_steps=6, floor=0.1)
    assert params.build().learning_rate(step) == pytest.approx(rate, rel=1e-12)


def test_cosine_without_warm_up_starts_just_below_the_peak_and_ends_at_zero() -> None:
    schedule = Cosine.Params(peak=1.0, total_steps=3).build()
    rates = [schedule.learning_rate(step) for step in (1, 2, 3, 4)]
    assert rates == pytest.approx([0.75, 0.25, 0.0, 0.0], abs=1e-15)


def test_piecewise_changes_after_its_boundaries() -> None:
    schedule = Piecewise.Params(boundaries=[2, 4], values=[1.0, 0.1, 0.01]).build()
    rates = [schedule.learning_rate(step) for step in range(1, 7)]
    assert rates == [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]


def test_piecewise_without_boundaries_is_constant() -> None:
    schedule = Piecewise.Params(boundaries=[], values=[0.5]).build()
    assert schedule.learning_rate(10**6) == 0.5


@pytest.mark.parametrize("step", [0, -1])
def test_updates_count_from_one(step: int) -> None:
    with pytest.raises(ValueError, match=rf"step \({step}\) must be at least 1: updates count"):
        Constant.Params(value=0.1).build().learning_rate(step)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (Constant.Params(value=-0.1), r"value \(-0.1\) must be a finite number, zero or more"),
        (Constant.Params(value=math.nan), r"value \(nan\) must be a finite number"),
        (
            InverseSquareRoot.Params(peak=1.0, warmup_steps=0),
            r"warmup_steps \(0\) must be at least 1.*Use 1 to start at the peak",
        ),
        (
            InverseSquareRoot.Params(peak=math.inf, warmup_steps=1),
            r"peak \(inf\) must be a finite number",
        ),
        (
            Cosine.Params(peak=1.0, warmup_steps=-3, total_steps=10),
            r"warmup_steps \(-3\) must not be negative; use 0",
        ),
        (
            Cosine.Params(peak=1.0, warmup_steps=10, total_steps=10),
            r"total_steps \(10\) must be greater than warmup_steps \(10\)",
        ),
        (
            Cosine.Params(peak=1.0, total_steps=10, floor=2.0),
            r"floor \(2.0\) must not be above peak \(1.0\)",
        ),
        (
            Piecewise.Params(boundaries=[3, 3], values=[1.0, 1.0, 1.0]),
            r"boundaries \(\[3, 3\]\) must increase, from 1 or more",
        ),
        (Piecewise.Params(boundaries=[0], values=[1.0, 1.0]), r"boundaries \(\[0\]\) must inc"),
        (
            Piecewise.Params(boundaries=[3], values=[1.0]),
            r"values \(1 of them\) must be one more than boundaries \(1\)",
        ),
        (
            Piecewise.Params(boundaries=[3], values=[1.0, -2.0]),
            r"values\[1\] \(-2.0\) must be a finite number",
        ),
    ],
)
def test_inconsistent_params_are_refused_with_their_values(
    params: LearningRateSchedule.Params, words: str
) -> None:
    with pytest.raises(ParamsError, match=words):
        params.build()
    with pytest.raises(ParamsError, match=words):
        params.validate()


def test_schedules_need_no_tensorflow() -> None:
    code = "import sys, lingpipe.learner.schedules; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_cosine_without_a_length_takes_that_of_the_run() -> None:
    params = Cosine.Params(peak=1.0, warmup_steps=2)
    assert params.for_run(6) == Cosine.Params(peak=1.0, warmup_steps=2, total_steps=6)
    assert params.copy(total_steps=4).for_run(6).total_steps == 4
    # A run that ends within the warm-up only climbs.
    assert params.copy(warmup_steps=10).for_run(3).build().learning_rate(3) == 0.3
    with pytest.raises(ValueError, match="total_steps is None; set it"):
        params.build().learning_rate(1)


def test_other_schedules_do_not_depend_on_the_length_of_the_run() -> None:
    params = Constant.Params(value=0.5)
    assert params.for_run(6) is params
