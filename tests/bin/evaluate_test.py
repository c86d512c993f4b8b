"""`lingpipe evaluate`: the table goes to stdout, a row to the run directory."""

import shutil
from pathlib import Path

import pytest

from lingpipe.__main__ import main
from tests.bin.refusals import refusal, tree
from tests.micro_run import PAIRS, rows

Capture = pytest.CaptureFixture[str]


def test_the_table_is_printed_and_a_row_added(
    capfd: Capture, micro_run: Path, tmp_path: Path
) -> None:
    logdir = tmp_path / "run"
    shutil.copytree(micro_run, logdir)
    capfd.readouterr()
    assert main(["evaluate", f"--logdir={logdir}", "--checkpoint=150"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out.splitlines()[0].split() == ["pair", "lines", "BLEU", "chrF", "perplexity"]
    *earlier, row = rows(logdir / "eval.jsonl")
    assert earlier == rows(micro_run / "eval.jsonl")
    assert (row["step"], row["split"]) == (150, "test")
    assert row["pairs"].keys() == set(PAIRS)
    for pair, scores in row["pairs"].items():
        assert f"{scores['bleu']:.2f}" in out.split(f"{pair} ")[1].splitlines()[0]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--checkpoint=77"], "There is no checkpoint of step 77"),
        (["--checkpoint=first"], "'first' is no checkpoint; use last, best or a step number"),
        (["--split=train"], "invalid choice: 'train'"),
    ],
)
def test_mistakes_are_told(capfd: Capture, micro_run: Path, flags: list[str], words: str) -> None:
    before = tree(micro_run)
    assert words in refusal(capfd, "evaluate", f"--logdir={micro_run}", *flags)
    assert tree(micro_run) == before


def test_a_folder_that_is_no_run_directory(capfd: Capture, tmp_path: Path) -> None:
    message = refusal(capfd, "evaluate", f"--logdir={tmp_path}")
    assert f"{tmp_path} is not a run directory" in message
    assert tree(tmp_path) == {}


def test_a_corpus_that_is_gone(capfd: Capture, micro_run: Path, tmp_path: Path) -> None:
    logdir = tmp_path / "run"
    shutil.copytree(micro_run, logdir)
    params = (logdir / "params.txt").read_text()
    (logdir / "params.txt").write_text(params.replace(str(micro_run.parent), "/nowhere"))
    message = refusal(capfd, "evaluate", f"--logdir={logdir}")
    assert "There is no corpus folder /nowhere/corpus" in message
