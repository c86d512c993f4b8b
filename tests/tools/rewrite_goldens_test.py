"""Golden files are written where they differ, and removed where their model is gone."""

from pathlib import Path

import pytest

from lingpipe.registry import registered_names
from tools.rewrite_goldens import GOLDEN, main

NAMES = list(registered_names())


def test_goldens_are_rewritten_where_they_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(tmp_path)
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(NAMES)
    (tmp_path / "params" / "mt.Gone.txt").write_text("")
    changed = tmp_path / "plan" / f"{NAMES[0]}.txt"
    changed.write_text("stage")
    main(tmp_path)
    removed, wrote = capsys.readouterr().out.splitlines()
    assert removed.startswith("removed ") and removed.endswith("params/mt.Gone.txt")
    assert wrote.startswith("wrote ") and wrote.endswith(f"plan/{NAMES[0]}.txt")
    assert changed.read_text() == (GOLDEN / "plan" / changed.name).read_text()
    main(tmp_path)
    assert capsys.readouterr().out == ""
