"""The package from outside: light to import, and clear to type checkers."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]


def test_importing_takes_the_standard_library_only() -> None:
    program = textwrap.dedent(
        """
        import sys
        import lingpipe.hyperparams, lingpipe.registry
        heavy = {"tensorflow", "numpy", "absl", "keras"} & set(sys.modules)
        sys.exit(f"imported: {heavy}" if heavy else 0)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=HOUSE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_type_checker_sees_the_fields_and_nothing_else(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    program = """
        from lingpipe.hyperparams import REQUIRED, Parameterized

        class A(Parameterized):
            class Params(Parameterized.Params):
                width: int = REQUIRED
                rate: float = 0.0

            def __init__(self, params: Params) -> None:
                self.params = params

        class B(A):
            class Params(A.Params):
                child: A.Params = A.Params()

        class Wide(B.Params):
            width = 4

        params = Wide(rate=1).copy(width=3)
        number: int = params.width + params.child.width
        B.Params.from_text(params.to_text()).freeze().child.copy().rate = 0.5
        params.widht = 3
        params.width = "x"
        B.Params(widht=3)
        B.Params(3)
        B.Params(width="x")
        print(params.widht)
    """
    file = tmp_path / "typed.py"
    file.write_text(textwrap.dedent(program), encoding="utf-8")
    cache = str(HOUSE / ".mypy_cache")
    found, _, _ = api.run([str(file), "--cache-dir", cache, "--no-error-summary"])
    lines = [line.split(": ", 1)[0].rpartition(":")[2] for line in found.splitlines()]
    first = program.split("\n").index("        params.widht = 3")
    assert lines == [str(line) for line in range(first + 1, first + 7)], found
