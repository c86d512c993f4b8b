"""Every ```python block of README.md, CONTRIBUTING.md and docs/ is a program that runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.micro_run import HOUSE, environment

DOCUMENTS = [HOUSE / "README.md", HOUSE / "CONTRIBUTING.md", *sorted((HOUSE / "docs").glob("*.md"))]
PROGRAMS = [
    pytest.param(found[1], id=f"{path.name}-{text.count(chr(10), 0, found.start()) + 1}")
    for path in DOCUMENTS
    for text in [path.read_text(encoding="utf-8")]
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_in_a_document_runs_as_written(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{program}\n{done.stderr[-3000:]}"


def test_a_training_step_takes_at_most_15_lines_from_the_first_import() -> None:
    programs = [str(param.values[0]) for param in PROGRAMS]
    (program,) = [text for text in programs if "pipeline.train_step" in text]
    lines = [line for line in program.splitlines() if line.strip()]
    assert "pipeline.train_step" in "".join(lines[:15])
