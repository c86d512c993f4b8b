"""Scores of a checkpoint: a table for people, a row of eval.jsonl for programs."""

import json
from pathlib import Path

import pytest

from lingpipe.base.output import WriteError
from lingpipe.runtime.evaluator import evaluate
from lingpipe.task.task import Evaluation
from tests.micro_run import rows


class Scorer:
    """A task that scores without a model."""

    def evaluate(self, run: object, split: str) -> Evaluation:
        return Evaluation(f"the table of {split}\n", {"pairs": {"en-de": {"bleu": 12.5}}})


@pytest.fixture
def logdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory at step 30 that is scored by `Scorer`."""

    class Run:
        step = 30

    monkeypatch.setattr("lingpipe.runtime.evaluator.open_run", lambda *_: (Scorer(), Run()))
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def test_the_scores_are_returned_and_noted(logdir: Path) -> None:
    evaluation = evaluate(logdir, "test", "last")
    assert evaluation.table == "the table of test\n"
    row = {"step": 30, "split": "test", "pairs": {"en-de": {"bleu": 12.5}}}
    assert rows(logdir / "eval.jsonl") == [row]


def test_a_row_is_added_to_those_of_the_training(logdir: Path) -> None:
    earlier = '{"step": 20, "split": "dev", "loss": 3.5}\n'
    (logdir / "eval.jsonl").write_text(earlier)
    evaluate(logdir, "dev", "last")
    evaluate(logdir, "test", "best")
    text = (logdir / "eval.jsonl").read_text()
    assert text.startswith(earlier)
    assert [json.loads(line)["split"] for line in text.splitlines()] == ["dev", "dev", "test"]


def test_a_folder_that_cannot_be_written_is_named(logdir: Path) -> None:
    (logdir / "eval.jsonl").mkdir()
    with pytest.raises(WriteError, match=r"Cannot write .*eval.jsonl: Is a directory\."):
        evaluate(logdir, "test", "last")
