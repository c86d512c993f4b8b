"""Recording a step of an experiment: what is refused early, and what is made of a step."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf  # noqa: F401 - So that there are devices.

from lingpipe.base.output import WriteError
from lingpipe.registry import lookup
from lingpipe.runtime import timeline
from lingpipe.runtime.timeline import TimelineError, check_outputs, record_timeline, write_timeline
from lingpipe.task.model_params import make_experiment
from tests.micro_run import MODEL, SMALL, write_corpus


def experiment(corpus: Path, **knobs: object) -> object:
    values = {**SMALL, "corpus": corpus, **{k.replace("__", "."): v for k, v in knobs.items()}}
    return make_experiment(lookup(MODEL), [f"{path}={value}" for path, value in values.items()])


@pytest.mark.parametrize("name", ["step.pdf", "step", "png", ".png"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TimelineError, match=r"--output=.* must end in \.png .* \.json for chrome"):
        check_outputs([tmp_path / "fine.json", tmp_path / name])


def test_capitals_do_not_matter_and_nothing_is_left_behind(tmp_path: Path) -> None:
    check_outputs([tmp_path / "STEP.PNG", tmp_path / "step.Json"])
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_looked_at_before_anything_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "check_pipeline", lambda _: 1 / 0)
    with pytest.raises(WriteError, match="No such file or directory"):
        write_timeline(experiment(tmp_path), MODEL, [tmp_path / "none" / "step.png"])


def test_a_step_is_recorded_with_its_recomputation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[list[float]] = []
    measure = timeline.measure_recompute_shares

    def measured(*args: object, **values: object) -> list[float]:
        shares.append(measure(*args, **values))
        return [0.5, 0.0]

    monkeypatch.setattr(timeline, "measure_recompute_shares", measured)
    params = experiment(write_corpus(tmp_path / "corpus"), pipeline__remat="layer")
    made = record_timeline(params, "mine")
    ((first, last),) = shares
    assert 0 <= first < 1
    assert last == 0
    split, step = made.split, made.step
    assert split.recompute > 0
    assert sum(split.parts().values()) == pytest.approx(2 * step.seconds, rel=1e-9)
    assert step.devices == ("/CPU:0", "/CPU:1")
    assert {(span.phase, span.stage, span.micro_batch) for span in step.spans} >= {
        (phase, stage, m) for phase in ("forward", "backward") for stage in (0, 1) for m in (0, 1)
    }
    assert made.title.startswith("mine: stages 2, devices 2, micro-batches 2 (")
    assert made.title.endswith(" examples in all), schedule gpipe, remat layer")
