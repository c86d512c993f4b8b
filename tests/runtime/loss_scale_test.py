"""A run in float16: what it writes, that it goes on bit for bit, and that others may go on with it.

The scale doubles after every four good steps here, so that it grows, overflows and falls in twenty.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.__main__ import main
from lingpipe.learner.loss_scale import LossScale
from lingpipe.runtime.checkpoint import CheckpointStore
from tests.micro_run import WORDS, rows, train_arguments

SETTINGS: Mapping[str, object] = {
    "train__dtype": "float16",
    "train__evaluate_every_steps": 10,
    "train__checkpoint_every_steps": 5,
    "train__keep_last_checkpoints": 9,
    "learner__loss_scale__growth_steps": 4,
    "pipeline__remat": "layer",
}


def train(corpus: Path, logdir: Path, **changes: object) -> int:
    return main(train_arguments(corpus, logdir, **{**SETTINGS, "max_steps": 20, **changes}))


def saved(logdir: Path, step: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Every tensor of a checkpoint, and its state."""
    state = CheckpointStore(logdir / "checkpoints").read_state(step)
    reader = tf.train.load_checkpoint(str(state.bundle))
    return {name: reader.get_tensor(name) for name in state.tensors}, state.state


@pytest.fixture(scope="module")
def corpus(micro_run: Path) -> Path:
    return micro_run.parent / "corpus"


@pytest.fixture(scope="module")
def half_run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty steps without a stop."""
    logdir = tmp_path_factory.mktemp("half") / "run"
    assert train(corpus, logdir) == 0
    return logdir


def test_a_row_tells_the_loss_scale_and_a_skipped_step_has_no_gradient_norm(half_run: Path) -> None:
    found = rows(half_run / "metrics.jsonl")
    skipped = [row for row in found if row["grad_norm"] is None]
    assert 0 < len(skipped) < 10
    assert all(row["non_finite"] == ["grad_norm"] for row in skipped)
    assert all(row["loss"] > 0 for row in found)
    loss_scale = LossScale.Params(growth_steps=4).build()
    state = loss_scale.start()
    for row in found:
        assert row["loss_scale"] == state.scale
        after = loss_scale.after_overflow if row in skipped else loss_scale.after_good_step
        state = after(state)
        if row["step"] % 5 == 0:
            assert saved(half_run, row["step"])[1]["loss_scale"] == state.to_record()


def test_ten_steps_and_ten_more_are_twenty_bit_for_bit(
    corpus: Path, half_run: Path, tmp_path: Path
) -> None:
    assert train(corpus, tmp_path / "run", max_steps=10) == 0
    assert train(corpus, tmp_path / "run") == 0
    (mine, my_state), (theirs, their_state) = saved(tmp_path / "run", 20), saved(half_run, 20)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name, strict=True)
    assert my_state == their_state
    assert {"cursor", "loss_scale"} == my_state.keys()
    both = (rows(path / "metrics.jsonl") for path in (tmp_path / "run", half_run))
    for mine_row, their_row in zip(*both, strict=True):
        assert [mine_row[key] for key in ("loss", "grad_norm", "loss_scale")] == [
            their_row[key] for key in ("loss", "grad_norm", "loss_scale")
        ]


def test_each_skipped_step_is_told_in_one_line(
    corpus: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    changes = {"learner__loss_scale__initial": 2.0**20, "learner__loss_scale__smallest": 2.0**19}
    assert train(corpus, tmp_path / "run", **changes) == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if "step 1" in line.lower()]
    assert lines == [
        "step 1: the gradient overflowed float16, no weight was moved; the loss scale falls from "
        "1,048,576 to 524,288."
    ]


def test_a_run_goes_on_in_another_dtype_and_back(
    corpus: Path, half_run: Path, tmp_path: Path
) -> None:
    logdir = tmp_path / "run"
    shutil.copytree(half_run, logdir)
    assert train(corpus, logdir, train__dtype="bfloat16", max_steps=21) == 0
    assert "loss_scale" not in saved(logdir, 21)[1]
    assert train(corpus, logdir, max_steps=22) == 0
    last = rows(logdir / "metrics.jsonl")[-2:]
    assert "loss_scale" not in last[0]
    assert last[1]["loss_scale"] == 2.0**15, "there was no state to go on from"


def test_the_run_is_evaluated_and_decodes(
    half_run: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["evaluate", f"--logdir={half_run}", "--split=test"]) == 0
    (scored,) = [row for row in rows(half_run / "eval.jsonl") if row["split"] == "test"]
    assert "non_finite" not in scored
    for beam in (1, 4):
        text = "\n".join([*WORDS["en"], ""]).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        capfdbinary.readouterr()
        arguments = [f"--logdir={half_run}", "--to=de", f"--beam_size={beam}", "--with_scores"]
        assert main(["decode", *arguments]) == 0
        lines = capfdbinary.readouterr().out.decode().splitlines()
        assert len(lines) == 10
        assert all(-1000 < float(line.partition("\t")[0]) <= 0 for line in lines)
