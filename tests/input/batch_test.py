"""A cursor is data for a checkpoint, and refuses to be anything else."""

import json
from typing import Any

import pytest

from lingpipe.input.batch import Cursor, CursorError


def test_a_cursor_survives_json() -> None:
    cursor = Cursor(window=10**9, batch=17)
    assert Cursor.from_record(json.loads(json.dumps(cursor.to_record()))) == cursor


@pytest.mark.parametrize("values", [(-1, 0), (0, -1), (1.0, 0), (True, 0), ("1", 0)])
def test_a_place_that_does_not_exist(values: tuple[Any, Any]) -> None:
    with pytest.raises(CursorError, match=r"is no place in a stream; both must be integers >= 0"):
        Cursor(*values)


@pytest.mark.parametrize("record", [{}, {"window": 1}, {"window": 1, "batch": 2, "step": 3}])
def test_a_record_of_something_else(record: dict[str, int]) -> None:
    with pytest.raises(CursorError, match="is no cursor: it must have window and batch"):
        Cursor.from_record(record)
