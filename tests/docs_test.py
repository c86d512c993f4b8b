"""Every command in every document runs, as written.

A command is a line of a ```bash block in README.md, CONTRIBUTING.md or docs/. First each is checked
by itself: verbs and flags parse, models and `--set` paths exist, make has the target, scripts are
there. Then the blocks of a document run one after another in an empty folder, with two differences:
`lingpipe train` takes 2 steps, on 2 languages of a corpus; and blocks that set up the checkout
(make, git, apt-get, ...), which run these very tests, are left out. A block that cannot run here
says why in a comment above it: `<!-- not run: needs two machines -->`.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingpipe.bin.parser import build_parser
from lingpipe.errors import UserError
from lingpipe.registry import lookup

HOUSE = Path(__file__).parents[1]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/*.md")
SHORTER = "--set train.max_steps=2"
FEWER_LANGUAGES = "--set input.languages=de,fr"
TIMEOUT_SECONDS = 900

# Programs of the machine: taken as they are. Those of `SETUP` keep their block from being run.
PLAIN = frozenset(
    {"cat", "cd", "cp", "echo", "export", "grep", "head", "ls", "mkdir", "mv", "paste", "printf"}
    | {"sort", "tail", "tee", "wc"}
)
SETUP = frozenset(
    {".", "apt-get", "bazel", "git", "make", "mypy", "pip", "pytest", "ruff", "source", "sudo"}
    | {"tensorboard"}
)
_SEPARATORS = {"|", "||", "&", "&&", ";", ";;", "(", ")"}
_SKIPPED = {"for", "done", "fi"}
_PREFIXES = {"do", "then", "else", "if", "while", "!", "time"}


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block of commands: where it starts, its text, and why it is not run, or ''."""

    document: str
    line: int
    text: str
    reason_not_run: str

    def commands(self) -> list[list[str]]:
        """The words of each simple command; assignments, redirections and loops are dropped."""
        joined = self.text.replace("\\\n", " ")
        every = (command for line in joined.splitlines() for command in _simple_commands(line))
        return [command for command in every if command]

    def is_run(self) -> bool:
        """Whether the block can run in an empty folder."""
        programs = {_program(command) for command in self.commands()}
        scripts = [program for program in programs if "/" in program]
        return not (self.reason_not_run or programs & SETUP or scripts)

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(document: str, text: str) -> Iterator[Block]:
    """The blocks of commands of one document."""
    pattern = r"(?:<!-- not run: (.+?) -->\n+)?^```(\w*)[^\n]*\n(.*?)^```$"
    for found in re.finditer(pattern, text, re.DOTALL | re.MULTILINE):
        reason, language, body = found.groups()
        line = text.count("\n", 0, found.start(3))
        assert language not in ("sh", "shell", "console", "zsh"), (
            f"{document}:{line}: write ```bash, so that the commands are checked, or ```text"
        )
        if language == "bash":
            yield Block(document, line, body, reason or "")


def faults(block: Block) -> list[str]:
    """What is wrong with the commands of `block`, each with its place."""
    every = ((command, _fault(command)) for command in block.commands())
    return [f"{block}: {shlex.join(command)}: {fault}" for command, fault in every if fault]


