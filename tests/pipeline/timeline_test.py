"""Where the time of a step went: parts worked out by hand, and traces that viewers open."""

import json
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from lingpipe.pipeline.timeline import (
    RecordedSpan,
    RecordedStep,
    Split,
    chrome_trace,
    format_split,
    split_step,
)


def span(word: str, device: int, start: float, end: float, transfer: float = 0.0) -> RecordedSpan:
    """F1 is the forward pass of micro-batch 1; any other word is a phase of no micro-batch."""
    phases = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}
    if word[0] in phases:
        return RecordedSpan(phases[word[0]], device, device, int(word[1:]), start, end, transfer)
    return RecordedSpan(word, device, device, None, start, end, transfer)


# F0 F1 .  .  B0 B0 B1 B1 | update
# .  F0 B0 B0 F1 B1 .  .  | update
BY_HAND = RecordedStep(
    devices=("/CPU:0", "/CPU:1"),
    spans=(
        span("F0", 0, 0, 1),
        span("F1", 0, 1, 2),
        span("B0", 0, 4, 6, transfer=0.5),
        span("B1", 0, 6, 8),
        span("F0", 1, 1, 2, transfer=0.25),
        span("B0", 1, 2, 4),
        span("F1", 1, 4, 5),
        span("B1", 1, 5, 6),
        span("update", 0, 8, 9),
        span("update", 1, 8, 9.5),
    ),
    seconds=10,
)


def test_the_parts_are_those_worked_out_by_hand() -> None:
    assert split_step(BY_HAND) == Split(
        step_seconds=10,
        num_devices=2,
        compute=6 + 5 - 0.75,
        recompute=0,
        transfer=0.75,
        update=2 * (10 - 8),
        imbalance=6 - 5,
        bubble=2 * (8 - 6),
    )


def test_recomputation_is_taken_from_the_backward_passes_of_its_stage() -> None:
    split = split_step(BY_HAND, [0.25, 0.0])
    assert split.recompute == 0.25 * (1.5 + 2)
    assert split.compute == 6 + 5 - 0.75 - split.recompute


def test_both_halves_of_a_cut_backward_pass_count() -> None:
    spans = (span("F0", 0, 0, 1), span("I0", 0, 1, 3), span("W0", 0, 3, 4))
    split = split_step(RecordedStep(("/CPU:0",), spans, 4), [0.5])
    assert (split.compute, split.recompute, split.update, split.bubble) == (2.5, 1.5, 0, 0)


def test_casts_of_weights_are_computation_and_no_recomputation() -> None:
    step = RecordedStep(("/CPU:0",), (span("casts", 0, 0, 1), span("F0", 0, 1, 2)), 2)
    assert split_step(step, [0.5]).parts() == split_step(step).parts()
    assert split_step(step).compute == 2


def test_a_wait_before_the_first_action_is_bubble() -> None:
    split = split_step(RecordedStep(("/CPU:0",), (span("F0", 0, 3, 4),), 4))
    assert (split.bubble, split.compute, split.update) == (3, 1, 0)


def test_a_step_in_which_nothing_was_done_has_no_parts() -> None:
    assert set(split_step(RecordedStep(("/CPU:0",), (), 0)).shares().values()) == {0.0}


@strategies.composite
def steps(draw: Any) -> tuple[RecordedStep, list[float]]:
    """Whole seconds, so that sums are exact; spans of a device follow each other."""
    numbers = strategies.integers(0, 20)
    words = strategies.sampled_from(["F0", "B0", "I0", "W0", "casts", "norm", "update", "copy"])
    devices = draw(strategies.integers(1, 4))
    spans, end = [], 0
    for device in range(devices):
        time = 0
        for word in draw(strategies.lists(words, max_size=6)):
            start = time + draw(numbers)
            time = start + draw(numbers)
            transfer = draw(strategies.integers(0, time - start))
            spans.append(span(word, device, start, time, transfer))
        end = max(end, time)
    shares = [draw(strategies.sampled_from([0.0, 0.25, 0.5, 1.0])) for _ in range(devices)]
    names = tuple(f"/CPU:{device}" for device in range(devices))
    return RecordedStep(names, tuple(spans), end + draw(numbers)), shares


@hypothesis.given(steps())
def test_the_parts_add_up_to_the_time_of_all_devices_and_none_is_negative(
    drawn: tuple[RecordedStep, list[float]],
) -> None:
    step, shares = drawn
    parts = split_step(step, shares).parts()
    assert sum(parts.values()) == len(step.devices) * step.seconds
    assert min(parts.values()) >= 0


def test_the_table_has_a_row_a_part_and_ends_with_the_step() -> None:
    lines = format_split(split_step(BY_HAND, [0.25, 0.0])).splitlines()
    names = ["compute", "recompute", "transfer", "update", "imbalance", "bubble", "step"]
    assert [line.split()[0] for line in lines] == names
    assert lines[0].startswith("compute      4.6875 s   46.9%  forward and backward passes")
    assert lines[-1].startswith("step        10.0000 s  100.0%  on 2 devices, on average")


def test_a_trace_names_rows_and_actions_and_counts_microseconds() -> None:
    trace = chrome_trace(BY_HAND, split_step(BY_HAND))
    assert json.loads(json.dumps(trace)) == trace
    rows = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert rows == ["device 0: /CPU:0", "device 1: /CPU:1"]
    (event,) = [e for e in trace["traceEvents"] if e["name"] == "B1 stage 1"]
    assert event == {
        "name": "B1 stage 1",
        "cat": "backward",
        "ph": "X",
        "ts": 5e6,
        "dur": 1e6,
        "pid": 0,
        "tid": 1,
        "args": {"phase": "backward", "stage": 1, "micro_batch": 1},
    }
    assert trace["otherData"]["step_seconds"] == 10


def test_a_transfer_lies_at_the_start_of_its_action_in_the_trace() -> None:
    events = chrome_trace(BY_HAND, split_step(BY_HAND))["traceEvents"]
    transfers = [(e["tid"], e["ts"], e["dur"]) for e in events if e["name"] == "transfer"]
    assert transfers == [(0, 4e6, 0.5e6), (1, 1e6, 0.25e6)]


@pytest.mark.parametrize(("word", "name"), [("W3", "W3 stage 1"), ("update", "update stage 1")])
def test_spans_have_names_for_people(word: str, name: str) -> None:
    assert span(word, 1, 0, 1).name == name
