"""A mistake in a command to train is told in one message before anything is written."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from lingpipe.__main__ import main
from lingpipe.pipeline.step_result import NonFiniteError
from lingpipe.runtime.run_directory import RunDirectory
from tests.bin.refusals import refusal, tree
from tests.conftest import NUM_DEVICES
from tests.micro_run import MODEL, train_arguments, write_corpus

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def _refused(capfd: Capture, corpus: Path, logdir: Path, **changes: object) -> str:
    """The message of a refused training, which has left no run directory."""
    message = refusal(capfd, *train_arguments(corpus, logdir, **changes))
    assert not logdir.exists()
    return message


def test_a_missing_corpus_names_the_nearest(capfd: Capture, corpus: Path, tmp_path: Path) -> None:
    message = _refused(capfd, tmp_path / "corpsu", tmp_path / "run")
    assert message == (
        f"lingpipe train: There is no corpus folder {tmp_path}/corpsu; did you mean {corpus}?\n"
    )


def _make_empty(corpus: Path) -> None:
    (corpus / "en-fr" / "valid.fr").write_text("")


def _lose_a_line(corpus: Path) -> None:
    path = corpus / "en-de" / "train.de"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))


def _cut_gzip_short(corpus: Path) -> None:
    path = corpus / "en-fr" / "train.fr"
    data = gzip.compress(path.read_bytes())
    path.with_name("train.fr.gz").write_bytes(data[: len(data) // 2])
    path.unlink()


def _cut_a_character(corpus: Path) -> None:
    path = corpus / "en-zh" / "test.zh"
    path.write_bytes(path.read_bytes().rstrip()[:-1])


def _replace_by_a_folder(corpus: Path) -> None:
    path = corpus / "en-zh" / "train.en"
    path.unlink()
    path.mkdir()


def _lose_a_side(corpus: Path) -> None:
    (corpus / "en-zh" / "test.zh").unlink()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_make_empty, "en-fr/valid.fr is empty"),
        (_lose_a_line, "train.de has 39 lines and"),
        (_lose_a_line, "train.en has 40; line n of one must translate line n of the other"),
        (_cut_gzip_short, "train.fr.gz is cut short"),
        (_cut_a_character, "test.zh, line 7 is not UTF-8: it ends in the middle of a character"),
        (_replace_by_a_folder, "train.en is a folder"),
        (_lose_a_side, "en-zh has no test.zh"),
    ],
)
def test_a_broken_corpus_is_named(
    capfd: Capture, corpus: Path, tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    spoil(corpus)
    before = tree(corpus)
    message = _refused(capfd, corpus, tmp_path / "runs" / "first")
    assert words in message
    assert len(message.splitlines()) == 1
    assert tree(corpus) == before
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"input__languages": "['de', 'fra']"}, "has no language 'fra'; did you mean 'fr'?"),
        ({"pipeline__num_stage": 2}, "did you mean 'pipeline.num_stages'?"),
        ({"task__model__dropuot": 0.1}, "did you mean 'task.model.dropout'?"),
        ({"num_layers": "two"}, "num_layers must be an int such as 16 or 16_384, not 'two'"),
        ({"train__max_steps": 1.5}, "train.max_steps must be an int, not '1.5'; write 1 or 2"),
        ({"task__model__dropout": 1.5}, "task.model.dropout: dropout (1.5) must be"),
        ({"max_steps": 0, "tokens_per_batch": 16}, "max_steps (0) must be at least 1"),
        ({"num_stages": 6}, "num_stages (6)"),
        ({"pipeline__partition": "[2, 2]"}, "partition"),
        ({"vocabulary_size": 30}, "vocabulary_size (30) is too small"),
        ({"input__max_length": 0}, "max_length (0)"),
    ],
)
def test_params_that_cannot_be_are_named(
    capfd: Capture, corpus: Path, tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    assert words in _refused(capfd, corpus, tmp_path / "run", **changes)


def test_a_corpus_of_which_no_line_is_short_enough_leaves_no_run_behind(
    capfd: Capture, corpus: Path, tmp_path: Path
) -> None:
    message = _refused(capfd, corpus, tmp_path / "run", input__max_length=1)
    assert message == (
        "lingpipe train: None of 120 examples in a row has at most max_length (1) tokens; the "
        "shortest has 3. Raise max_length.\n"
    )


def test_all_inconsistencies_are_told_at_once(capfd: Capture, corpus: Path, tmp_path: Path) -> None:
    message = _refused(capfd, corpus, tmp_path / "run", max_steps=0, tokens_per_batch=16)
    assert "max_steps (0)" in message
    assert "tokens_per_batch (16)" in message


def test_p16_more_stages_than_devices_are_refused(
    capfd: Capture, corpus: Path, tmp_path: Path
) -> None:
    # To list them starts TensorFlow, which settles their number.
    assert len(tf.config.list_logical_devices("CPU")) == NUM_DEVICES == 8
    message = _refused(capfd, corpus, tmp_path / "run", num_stages=3, num_replicas=3)
    assert "The stages need 9 CPU devices" in message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model=mt.multilingual.Tinny"], "did you mean 'mt.multilingual.Tiny'"),
        (["--model=no.such.Model"], "'lingpipe params --list' prints every model"),
        ([f"--model={MODEL}", "--set", "num_layers"], "num_layers"),
        ([f"--model={MODEL}", "--learning_rate=1"], "unrecognized arguments: --learning_rate=1"),
        ([], "the following arguments are required: --model"),
    ],
)
def test_a_wrong_command_is_refused(
    capfd: Capture, tmp_path: Path, arguments: list[str], words: str
) -> None:
    assert words in refusal(capfd, "train", f"--logdir={tmp_path}/run", *arguments)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("logdir", "reason"),
    [
        ("file", "File exists"),
        ("file/run", "Not a directory"),
        ("/proc/lingpipe/run", "No such file or directory"),
    ],
)
def test_a_logdir_that_cannot_be_written(
    capfd: Capture, corpus: Path, tmp_path: Path, logdir: str, reason: str
) -> None:
    (tmp_path / "file").write_text("text")
    path = tmp_path / logdir
    message = refusal(capfd, *train_arguments(corpus, path))
    assert message == f"lingpipe train: Cannot write to --logdir {path}: {reason}.\n"
    assert (tmp_path / "file").read_text() == "text"


def test_a_second_trainer_is_kept_out(capfd: Capture, corpus: Path, tmp_path: Path) -> None:
    logdir = tmp_path / "run"
    with RunDirectory(logdir).locked():
        message = refusal(capfd, *train_arguments(corpus, logdir))
    assert message.startswith(f"lingpipe train: Another process is training in {logdir}. Wait")


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"model_dim": 32}, "task.model.model_dim"),
        ({"dropout": 0.3}, "task.model.dropout"),
        ({"tokens_per_batch": 1024}, "input.tokens_per_batch"),
        ({"train__seed": 2}, "train.seed"),
    ],
)
def test_a_run_does_not_go_on_with_params_that_change_its_meaning(
    capfd: Capture, micro_run: Path, changes: dict[str, object], difference: str
) -> None:
    before = tree(micro_run)
    corpus = micro_run.parent / "corpus"
    message = refusal(capfd, *train_arguments(corpus, micro_run, **changes))
    assert "holds a run with other params" in message
    assert difference in message
    assert "max_steps" not in message, "a longer training is no other run"
    assert tree(micro_run) == before


def test_a_run_whose_vocabulary_is_lost_does_not_go_on(
    capfd: Capture, micro_run: Path, tmp_path: Path
) -> None:
    logdir = tmp_path / "run"
    shutil.copytree(micro_run, logdir)
    shutil.rmtree(logdir / "vocab")
    message = refusal(capfd, *train_arguments(micro_run.parent / "corpus", logdir))
    assert f"{logdir}/vocab lacks the vocabulary" in message
    assert not (logdir / "vocab").exists()


def test_a_corpus_without_dev_is_refused_before_hours_are_spent(
    capfd: Capture, corpus: Path, tmp_path: Path
) -> None:
    for path in corpus.rglob("valid.*"):
        path.unlink()
    message = refusal(capfd, *train_arguments(corpus, tmp_path / "run"))
    assert "No pair of the corpus has a dev split." in message
    assert "train.evaluate_every_steps=0" in message
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_loss_that_is_not_finite_ends_the_run_with_one_message(
    capfd: Capture, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*_: object) -> None:
        raise NonFiniteError("Step 7: loss nan, gradient norm nan. No update was applied.")

    monkeypatch.setattr("lingpipe.bin.train.train", train)
    assert main(train_arguments(corpus, tmp_path / "run")) == 1
    assert capfd.readouterr().err == (
        "lingpipe train: Step 7: loss nan, gradient norm nan. No update was applied. Checkpoints "
        f"in {tmp_path}/run, if any, are intact; the same command, with other learner params if "
        "need be, goes on from the last one.\n"
    )


def test_any_other_failure_shows_where_it_happened(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingpipe.bin.train.train", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(train_arguments(corpus, tmp_path / "run"))