def _simple_commands(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    words = iter(lexer)
    for word in words:
        if word in _SEPARATORS:
            yield _without_prefixes(command)
            command = []
        elif set(word) <= set("<>&"):
            next(words, None)
            if command and command[-1].isdigit():
                command.pop()
        else:
            command.append(word)
    yield _without_prefixes(command)


def _without_prefixes(command: list[str]) -> list[str]:
    while command and (command[0] in _PREFIXES or re.match(r"\w+=", command[0])):
        command = command[1:]
    return [] if command and command[0] in _SKIPPED else command


def _program(command: list[str]) -> str:
    """What a command runs: `python -m pytest` runs pytest."""
    return command[2] if command[1:2] == ["-m"] and len(command) > 2 else command[0]


def _fault(command: list[str]) -> str:
    program, *arguments = command
    name = Path(program).name or program
    if name == "lingpipe":
        return _lingpipe_fault(arguments)
    if re.fullmatch(r"python[\d.]*", name):
        return _python_fault(arguments)
    if name == "make":
        return _make_fault(arguments)
    if name in ("pytest", "ruff", "mypy") or program.startswith("tools/"):
        paths = [word.partition("::")[0] for word in [program, *arguments] if _is_own_path(word)]
        return "; ".join(f"there is no {path}" for path in paths if not (HOUSE / path).exists())
    if name in PLAIN | SETUP:
        return ""
    return "unknown program: if it is right, name it in tests/docs_test.py"


def _make_fault(arguments: list[str]) -> str:
    # These tests may run under make, whose flags must not reach this one.
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    command = ["make", "--dry-run", *arguments]
    done = subprocess.run(command, cwd=HOUSE, env=environment, capture_output=True, text=True)
    return done.stderr.strip()


def _is_own_path(word: str) -> bool:
    return word.startswith(("tests/", "tools/", "lingpipe/", "tasks/", "params/"))


def _python_fault(arguments: list[str]) -> str:
    if arguments[:1] != ["-m"]:
        return "only `python -m MODULE` can be checked"
    module, *rest = arguments[1:]
    if module == "lingpipe":
        return _lingpipe_fault(rest)
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    return "" if spec else f"there is no module {module}"


def _lingpipe_fault(arguments: list[str]) -> str:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            parsed = build_parser().parse_args(arguments)
    except SystemExit as exit_:
        return said.getvalue().strip() if exit_.code else ""
    return _params_fault(parsed)


def _params_fault(parsed: argparse.Namespace) -> str:
    """Whether the models that a command names exist and have the fields that it sets."""
    from lingpipe.task.model_params import make_experiment

    models = [getattr(parsed, "model", None), *(getattr(parsed, "diff", None) or [])]
    try:
        for model in filter(None, models):
            make_experiment(lookup(model), getattr(parsed, "overrides", []))
    except UserError as error:
        return str(error)
    return ""


def _document_names() -> list[str]:
    found = (path for pattern in DOCUMENTS for path in sorted(HOUSE.glob(pattern)))
    return [path.relative_to(HOUSE).as_posix() for path in found]


def _blocks_of(document: str) -> list[Block]:
    return list(blocks(document, (HOUSE / document).read_text(encoding="utf-8")))


def _programs(folder: Path) -> Path:
    """A folder with `lingpipe` and `python` as the documents mean them, but for short training."""
    programs = folder / "programs"
    programs.mkdir()
    python = shlex.quote(sys.executable)
    lingpipe = (
        f'[ "$1" = train ] && set -- "$@" {SHORTER}\n'
        f'case "$*" in train*mt.multilingual.*) set -- "$@" {FEWER_LANGUAGES} ;; esac\n'
        f'exec {python} -m lingpipe "$@"'
    )
    for name, text in {"python": f'exec {python} "$@"', "lingpipe": lingpipe}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    return programs


def test_the_documents_that_must_have_commands_have_them() -> None:
    assert {"README.md", "CONTRIBUTING.md"} <= set(_document_names())
    assert _blocks_of("README.md"), "README.md shows no command"


@pytest.mark.parametrize("document", _document_names())
def test_commands_are_well_formed(document: str) -> None:
    found = [fault for block in _blocks_of(document) for fault in faults(block)]
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize("document", _document_names())
def test_commands_run_as_written(document: str, tmp_path: Path) -> None:
    run = [block for block in _blocks_of(document) if block.is_run()]
    work = tmp_path / "work"
    work.mkdir()
    path = os.pathsep.join([str(_programs(tmp_path)), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(HOUSE)}
    for block in run:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=work,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        assert done.returncode == 0, f"{block}:\n{block.text}\n{done.stderr[-3000:]}"


def _block(text: str) -> Block:
    return next(blocks("a.md", f"Words.\n\n```bash\n{text}\n```\n"))


def test_commands_are_found_in_what_a_shell_would_read() -> None:
    block = _block(
        "# A comment.\n"
        "echo 'a | b' | lingpipe decode --to=fr \\\n"
        "    --logdir=runs/x > out.txt 2>&1  # why\n"
        "for language in fr de; do\n"
        "  X=1 make test; done\n"
    )
    assert block.commands() == [
        ["echo", "a | b"],
        ["lingpipe", "decode", "--to=fr", "--logdir=runs/x"],
        ["make", "test"],
    ]
    assert not block.is_run()
    assert not _block("python -m pytest tests").is_run()
    assert _block("echo a | python -m lingpipe params --list").is_run()


def test_a_block_that_says_why_is_not_run() -> None:
    text = "<!-- not run: needs two machines -->\n```bash\nlingpipe params --list\n```\n"
    assert [block.reason_not_run for block in blocks("a.md", text)] == ["needs two machines"]


def test_other_blocks_hold_no_commands_and_other_shell_names_are_refused() -> None:
    assert list(blocks("a.md", "```python\nx = 1\n```\n\n```\nls\n```\n")) == []
    with pytest.raises(AssertionError, match="write ```bash"):
        list(blocks("a.md", "```sh\nls\n```\n"))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("lingpipe fly", "invalid choice: 'fly'"),
        ("lingpipe train --model=mt.multilingual.Tiny", "--logdir"),
        ("python -m lingpipe decode --logdir=a --to=fr --beams=4", "--beams=4"),
        ("lingpipe params --model=mt.multilingual.Tinny", "Tinny"),
        ("lingpipe plan --model=mt.multilingual.Tiny --set pipeline.num_stage=2", "num_stage"),
        ("make lunch", "lunch"),
        ("python -m tools.none", "no module tools.none"),
        ("tools/none.sh", "no tools/none.sh"),
        ("frobnicate", "unknown program"),
    ],
)
def test_a_wrong_command_is_caught(command: str, words: str) -> None:
    (fault,) = faults(_block(command))
    assert fault.startswith("a.md:3: ")
    assert words in fault


@pytest.mark.parametrize(
    "command",
    ["lingpipe --help", "make test PYTHON=python3.12", "python -m pytest tests/docs_test.py"],
)
def test_a_right_command_is_not(command: str) -> None:
    assert faults(_block(command)) == []
