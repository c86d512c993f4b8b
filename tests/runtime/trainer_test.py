"""A run: what it writes, and that stopping and resuming it changes nothing, however it stops."""

import json
import math
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.__main__ import main
from lingpipe.learner.optimizers import Adam
from lingpipe.pipeline.builder import Pipeline
from lingpipe.runtime.checkpoint import CheckpointStore
from lingpipe.runtime.run_directory import RunDirectory
from lingpipe.runtime.trainer import checkpoint_tensors
from lingpipe.task.experiment import Experiment
from tests.micro_run import command, environment, lingpipe, rows, train_arguments
from tests.pipeline.small_models import dense_batch, make_learner, make_pipeline, normalised_cells

Row = dict[str, Any]
# What depends on the machine's mood.
TIMES = ("step_seconds", "tokens_per_second", "examples_per_second")


@pytest.fixture(scope="session")
def corpus(micro_run: Path) -> Path:
    return micro_run.parent / "corpus"


def saved(logdir: Path, step: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Every tensor of a checkpoint, optimiser slots too, and its state: the data cursor."""
    state = CheckpointStore(logdir / "checkpoints").read_state(step)
    reader = tf.train.load_checkpoint(str(state.bundle))
    return {name: reader.get_tensor(name) for name in state.tensors}, state.state


def assert_same_checkpoint(first: Path, second: Path, step: int) -> None:
    """Bit for bit."""
    (mine, my_state), (theirs, their_state) = saved(first, step), saved(second, step)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name, strict=True)
    assert my_state == their_state


def timeless(path: Path) -> list[Row]:
    """The rows of a file, without what depends on the clock."""
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows(path)]


def assert_same_run(first: Path, second: Path) -> None:
    """Bit for bit, and row by row."""
    assert_same_checkpoint(first, second, 200)
    for name in ("metrics.jsonl", "eval.jsonl"):
        assert timeless(first / name) == timeless(second / name)


def with_copy(logdir: Path, folder: Path) -> Path:
    """A copy of a run directory, to go on with."""
    shutil.copytree(logdir, folder / "run")
    return folder / "run"


# -- What a run leaves ----------------------------------------------------------------------------


def test_a_run_directory_holds_all_that_is_promised(micro_run: Path) -> None:
    files = {str(path.relative_to(micro_run)) for path in micro_run.rglob("*") if path.is_file()}
    assert {"params.txt", "plan.txt", "metrics.jsonl", "eval.jsonl"} < files
    assert {"vocab/spm.model", "vocab/languages.json"} < files
    assert any(name.startswith("tensorboard/train/events") for name in files)
    assert any(name.startswith("tensorboard/dev/events") for name in files)
    assert not [name for name in files if "/." in f"/{name}"], "nothing temporary is left"


def test_a_row_a_logged_step_has_every_figure(micro_run: Path) -> None:
    found = rows(micro_run / "metrics.jsonl")
    assert [row["step"] for row in found] == list(range(1, 201))
    figures = {"loss", "perplexity", "accuracy", "grad_norm", "learning_rate", *TIMES}
    for row in found:
        assert row.keys() == {"step", *figures}
        assert all(math.isfinite(row[name]) and row[name] >= 0 for name in figures)


def test_the_loss_falls(micro_run: Path) -> None:
    losses = [row["loss"] for row in rows(micro_run / "metrics.jsonl")]
    assert np.mean(losses[-20:]) < 0.6 * np.mean(losses[:5])
    dev = [row["loss"] for row in rows(micro_run / "eval.jsonl")]
    assert dev[-1] < 0.8 * dev[0]


def test_the_dev_split_is_scored_on_time(micro_run: Path) -> None:
    found = rows(micro_run / "eval.jsonl")
    assert [(row["step"], row["split"]) for row in found] == [
        (s, "dev") for s in range(25, 201, 25)
    ]
    assert all(row.keys() == {"step", "split", "loss", "perplexity", "accuracy"} for row in found)


def test_the_params_file_is_the_experiment(micro_run: Path) -> None:
    text = (micro_run / "params.txt").read_text()
    experiment = Experiment.Params.from_text(text)
    assert experiment.to_text() == text
    assert experiment.pipeline.num_stages == 2
    assert experiment.train.max_steps == 200


def test_the_plan_file_is_the_table_of_stages(micro_run: Path) -> None:
    lines = (micro_run / "plan.txt").read_text().splitlines()
    assert lines[0].split()[:4] == ["stage", "cells", "device", "weights"]
    assert "source_embedding" in lines[1] and "/CPU:0" in lines[1]
    assert "softmax" in lines[2] and "/CPU:1" in lines[2]


def test_the_plan_file_tells_what_was_chosen_to_be_kept(corpus: Path, tmp_path: Path) -> None:
    """With room for all, and with room for some two thirds."""
    auto: dict[str, object] = {"pipeline__remat": "auto", "max_steps": 2}
    lines = {}
    for name, memory in (("all", "1GiB"), ("some", "850KiB")):
        changes = {**auto, "pipeline__device_memory": memory}
        assert main(train_arguments(corpus, tmp_path / name, **changes)) == 0
        lines[name] = (tmp_path / name / "plan.txt").read_text().splitlines()
    assert lines["all"][-1].startswith("stage 0 keeps ")
    assert lines["all"][-1].endswith("0.0% of its forward pass is computed again")
    share = re.search(r": (\d+\.\d)% of its forward pass is computed again \(", lines["some"][-1])
    assert share
    assert 0 < float(share[1]) < 100


def test_keep_n_keeps_n_and_the_best(micro_run: Path) -> None:
    dev = {row["step"]: row["loss"] for row in rows(micro_run / "eval.jsonl")}
    best = min((50, 100, 150, 200), key=dev.__getitem__)
    store = CheckpointStore(micro_run / "checkpoints")
    assert store.steps() == sorted({best, 150, 200})
    assert store.best() == best
    assert store.read_state("last").metric == dev[200]


# -- Going on -------------------------------------------------------------------------------------


def test_a_run_in_two_processes_equals_one_in_one(
    corpus: Path, micro_run: Path, tmp_path: Path
) -> None:
    logdir = tmp_path / "run"
    assert main(train_arguments(corpus, logdir, max_steps=75)) == 0
    done = lingpipe(*train_arguments(corpus, logdir))  # In a new process.
    assert done.returncode == 0, done.stderr.decode()
    assert f"Going on from step 75 in {logdir}." in done.stderr.decode()
    assert_same_run(logdir, micro_run)


def _interrupted(logdir: Path, arguments: list[str], number: signal.Signals) -> tuple[int, str]:
    """Sends a signal to a trainer in another process once it has made three more steps."""
    log = logdir / "metrics.jsonl"
    lines = 3 + (len(rows(log)) if log.exists() else 0)
    with subprocess.Popen(
        command(*arguments), env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None:
            if log.exists() and log.read_bytes().count(b"\n") >= lines:
                process.send_signal(number)
                break
            time.sleep(0.002)
        _, stderr = process.communicate(timeout=240)
    return process.returncode, stderr


def test_a_signal_saves_and_the_same_command_goes_on(
    corpus: Path, micro_run: Path, tmp_path: Path
) -> None:
    logdir = tmp_path / "run"
    arguments = train_arguments(corpus, logdir)
    store = CheckpointStore(logdir / "checkpoints")
    step = 0
    for number in (signal.SIGTERM, signal.SIGINT):
        code, stderr = _interrupted(logdir, arguments, number)
        assert code == 75, stderr
        assert "Traceback" not in stderr
        latest = store.latest()
        assert latest is not None
        assert step < latest < 200
        step = latest
        assert stderr.endswith(
            f"{number.name}: saved at step {step}. The same command goes on from there.\n"
        )
    assert main(arguments) == 0
    assert_same_run(logdir, micro_run)


def test_a_signal_during_an_evaluation_ends_it_and_saves(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a step that would not have been saved otherwise."""
    evaluate_step = Pipeline.evaluate_step
    evaluated = []

    def evaluate_and_signal(self: Pipeline, batch: Any) -> dict[str, float]:
        evaluated.append(self.step)
        if self.step == 3:
            signal.raise_signal(signal.SIGTERM)
        return evaluate_step(self, batch)

    monkeypatch.setattr(Pipeline, "evaluate_step", evaluate_and_signal)
    logdir = tmp_path / "run"
    assert main(train_arguments(corpus, logdir, train__evaluate_every_steps=1)) == 75
    assert CheckpointStore(logdir / "checkpoints").steps() == [3]
    assert [row["step"] for row in rows(logdir / "eval.jsonl")] == [1, 2]
    assert evaluated.count(3) == 1 < evaluated.count(2)


def test_a_signal_during_the_last_evaluation_is_no_end_of_the_run(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate_step = Pipeline.evaluate_step

    def signal_and_evaluate(self: Pipeline, batch: Any) -> dict[str, float]:
        signal.raise_signal(signal.SIGTERM)
        return evaluate_step(self, batch)

    logdir = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "evaluate_step", signal_and_evaluate)
        assert main(train_arguments(corpus, logdir, max_steps=2)) == 75
    assert rows(logdir / "eval.jsonl") == []
    assert main(train_arguments(corpus, logdir, max_steps=2)) == 0
    assert [row["step"] for row in rows(logdir / "eval.jsonl")] == [2]


@pytest.fixture(scope="module")
def four_stages(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps on four stages, with a checkpoint of the fifth."""
    logdir = tmp_path_factory.mktemp("four") / "run"
    changes = {"train__checkpoint_every_steps": 5, "pipeline__num_stages": 4}
    assert main(train_arguments(corpus, logdir, max_steps=6, **changes)) == 0
    return logdir


@pytest.mark.parametrize(
    ("stages", "micro_batches", "replicas"), [(1, 1, 1), (2, 3, 1), (2, 1, 3), (1, 2, 2)]
)
def test_a_run_goes_on_with_any_number_of_stages_and_replicas(
    corpus: Path,
    four_stages: Path,
    tmp_path: Path,
    stages: int,
    micro_batches: int,
    replicas: int,
) -> None:
    logdir = with_copy(four_stages, tmp_path)
    shutil.rmtree(logdir / "checkpoints" / "step-00000006")
    changes: dict[str, object] = {
        "pipeline__num_stages": stages,
        "pipeline__num_micro_batches": micro_batches,
        "pipeline__num_replicas": replicas,
        "learner__schedule__peak": 0.01,
    }
    assert main(train_arguments(corpus, logdir, max_steps=7, **changes)) == 0
    before, now = rows(four_stages / "metrics.jsonl")[5], rows(logdir / "metrics.jsonl")[5]
    assert before["step"] == now["step"] == 6
    np.testing.assert_allclose(now["loss"], before["loss"], rtol=1e-6)
    np.testing.assert_allclose(now["grad_norm"], before["grad_norm"], rtol=1e-4)
    assert now["learning_rate"] == pytest.approx(before["learning_rate"] / 2)
    assert [row["step"] for row in rows(logdir / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6, 7]
    assert RunDirectory(logdir).read_params().pipeline.num_stages == stages
    lines = (logdir / "plan.txt").read_text().splitlines()
    assert len(lines) == stages + (2 if replicas == 1 else 3)


def test_state_goes_on_from_a_checkpoint_with_any_number_of_stages(tmp_path: Path) -> None:
    def pipeline(num_stages: int) -> Pipeline:
        learner = make_learner(Adam.Params(epsilon=1e-3))
        return make_pipeline(normalised_cells(), num_stages, 3, learner=learner)

    before, store = pipeline(4), CheckpointStore(tmp_path)
    before.train_step(dense_batch(7))
    saved = store.save(1, checkpoint_tensors(before), {})
    moving = [name for name in saved.tensors if "moving" in name]
    assert sorted(moving) == [
        f"weights/norm_{i}/norm/moving_{moment}" for i in (0, 1) for moment in ("mean", "variance")
    ]
    after = pipeline(1)
    after.step = store.restore_into("last", checkpoint_tensors(after)).step
    evaluated = before.evaluate_step(dense_batch(5, 1))
    assert after.evaluate_step(dense_batch(5, 1)) == pytest.approx(evaluated, rel=1e-6)
    for each in (before, after):
        each.train_step(dense_batch(8, 2))
        each.close()
    for name, variable in checkpoint_tensors(before).items():
        np.testing.assert_allclose(
            checkpoint_tensors(after)[name], variable, rtol=1e-5, atol=1e-6, err_msg=name
        )


def test_compiled_stages_train_as_others_do(corpus: Path, tmp_path: Path) -> None:
    losses = []
    changes: dict[str, object] = {"input__static_shapes": True, "input__rows_multiple": 2}
    changes |= {"train__evaluate_every_steps": 3, "input__length_multiple": 32, "max_steps": 3}
    for jit_compile in (False, True):
        logdir = tmp_path / str(jit_compile)
        changes["pipeline__jit_compile"] = jit_compile
        assert main(train_arguments(corpus, logdir, **changes)) == 0
        found = [*rows(logdir / "metrics.jsonl"), *rows(logdir / "eval.jsonl")]
        assert [row["step"] for row in found] == [1, 2, 3, 3]
        losses.append([row["loss"] for row in found])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


def test_a_run_that_is_done_says_so_and_changes_nothing(
    corpus: Path, four_stages: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logdir = with_copy(four_stages, tmp_path)
    changes = {"train__checkpoint_every_steps": 5, "pipeline__num_stages": 4}
    assert main(train_arguments(corpus, logdir, max_steps=6, **changes)) == 0
    assert "The run has done its 6 steps; raise train.max_steps" in capfd.readouterr().err
    assert_same_checkpoint(logdir, four_stages, 6)
    for name in ("metrics.jsonl", "eval.jsonl"):
        assert (logdir / name).read_bytes() == (four_stages / name).read_bytes()


def test_an_evaluation_that_a_signal_cut_off_is_made_up_for(
    corpus: Path, four_stages: Path, tmp_path: Path
) -> None:
    logdir = with_copy(four_stages, tmp_path)
    evaluations = (logdir / "eval.jsonl").read_text()
    CheckpointStore(logdir / "checkpoints").set_metric(6, None)
    *earlier, _ = evaluations.splitlines(keepends=True)
    (logdir / "eval.jsonl").write_text("".join(earlier))
    changes = {"train__checkpoint_every_steps": 5, "pipeline__num_stages": 4}
    assert main(train_arguments(corpus, logdir, max_steps=6, **changes)) == 0
    assert (logdir / "eval.jsonl").read_text() == evaluations
    loss = json.loads(evaluations.splitlines()[-1])["loss"]
    assert CheckpointStore(logdir / "checkpoints").read_state(6).metric == loss


def test_evaluations_come_when_they_are_asked_for_and_not_with_every_checkpoint(
    corpus: Path, tmp_path: Path
) -> None:
    logdir = tmp_path / "run"
    every: dict[str, object] = {
        "train__checkpoint_every_steps": 2,
        "train__evaluate_every_steps": 3,
        "train__keep_last_checkpoints": 5,
    }
    assert main(train_arguments(corpus, logdir, max_steps=7, **every)) == 0
    assert [row["step"] for row in rows(logdir / "eval.jsonl")] == [3, 6, 7]
    store = CheckpointStore(logdir / "checkpoints")
    metrics = {step: store.read_state(step).metric for step in store.steps()}
    assert [step for step, metric in metrics.items() if metric is not None] == [6, 7]
    assert set(metrics) == {2, 4, 6, 7}


def test_checkpoints_without_their_params_are_refused(
    corpus: Path, four_stages: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logdir = with_copy(four_stages, tmp_path)
    (logdir / "params.txt").unlink()
    assert main(train_arguments(corpus, logdir, max_steps=7, pipeline__num_stages=4)) == 2
    assert "holds checkpoints, but no params.txt" in capfd.readouterr().err


def test_an_optimiser_that_does_not_fit_the_checkpoint_leaves_the_run_as_it_was(
    corpus: Path, four_stages: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logdir = with_copy(four_stages, tmp_path)
    before = {path: path.read_bytes() for path in logdir.rglob("*") if path.is_file()}
    arguments = train_arguments(corpus, logdir, max_steps=7, pipeline__num_stages=4)
    optimizer = "learner.optimizer=lingpipe.learner.optimizers.Momentum.Params"
    sets = ["--set", optimizer, "--set", "learner.optimizer.momentum=0.9"]
    assert main([*arguments, *sets]) == 2
    message = capfd.readouterr().err
    assert "slots/" in message
    assert "Traceback" not in message
    assert {path: path.read_bytes() for path in logdir.rglob("*") if path.is_file()} == before
