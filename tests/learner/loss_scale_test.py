"""The loss scale against tables worked out by hand."""

import json

import pytest

from lingpipe.hyperparams import ParamsError
from lingpipe.learner.loss_scale import LossScale, LossScaleState


def make(**values: float) -> LossScale:
    return LossScale.Params(**values).build()


def scales(loss_scale: LossScale, steps: str) -> list[float | None]:
    """The scale before the first and after each step: "." is a good one, "x" an overflow."""
    state: LossScaleState | None = loss_scale.start()
    found = [state.scale if state else None]
    for step in steps:
        assert state is not None
        after = loss_scale.after_overflow if step == "x" else loss_scale.after_good_step
        state = after(state)
        found.append(state.scale if state else None)
    return found


@pytest.mark.parametrize(
    ("steps", "table"),
    [
        ("......", [8, 8, 8, 16, 16, 16, 32]),  # Doubled after three good steps in a row.
        ("xx", [8, 4, 2]),  # Halved at once.
        ("..x...", [8, 8, 8, 4, 4, 4, 8]),  # An overflow starts the count anew,
        ("...x..x", [8, 8, 8, 16, 8, 8, 8, 4]),  # and so does a doubling.
        ("xxxx", [8, 4, 2, 1, None]),  # Nothing is left below the smallest.
        ("............", [8, 8, 8, 16, 16, 16, 32, 32, 32, 32, 32, 32, 32]),  # Nor above.
        ("............x", [8, 8, 8, 16, 16, 16, 32, 32, 32, 32, 32, 32, 32, 16]),
    ],
)
def test_the_scale_follows_the_hand_made_table(steps: str, table: list[float | None]) -> None:
    assert scales(make(initial=8.0, growth_steps=3, largest=32.0), steps) == table


def test_the_defaults_are_those_of_the_documents() -> None:
    loss_scale = make()
    assert loss_scale.start() == LossScaleState(2.0**15, 0)
    state = loss_scale.start()
    for _ in range(1999):
        state = loss_scale.after_good_step(state)
    assert state == LossScaleState(2.0**15, 1999)
    assert loss_scale.after_good_step(state) == LossScaleState(2.0**16, 0)
    assert loss_scale.after_good_step(LossScaleState(2.0**24, 1999)) == LossScaleState(2.0**24, 0)
    assert loss_scale.after_overflow(LossScaleState(1.0, 7)) is None


def test_equal_limits_make_a_scale_that_never_moves() -> None:
    fixed = make(initial=64.0, smallest=64.0, largest=64.0, growth_steps=1)
    assert scales(fixed, "....x") == [64.0] * 5 + [None]


def test_no_state_is_changed_by_asking_for_the_next() -> None:
    loss_scale = make(growth_steps=1)
    state = loss_scale.start()
    assert loss_scale.after_good_step(state) == loss_scale.after_good_step(state)
    assert loss_scale.after_overflow(state) == loss_scale.after_overflow(state)
    assert state == loss_scale.start()


def test_a_state_goes_through_json_and_on() -> None:
    loss_scale = make(initial=8.0, growth_steps=3)
    state = loss_scale.after_good_step(LossScaleState(4.0))
    record = json.loads(json.dumps(state.to_record()))
    assert record == {"scale": 4.0, "good_steps": 1}
    assert loss_scale.restored(record) == state


def test_a_run_without_a_record_starts_anew_and_limits_hold_for_one_that_has() -> None:
    loss_scale = make(initial=8.0, smallest=2.0, largest=16.0)
    assert loss_scale.restored(None) == LossScaleState(8.0)
    assert loss_scale.restored({"scale": 1024.0, "good_steps": 5}) == LossScaleState(16.0, 5)
    assert loss_scale.restored({"scale": 0.5, "good_steps": 5}) == LossScaleState(2.0, 5)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"initial": 1000.0}, r"initial \(1000\.0\) must be a power of two"),
        ({"smallest": 0.0}, r"smallest \(0\.0\) must be a power of two"),
        ({"largest": -4.0}, r"largest \(-4\.0\) must be a power of two"),
        ({"largest": 2.0**61}, r"largest \(.*\) must be a power of two of at most 2\*\*60"),
        ({"initial": float("nan")}, r"initial \(nan\) must be a power of two"),
        ({"initial": 2.0**25}, r"initial \(33554432\.0\) must lie between smallest \(1\.0\) and"),
        ({"initial": 0.5}, r"initial \(0\.5\) must lie between smallest \(1\.0\) and largest"),
        ({"growth_steps": 0}, r"growth_steps \(0\) must be at least 1; .* set largest to initial"),
    ],
)
def test_scales_that_make_no_sense_are_refused(values: dict[str, float], words: str) -> None:
    with pytest.raises(ParamsError, match=words):
        make(**values)
