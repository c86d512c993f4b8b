"""A run directory is all that evaluation and decoding need, wherever it lies."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.input.corpus import CorpusError
from lingpipe.runtime.checkpoint import CheckpointStore
from lingpipe.runtime.checkpoint_folder import CheckpointError
from lingpipe.runtime.opening import open_run
from lingpipe.runtime.run_directory import RunDirectoryError
from lingpipe.task.decode_options import DecodeOptions
from tests.micro_run import rows

OPTIONS = DecodeOptions(target_language="de", beam_size=1)


@pytest.fixture
def moved(micro_run: Path, tmp_path: Path) -> Path:
    """The run in another place, from which there is no corpus to be found."""
    logdir = tmp_path / "moved" / "elsewhere"
    shutil.copytree(micro_run, logdir)
    params = logdir / "params.txt"
    text = params.read_text()
    assert str(micro_run.parent) in text
    params.write_text(text.replace(str(micro_run.parent), "/nowhere"))
    return logdir


def test_last_best_and_a_step_name_checkpoints(micro_run: Path) -> None:
    dev = {row["step"]: row["loss"] for row in rows(micro_run / "eval.jsonl")}
    best = min((50, 100, 150, 200), key=dev.__getitem__)
    steps = {which: open_run(micro_run, which)[1].step for which in ("last", "best", "150")}
    assert steps == {"last": 200, "best": best, "150": 150}


@pytest.mark.parametrize("step", [150, 200])
def test_the_weights_of_that_checkpoint_are_restored(micro_run: Path, step: int) -> None:
    _, run = open_run(micro_run, str(step))
    path = "softmax/norm/scale"
    bundle = CheckpointStore(micro_run / "checkpoints").read_state(step).bundle
    expected = tf.train.load_checkpoint(str(bundle)).get_tensor(f"weights/{path}")
    names = CheckpointStore(micro_run / "checkpoints").read_state(step).tensors
    weights = {
        name.removeprefix("weights/"): tf.Variable(tf.zeros(info.shape))
        for name, info in names.items()
        if name.startswith("weights/")
    }
    run.restore(weights)
    np.testing.assert_array_equal(weights[path].numpy(), expected)


def test_a_moved_run_decodes_as_before_without_its_corpus(micro_run: Path, moved: Path) -> None:
    lines = ["one two", "three"]
    before, after = (
        list(task.decode(run, lines, OPTIONS))
        for task, run in (open_run(micro_run, "last"), open_run(moved, "last"))
    )
    assert after == before


def test_a_moved_run_needs_the_corpus_to_be_evaluated(moved: Path) -> None:
    task, run = open_run(moved, "last")
    with pytest.raises(CorpusError, match="no corpus folder /nowhere/corpus"):
        task.evaluate(run, "test")


def test_a_lost_vocabulary_is_told(moved: Path) -> None:
    (moved / "vocab" / "languages.json").unlink()
    with pytest.raises(RunDirectoryError, match=r"vocab lacks the vocabulary .* restore it"):
        open_run(moved, "last")


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("77", "There is no checkpoint of step 77 in .*there are: .*150, 200"),
        ("lats", "'lats' is no checkpoint; use last, best or a step number"),
    ],
)
def test_an_unknown_checkpoint_is_refused(micro_run: Path, which: str, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        open_run(micro_run, which)


def test_a_run_that_has_not_saved_yet_is_refused(moved: Path) -> None:
    shutil.rmtree(moved / "checkpoints")
    with pytest.raises(CheckpointError, match=r"There is no checkpoint in .*/checkpoints"):
        open_run(moved, "last")


def test_opening_changes_nothing(moved: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in moved.rglob("*")}
    task, run = open_run(moved, "best")
    list(task.decode(run, ["one"], OPTIONS))
    assert {path: path.stat().st_mtime_ns for path in moved.rglob("*")} == before
