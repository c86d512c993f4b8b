"""Seconds of cells are kept beside the run, used again where they hold and measured where not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf  # noqa: F401 - So that there are devices.

from lingpipe.__main__ import main
from lingpipe.registry import lookup
from lingpipe.runtime.measured_costs import measured_costs
from lingpipe.runtime.parts import build_task
from lingpipe.task.model_params import make_experiment
from tests.micro_run import train_arguments, write_corpus

SMALL = ("num_layers=1", "model_dim=16", "ffn_dim=32", "num_heads=2", "vocabulary_size=330")
MEASURED = "pipeline.partition_costs=measured"


class Stopwatch:
    """Stands in for `measure_cells`; every measurement differs from the one before."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, cells: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        self.count += 1
        return {name: self.count + index / 3 for index, name in enumerate(cells)}


@pytest.fixture
def stopwatch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stopwatch]:
    watch = Stopwatch()
    monkeypatch.setattr("lingpipe.runtime.measured_costs.measure_cells", watch)
    yield watch


def costs(file: Path | None, *overrides: str) -> dict[str, float] | None:
    experiment = make_experiment(lookup("mt.multilingual.Corpus"), (*SMALL, MEASURED, *overrides))
    return measured_costs(experiment, build_task(experiment), file)


def test_nothing_is_measured_unless_asked_for(stopwatch: Stopwatch, tmp_path: Path) -> None:
    assert costs(tmp_path / "costs.json", "pipeline.partition_costs=analytic") is None
    assert (stopwatch.count, list(tmp_path.iterdir())) == (0, [])


def test_seconds_are_kept_and_used_again_to_the_last_digit(
    stopwatch: Stopwatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "costs.json"
    first = costs(file)
    assert capsys.readouterr().err.startswith("Measuring what 5 cells take on ")
    assert first is not None
    record = json.loads(file.read_text())
    assert record["seconds"] == first
    assert record["device"].endswith("cores")
    # Neither changes what a cell takes.
    assert costs(file, "pipeline.num_stages=2", "train.max_steps=7") == first
    assert capsys.readouterr().err == ""
    assert stopwatch.count == 1


@pytest.mark.parametrize(
    "override",
    [
        "pipeline.num_micro_batches=2",
        "task.typical_length=9",
        "ffn_dim=48",
        "train.dtype=bfloat16",
        "pipeline.remat=layer",
        "jit_compile=true",
    ],
)
def test_what_does_not_hold_any_more_is_measured_again_and_that_is_told(
    stopwatch: Stopwatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str
) -> None:
    file = tmp_path / "costs.json"
    first = costs(file)
    capsys.readouterr()
    second = costs(file, override)
    assert second != first
    assert f"{file} does not hold for these cells" in capsys.readouterr().err
    assert costs(file, override) == second
    assert stopwatch.count == 2


@pytest.mark.parametrize("damage", ("", "[]", "null", '{"fingerprint": 3}', "\xff", "half"))
def test_a_damaged_file_is_measured_again(
    stopwatch: Stopwatch, tmp_path: Path, damage: str
) -> None:
    file = tmp_path / "costs.json"
    costs(file)
    text = file.read_text()
    damaged = text[: len(text) // 2] if damage == "half" else damage
    file.write_bytes(damaged.encode("latin-1"))
    second = costs(file)
    assert stopwatch.count == 2
    assert json.loads(file.read_text())["seconds"] == second


def test_without_a_file_nothing_is_kept(stopwatch: Stopwatch) -> None:
    assert costs(None) != costs(None)
    assert stopwatch.count == 2


def test_a_run_is_cut_by_its_costs_file(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    logdir = tmp_path / "run"
    changes = {"pipeline__partition_costs": "measured", "train__evaluate_every_steps": 0}
    assert main(train_arguments(corpus, logdir, max_steps=1, **changes)) == 0
    record = json.loads((logdir / "costs.json").read_text())
    assert "measured share" in (logdir / "plan.txt").read_text()
    # As if the first cell had been the slow one.
    seconds = dict.fromkeys(record["seconds"], 1.0) | {"source_embedding": 9.0}
    (logdir / "costs.json").write_text(json.dumps({**record, "seconds": seconds}))
    assert main(train_arguments(corpus, logdir, max_steps=2, **changes)) == 0
    assert "0      1: source_embedding" in (logdir / "plan.txt").read_text()
    assert json.loads((logdir / "costs.json").read_text())["seconds"] == seconds
