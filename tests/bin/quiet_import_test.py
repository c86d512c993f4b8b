"""What a module writes to stderr while it is imported is kept back, unless somebody needs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.micro_run import environment

# Like TensorFlow, it writes past Python's sys.stderr.
NOISY = "import os\nos.write(2, b'noise\\n')\n"


def imported(folder: Path, source: str, program: str = "", level: str | None = None) -> str:
    """Imports a module with this source in a fresh Python; returns what it wrote to stderr."""
    (folder / "noisy.py").write_text(source)
    variables = dict(environment())
    variables.pop("TF_CPP_MIN_LOG_LEVEL", None)
    if level is not None:
        variables["TF_CPP_MIN_LOG_LEVEL"] = level
    text = (
        "import os, sys\n"
        "from lingpipe.bin.quiet_import import import_quietly\n"
        "noisy = import_quietly('noisy')\n"
        "os.write(2, b'after\\n')\n"
        f"{program}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr


def test_what_an_import_says_is_kept_back_and_nothing_after_it(tmp_path: Path) -> None:
    assert imported(tmp_path, NOISY) == "after\n"


def test_the_module_is_returned(tmp_path: Path) -> None:
    assert imported(tmp_path, "value = 3", "sys.stderr.write(str(noisy.value))") == "after\n3"


@pytest.mark.parametrize(("level", "words"), [("0", "noise\nafter\n"), ("1", "after\n")])
def test_a_user_who_asks_for_the_log_sees_it(tmp_path: Path, level: str, words: str) -> None:
    assert imported(tmp_path, NOISY, level=level) == words


def test_what_a_failing_import_said_is_shown(tmp_path: Path) -> None:
    stderr = imported(tmp_path, NOISY + "raise ImportError('no such library')")
    assert stderr.startswith("noise\nTraceback")
    assert stderr.endswith("ImportError: no such library\n")


def test_the_level_is_set_for_tensorflow_unless_the_user_has_set_it(tmp_path: Path) -> None:
    show = "sys.stderr.write(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    assert imported(tmp_path, "", show) == "after\n3"
    assert imported(tmp_path, "", show, level="1") == "after\n1"


def test_a_process_without_stderr_can_import(tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text("")
    program = "from lingpipe.bin.quiet_import import import_quietly as f; f('quiet'); print(1)"
    done = subprocess.run(
        ["bash", "-c", f'exec {sys.executable} -c "{program}" 2>&-'],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"1\n"
