"""Rows of JSON: valid for every reader, whole after a crash, taken back when a run goes back."""

import json
import logging
import math
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingpipe.base.output import WriteError
from lingpipe.runtime.json_rows import JsonRows, read_rows


def strict(path: Path) -> list[dict[str, Any]]:
    """The rows as a parser reads them that knows no NaN and no Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def test_numbers_that_json_does_not_know_become_null_at_any_depth(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with JsonRows(path) as rows:
        pairs = {"en-de": {"perplexity": math.inf, "bleu": np.float32(0.5)}}
        rows.append(3, {"loss": math.nan, "pairs": pairs, "averages": [1.0, -math.inf]})
        rows.append(4, {"loss": 1})
    assert strict(path) == [
        {
            "step": 3,
            "loss": None,
            "pairs": {"en-de": {"perplexity": None, "bleu": 0.5}},
            "averages": [1.0, None],
            "non_finite": ["loss", "pairs.en-de.perplexity", "averages.1"],
        },
        {"step": 4, "loss": 1},
    ]


def test_a_value_that_is_no_figure_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with (
        JsonRows(tmp_path / "rows.jsonl") as rows,
        pytest.raises(TypeError, match="must be a number"),
    ):
        rows.append(1, {"pairs": {"en-de": object()}})
    assert (tmp_path / "rows.jsonl").read_text() == ""


def test_going_on_from_a_step_takes_back_the_later_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step": 3, "lo')
    JsonRows(path, resume_step=2).close()
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_a_line_that_is_no_row_is_removed_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 1}\nnot JSON\n{"loss": 2}\n{"step": 2}\n{"step": true}\n')
    with caplog.at_level(logging.WARNING):
        JsonRows(path, resume_step=2).close()
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    (message,) = caplog.messages
    assert message.startswith(f"{path}: removed 3 lines that are no rows")
    assert "line 2" in message


def test_a_process_beside_the_trainer_changes_nothing_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('not JSON\n{"step": 9}\n')
    with JsonRows(path) as rows:
        rows.append(5, {})
    assert path.read_text() == 'not JSON\n{"step": 9}\n{"step": 5}\n'


def test_half_a_row_of_a_killed_process_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "lo')
    with JsonRows(path) as rows:
        rows.append(3, {})
    assert [row["step"] for row in read_rows(path)] == [1, 3]
    JsonRows(path, resume_step=5).close()
    assert path.read_text() == '{"step": 1}\n{"step": 3}\n'


def test_a_row_for_which_there_is_no_room_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    rows = JsonRows(path)
    rows.append(1, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
    try:
        with pytest.raises(WriteError, match="no space is left for a line"):
            rows.append(2, {"loss": 1.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        rows.close()
    assert path.read_text() == '{"step": 1}\n'


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"Cannot write .*: Is a directory\."):
        JsonRows(tmp_path)
