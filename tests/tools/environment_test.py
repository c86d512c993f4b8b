"""What tools/environment.sh says when it cannot make the environment; nothing is installed here."""

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools" / "environment.sh"


def _run(level: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    command = ["bash", str(SCRIPT), level]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def _old_python(folder: Path) -> str:
    path = folder / "old_python"
    path.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\nexit 1\n')
    path.chmod(0o755)
    return str(path)


def test_a_python_that_is_too_old_is_named_with_its_version(tmp_path: Path) -> None:
    old = _old_python(tmp_path)
    done = _run("run", PYTHON=old, VENV=str(tmp_path / "venv"))
    assert done.returncode == 1
    assert f"needs Python 3.11, 3.12 or 3.13, but {old} is Python 3.9.2." in done.stderr
    assert "name yours with PYTHON=" in done.stderr


def test_a_missing_python_is_named(tmp_path: Path) -> None:
    done = _run("run", PYTHON="/nowhere/python", VENV=str(tmp_path / "venv"))
    assert done.returncode == 1
    assert "no /nowhere/python was found" in done.stderr


def test_a_folder_that_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "venv" / "precious.txt"
    precious.parent.mkdir()
    precious.write_text("mine")
    done = _run("dev", VENV=str(precious.parent))
    assert done.returncode == 1
    assert "is not a virtual environment; move it away or set VENV" in done.stderr
    assert precious.read_text() == "mine"


def test_an_unknown_level_is_refused() -> None:
    done = _run("all")
    assert done.returncode == 1
    assert "the level is 'run' or 'dev', not 'all'" in done.stderr
