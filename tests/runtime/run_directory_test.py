"""A run directory: who may write to it, and with which params a run in it may go on."""

import contextlib
import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from lingpipe.base.output import WriteError
from lingpipe.registry import lookup
from lingpipe.runtime.run_directory import RunDirectory, RunDirectoryError
from lingpipe.task.experiment import Experiment
from lingpipe.task.model_params import make_experiment


def experiment(*overrides: str) -> Experiment.Params:
    return make_experiment(lookup("mt.multilingual.Corpus"), overrides)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run directory with params, not yet with a checkpoint."""
    run = RunDirectory(tmp_path / "run")
    run.write_params(experiment())
    return run


def with_checkpoint(run: RunDirectory) -> RunDirectory:
    (run.checkpoints / "step-00000010").mkdir(parents=True)
    return run


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# -- Params ---------------------------------------------------------------------------------------


def test_params_come_back_as_they_were(run: RunDirectory) -> None:
    assert run.read_params() == experiment()
    assert run.params_file.read_text() == experiment().to_text()


def test_a_folder_without_params_is_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"is not a run directory: it has no params.txt"):
        RunDirectory(tmp_path).read_params()
    with pytest.raises(RunDirectoryError, match=r"Give --logdir the folder that `lingpipe train`"):
        RunDirectory(tmp_path / "nowhere").read_params()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "params.txt cannot be used"),
        (b"\xff\xfe", "params.txt is not a text"),
        (b"class : lingpipe.no.Such\n", "params.txt cannot be used: .*lingpipe.no"),
        (b"class : lingpipe.task.experiment.Experiment.Params\ntrian : 1\n", "'trian'"),
    ],
)
def test_damaged_params_name_their_file(run: RunDirectory, content: bytes, words: str) -> None:
    run.params_file.write_bytes(content)
    with pytest.raises(RunDirectoryError, match=words):
        run.read_params()


def test_params_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"Cannot write .*file/params.txt: File exists\."):
        RunDirectory(tmp_path / "file").write_params(experiment())


@pytest.mark.parametrize(
    "override",
    [
        "train.max_steps=5",
        "train.dtype=bfloat16",
        "train.keep_last_checkpoints=9",
        "learner.clip_global_norm=2",
        "learner.schedule.peak=0.5",
        "pipeline.num_stages=3",
        "pipeline.partition=[1, 2]",
        "cluster.device_type=cpu",
    ],
)
def test_a_run_goes_on_with_other_values_of_how_it_is_trained(
    run: RunDirectory, override: str
) -> None:
    with_checkpoint(run).check_params(experiment(override))


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("task.model.model_dim=256", "task.model.model_dim : 512 -> 256"),
        ("task.model.label_smoothing=0", "task.model.label_smoothing : 0.1 -> 0.0"),
        ("input.corpus=other", "input.corpus : 'tiny' -> 'other'"),
        ("input.temperature=1", "input.temperature : 5.0 -> 1.0"),
        ("train.seed=7", "train.seed : 1 -> 7"),
    ],
)
def test_a_run_does_not_go_on_with_other_values_of_what_it_is(
    run: RunDirectory, override: str, difference: str
) -> None:
    allowed = "train.max_steps=5"
    with pytest.raises(RunDirectoryError) as caught:
        with_checkpoint(run).check_params(experiment(override, allowed))
    assert str(caught.value) == (
        f"{run.path} holds a run with other params, which cannot go on with these:\n"
        f"  {difference}\nUse another --logdir, or the params it was started with."
    )


@pytest.mark.parametrize("override", ["task.model.model_dim=256", "train.seed=7"])
def test_without_a_checkpoint_there_are_no_weights_to_mind(
    run: RunDirectory, override: str
) -> None:
    run.check_params(experiment(override))


def test_without_a_checkpoint_the_vocabulary_still_belongs_to_its_input(run: RunDirectory) -> None:
    with pytest.raises(RunDirectoryError, match="input.vocabulary_size : 8000 -> 500"):
        run.check_params(experiment("input.vocabulary_size=500"))


def test_a_new_folder_takes_any_params(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "new").check_params(experiment("train.seed=7"))


# -- Vocabulary -----------------------------------------------------------------------------------


def test_checkpoints_without_their_vocabulary_are_refused(run: RunDirectory) -> None:
    run.check_vocabulary(experiment())
    with pytest.raises(RunDirectoryError, match=r"vocab lacks the vocabulary that the checkpoints"):
        with_checkpoint(run).check_vocabulary(experiment())


# -- Lock -----------------------------------------------------------------------------------------


def test_a_second_trainer_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.locked():
        with (
            pytest.raises(RunDirectoryError, match=r"Another process is training in .*run\. Wait"),
            RunDirectory(run.path).locked(),
        ):
            pass
        assert names(tmp_path) == ["run", "run/.lock"], "the refused one leaves the lock alone"
    with run.locked():
        pass


def test_a_lock_under_which_nothing_was_written_leaves_nothing(tmp_path: Path) -> None:
    with (
        contextlib.suppress(ZeroDivisionError),
        RunDirectory(tmp_path / "a" / "b" / "run").locked(),
    ):
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_a_lock_removes_only_folders_that_it_made(tmp_path: Path) -> None:
    (tmp_path / "a" / "run").mkdir(parents=True)
    with RunDirectory(tmp_path / "a" / "run").locked():
        pass
    with RunDirectory(tmp_path / "a" / "b" / "run").locked():
        (tmp_path / "a" / "b" / "kept").write_text("")
    assert names(tmp_path) == ["a", "a/b", "a/b/kept", "a/run"]


def test_what_a_run_wrote_stays(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.locked():
        run.write_params(experiment())
    assert names(tmp_path) == ["run", "run/params.txt"]


def test_the_lock_of_a_killed_process_locks_nobody_out(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("")
    with RunDirectory(tmp_path).locked():
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("path", ["file", "file/run", "file/run/deeper"])
def test_a_folder_that_cannot_be_made(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RunDirectoryError, match=rf"Cannot write to --logdir .*/{path}: (Not|File)"),
        RunDirectory(tmp_path / path).locked(),
    ):
        pass


def _remove_file(lock: Path) -> None:
    lock.unlink()


def _remove_folder(lock: Path) -> None:
    shutil.rmtree(lock.parent)


def _replace(lock: Path) -> None:
    lock.unlink()
    lock.write_text("")


@pytest.mark.parametrize("end", [_remove_file, _remove_folder, _replace])
def test_a_file_that_its_holder_has_removed_meanwhile_is_not_taken_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[Path], None]
) -> None:
    """The first trainer may end between the moments in which the second opens and locks."""
    run = RunDirectory(tmp_path / "run")
    flock, files = fcntl.flock, []

    def flock_late(file: IO[bytes], operation: int) -> None:
        if not files:
            end(run.path / ".lock")
        files.append(file)
        flock(file, operation)

    monkeypatch.setattr("fcntl.flock", flock_late)
    with run.locked():
        assert len(files) == 2
        assert files[0].closed
        with pytest.raises(RunDirectoryError, match="Another process"), run.locked():
            pass
    assert names(tmp_path) == []
