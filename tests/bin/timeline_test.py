"""`lingpipe timeline`: a table on stdout, a picture and a trace in files, and no damage."""

import json
from pathlib import Path

import pytest
import tensorflow as tf  # noqa: F401 - So that there are devices.

from lingpipe.__main__ import main
from lingpipe.pipeline.step_result import NonFiniteError
from tests.bin.refusals import refusal, tree
from tests.micro_run import MODEL, SMALL, write_corpus

Capture = pytest.CaptureFixture[str]


def arguments(corpus: Path, *outputs: Path) -> list[str]:
    sets = [f"--set={path}={value}" for path, value in {**SMALL, "corpus": corpus}.items()]
    return ["timeline", f"--model={MODEL}", *sets, *(f"--output={path}" for path in outputs)]


def test_a_step_is_drawn_traced_and_split(capfd: Capture, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    folder = tmp_path / "out"
    folder.mkdir()
    capfd.readouterr()
    assert main(arguments(corpus, folder / "step.png", folder / "step.json")) == 0
    out, err = capfd.readouterr()
    assert err.startswith("stage  cells")
    assert out.startswith(f"{MODEL}: stages 2, devices 2, micro-batches 2 (")
    rows = {line.split()[0]: float(line.split()[1]) for line in out.splitlines()[3:]}
    step = rows.pop("step")
    assert list(rows) == ["compute", "recompute", "transfer", "update", "imbalance", "bubble"]
    assert sum(rows.values()) == pytest.approx(step, abs=5e-4)  # Of rounding.
    assert sorted(path.name for path in folder.iterdir()) == ["step.json", "step.png"]
    assert (folder / "step.png").read_bytes().startswith(b"\x89PNG")
    trace = json.loads((folder / "step.json").read_text())
    names = {event["name"] for event in trace["traceEvents"]}
    assert {f"{letter}{m} stage {s}" for letter in "FB" for m in (0, 1) for s in (0, 1)} <= names
    assert trace["otherData"]["step_seconds"] == pytest.approx(step, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("step.pdf", "step.pdf must end in .png for a picture, or in .json for"),
        ("none/step.png", "none/step.png: No such file or directory."),
        ("corpus/en-de/train.en/step.json", "step.json: Not a directory."),
        ("folder.png", "folder.png: Is a directory."),
    ],
)
def test_an_output_that_cannot_be_written_is_told_first(
    capfd: Capture, tmp_path: Path, name: str, words: str
) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    (tmp_path / "folder.png").mkdir()
    before = tree(tmp_path)
    message = refusal(capfd, *arguments(corpus, tmp_path / "step.json", tmp_path / name))
    assert message.startswith("lingpipe timeline: ")
    assert words in message
    assert tree(tmp_path) == before


def test_a_corpus_that_is_not_there_is_told(capfd: Capture, tmp_path: Path) -> None:
    message = refusal(capfd, *arguments(tmp_path / "corpus", tmp_path / "step.png"))
    assert "There is no corpus folder" in message
    assert tree(tmp_path) == {}


def test_a_step_that_is_not_finite_is_no_fault_of_the_program(
    capfd: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise NonFiniteError("Step 3: loss nan.")

    monkeypatch.setattr("lingpipe.bin.timeline.write_timeline", fail)
    capfd.readouterr()
    assert main(arguments(tmp_path, tmp_path / "step.png")) == 1
    assert capfd.readouterr().err == "lingpipe timeline: Step 3: loss nan.\n"
