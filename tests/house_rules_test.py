"""One idea, one file: limits on length, an opening paragraph in every file, no drawer for odds.

Needing an exception to a limit means that the file or function holds two ideas: split it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

HOUSE = Path(__file__).parents[1]
ROOTS = ("lingpipe", "tasks", "params", "tools")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
DRAWERS = ("utils.py", "util.py", "helpers.py", "common.py", "misc.py")


def sources(house: Path, roots: tuple[str, ...] = ROOTS) -> Iterator[tuple[str, str]]:
    """Name and text of every Python file under the roots of `house`."""
    for root in roots:
        for path in sorted((house / root).rglob("*.py")):
            yield path.relative_to(house).as_posix(), path.read_text(encoding="utf-8")


def long_files(house: Path) -> list[str]:
    """Source files of more than `MAX_FILE_LINES` lines."""
    lengths = ((name, len(text.splitlines())) for name, text in sources(house))
    return [f"{name}: {lines} lines" for name, lines in lengths if lines > MAX_FILE_LINES]


def long_functions(house: Path) -> list[str]:
    """Functions of more than `MAX_FUNCTION_LINES` lines, from `def` to the last line."""
    return [
        f"{name}:{node.lineno}: {node.name} has {_length(node)} lines"
        for name, text in sources(house)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _length(node) > MAX_FUNCTION_LINES
    ]


def files_without_an_opening(house: Path) -> list[str]:
    """Python files, tests too, that do not begin with a docstring."""
    every = sources(house, (*ROOTS, "tests"))
    return [name for name, text in every if ast.get_docstring(ast.parse(text)) is None]


def drawers(house: Path) -> list[str]:
    """Files whose name says that anything may lie in them."""
    every = sources(house, (*ROOTS, "tests"))
    return [name for name, _ in every if name.rpartition("/")[2] in DRAWERS]


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def listed(faults: list[str]) -> str:
    """One fault a line, for a failing assertion to show in full."""
    return "\n  ".join(["", *faults])


def test_files_are_short() -> None:
    assert len(list(sources(HOUSE))) > 20, "hardly any source was found: wrong folder?"
    assert not (faults := long_files(HOUSE)), listed(faults)


def test_functions_are_short() -> None:
    assert not (faults := long_functions(HOUSE)), listed(faults)


def test_every_file_opens_with_a_paragraph() -> None:
    assert not (faults := files_without_an_opening(HOUSE)), listed(faults)


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    assert not (faults := drawers(HOUSE)), listed(faults)


def test_what_breaks_the_rules_is_named(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    body = "def draw():\n" + "    x = 1\n" * 61
    (tmp_path / "tools" / "utils.py").write_text(body, encoding="utf-8")
    (tmp_path / "tools" / "long.py").write_text('"""Long."""\n' * 401, encoding="utf-8")
    assert long_files(tmp_path) == ["tools/long.py: 401 lines"]
    assert long_functions(tmp_path) == ["tools/utils.py:1: draw has 62 lines"]
    assert files_without_an_opening(tmp_path) == ["tools/utils.py"]
    assert drawers(tmp_path) == ["tools/utils.py"]
