"""Rows and curves of a run: valid JSON, whole lines, and every step once after a resume."""

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.errors import UserError
from lingpipe.runtime.summaries import MetricsLog


def rows(path: Path) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    lines = path.read_text().splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def steps(path: Path) -> list[int]:
    return [row["step"] for row in rows(path)]


def events(folder: Path) -> Iterator[tf.compat.v1.Event]:
    for path in sorted(folder.iterdir()):
        for record in tf.data.TFRecordDataset(str(path)):
            yield tf.compat.v1.Event.FromString(record.numpy())


def curve(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [
        (event.step, value.simple_value)
        for event in events(folder)
        for value in event.summary.value
        if value.tag == tag
    ]


def test_each_logged_step_is_one_line_of_json(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        log.log_training(10, {"loss": 2.5, "tokens": 1234, "note": "warm"})
        assert rows(tmp_path / "metrics.jsonl") == [
            {"step": 10, "loss": 2.5, "tokens": 1234, "note": "warm"}
        ]
        log.log_training(20, {"loss": np.float32(1.5), "grad_norm": tf.constant(0.25)})
        log.log_evaluation(20, {"split": "dev", "loss": 3})
    assert rows(tmp_path / "metrics.jsonl")[1] == {"step": 20, "loss": 1.5, "grad_norm": 0.25}
    assert rows(tmp_path / "eval.jsonl") == [{"step": 20, "split": "dev", "loss": 3}]


def test_numbers_that_are_not_finite_become_null_and_are_listed(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        log.log_training(
            1, {"loss": float("nan"), "norm": np.float64("inf"), "rate": 0.5, "split": None}
        )
    assert rows(tmp_path / "metrics.jsonl") == [
        {"step": 1, "loss": None, "norm": None, "rate": 0.5, "split": None}
        | {"non_finite": ["loss", "norm"]}
    ]


def test_a_value_that_is_no_figure_is_refused(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log, pytest.raises(TypeError, match=r"must be a number, a text"):
        log.log_training(1, {"loss": object()})
    assert rows(tmp_path / "metrics.jsonl") == []


def test_floats_come_back_to_the_bit(tmp_path: Path) -> None:
    values = {"a": 0.1, "b": 1 / 3, "c": 1e-308, "d": float(np.float32(0.1))}
    with MetricsLog(tmp_path) as log:
        log.log_training(1, values)
    assert rows(tmp_path / "metrics.jsonl") == [{"step": 1, **values}]


def test_text_with_line_breaks_stays_one_line(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        log.log_training(1, {"note": "a\nb\u2028c\r\x85é"})
    assert (tmp_path / "metrics.jsonl").read_bytes().count(b"\n") == 1
    assert rows(tmp_path / "metrics.jsonl")[0]["note"] == "a\nb\u2028c\r\x85é"


def write_run(folder: Path, resume_step: int | None, last: int) -> None:
    with MetricsLog(folder, resume_step) as log:
        for step in range((resume_step or 0) + 1, last + 1):
            log.log_training(step, {"loss": float(step)})
            if step % 2 == 0:
                log.log_evaluation(step, {"loss": float(step)})


def test_a_resumed_run_tells_every_step_once(tmp_path: Path) -> None:
    write_run(tmp_path, resume_step=0, last=7)
    write_run(tmp_path, resume_step=4, last=9)
    assert steps(tmp_path / "metrics.jsonl") == list(range(1, 10))
    assert steps(tmp_path / "eval.jsonl") == [2, 4, 6, 8]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_new_run_takes_back_what_one_without_a_checkpoint_wrote(tmp_path: Path) -> None:
    write_run(tmp_path, resume_step=0, last=3)
    write_run(tmp_path, resume_step=0, last=2)
    assert steps(tmp_path / "metrics.jsonl") == [1, 2]


def test_without_a_step_to_resume_from_all_rows_stay(tmp_path: Path) -> None:
    write_run(tmp_path, resume_step=None, last=3)
    with MetricsLog(tmp_path) as log:
        log.log_evaluation(2, {"split": "test"})
    assert steps(tmp_path / "metrics.jsonl") == [1, 2, 3]
    assert steps(tmp_path / "eval.jsonl") == [2, 2]


@pytest.mark.parametrize("rest", ['{"step": 3, "lo', '{"step": 3}', "\x00\x00", '{"step"\n'])
def test_a_line_that_a_killed_process_left_unfinished_is_taken_back(
    tmp_path: Path, rest: str
) -> None:
    write_run(tmp_path, resume_step=0, last=2)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(rest)
    write_run(tmp_path, resume_step=2, last=3)
    assert steps(tmp_path / "metrics.jsonl") == [1, 2, 3]


def test_curves_go_to_tensorboard(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        log.log_training(10, {"loss": 2.5, "note": "x", "done": True, "tokens": 3})
        log.log_training(20, {"loss": float("inf")})
        log.log_evaluation(20, {"loss": 3.0})
    train = tmp_path / "tensorboard" / "train"
    assert curve(train, "loss") == [(10, 2.5), (20, float("inf"))]
    assert curve(train, "tokens") == [(10, 3.0)]
    assert curve(train, "note") == curve(train, "done") == []
    assert curve(tmp_path / "tensorboard" / "dev", "loss") == [(20, 3.0)]
    assert next(iter(events(train))).file_version == "brain.Event:2"


def test_tensorboard_is_told_where_a_resumed_run_starts(tmp_path: Path) -> None:
    write_run(tmp_path, resume_step=0, last=5)
    write_run(tmp_path, resume_step=3, last=6)
    start = tf.compat.v1.SessionLog.START
    starts = [
        event.step
        for event in events(tmp_path / "tensorboard" / "train")
        if event.session_log.status == start
    ]
    assert starts == [1, 4]


def test_a_run_without_evaluations_has_no_curves_of_them(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        log.log_training(1, {"loss": 1.0})
    assert not (tmp_path / "tensorboard" / "dev").exists()


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with MetricsLog(tmp_path) as log:
        log.log_training(1, {"loss": 1.0})
        resource.setrlimit(resource.RLIMIT_FSIZE, (30, hard))
        try:
            for step in (2, 3):
                with pytest.raises(UserError, match=r"Cannot write .*metrics.jsonl: no space is"):
                    log.log_training(step, {"loss": 1.0})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with MetricsLog(tmp_path, resume_step=1):
        pass
    assert steps(tmp_path / "metrics.jsonl") == [1]


@pytest.mark.parametrize("name", ["run", "run/metrics.jsonl", "run/tensorboard"])
def test_a_path_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    if name == "run/metrics.jsonl":
        (tmp_path / name).mkdir(parents=True)
    else:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    with pytest.raises(UserError, match=rf"Cannot write .*{name}"):
        MetricsLog(tmp_path / "run").log_training(1, {"loss": 1.0})
    assert os.path.exists(tmp_path / name)
