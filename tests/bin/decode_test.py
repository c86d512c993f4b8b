"""`lingpipe decode`: a line for a line through the whole command, and mistakes told in one."""

import gzip
import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from lingpipe.__main__ import main
from tests.bin.refusals import refusal, tree
from tests.micro_run import AWKWARD_LINES, command, environment, lingpipe

Capture = pytest.CaptureFixture[str]
NUM_LINES = AWKWARD_LINES.count(b"\n") + 1


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.en"
    path.write_bytes(AWKWARD_LINES)
    return path


def decoded(logdir: Path, source: Path, *flags: str) -> bytes:
    """What the command writes to a file."""
    target = source.with_name("target")
    assert (
        main(["decode", f"--logdir={logdir}", f"--input={source}", f"--output={target}", *flags])
        == 0
    )
    return target.read_bytes()


def test_one_line_out_for_each_line_in(micro_run: Path, source: Path) -> None:
    output = decoded(micro_run, source, "--to=fr")
    assert output.count(b"\n") == NUM_LINES == 17
    assert output.endswith(b"\n")
    assert b"\r" not in output
    blank = [number for number, line in enumerate(output.split(b"\n")[:-1]) if not line]
    assert {1, 2, 3, 10, 12} <= set(blank)


def test_n_best_lines_with_scores(micro_run: Path, source: Path) -> None:
    flags = ("--to=fr", "--from=en", "--nbest=3", "--beam_size=3", "--with_scores")
    output = decoded(micro_run, source, *flags, "--batch_size=3", "--checkpoint=150")
    lines = output.decode().split("\n")[:-1]
    assert len(lines) == 3 * NUM_LINES
    for first, second, third in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        scores = [float(line.split("\t", 1)[0]) for line in (first, second, third)]
        assert scores == sorted(scores, reverse=True)
    assert lines[3:6] == ["0.000000\t"] * 3, "a blank line"


def test_from_a_pipe_into_a_pipe(micro_run: Path, source: Path) -> None:
    flags = (f"--logdir={micro_run}", "--to=fr")
    done = lingpipe("decode", *flags, stdin=AWKWARD_LINES)
    assert done.returncode == 0
    assert done.stdout == decoded(micro_run, source, "--to=fr")
    (warning,) = done.stderr.decode().splitlines()
    assert warning.startswith("Line 16 has 603 tokens")


def test_a_reader_that_has_gone_ends_the_work_quietly(micro_run: Path, tmp_path: Path) -> None:
    """As in `lingpipe decode ... | head -1`; blank lines need no model, so there can be many."""
    (tmp_path / "blank").write_bytes(b"\n" * 300_000)
    with subprocess.Popen(
        command("decode", f"--logdir={micro_run}", "--to=fr", f"--input={tmp_path}/blank"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == b"\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_a_person_at_a_terminal_is_answered_line_by_line(micro_run: Path) -> None:
    terminal, stdin = pty.openpty()
    with subprocess.Popen(
        command("decode", f"--logdir={micro_run}", "--to=fr"),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    ) as process:
        os.close(stdin)
        assert process.stdout
        os.write(terminal, b"one two\n")
        assert process.stdout.readline().endswith(b"\n")
        os.write(terminal, b"\n")
        assert process.stdout.readline() == b"\n"
        os.write(terminal, b"\x04")  # Control-D ends the input.
        assert process.stdout.read() == b""
    os.close(terminal)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--to=dee"], "does not translate into 'dee'"),
        (["--to=dee"], "did you mean 'de'?"),
        (["--to=de", "--from=enn"], "does not translate from 'enn'; did you mean 'en'?"),
        (["--to=de", "--nbest=5"], "nbest (5) must be at most beam_size (4); widen the beam"),
        (["--to=de", "--checkpoint=77"], "no checkpoint of step 77"),
        (["--to=de", "--checkpoint=lats"], "'lats' is no checkpoint; use last, best or a step"),
        (["--to=de", "--beam_size=99999999999999999999"], "must be at least 1 and at most 1,000."),
        (["--to=de", "--output="], "it is empty; leave the flag out for the standard stream"),
        (["--to=de", "--output=" + "x" * 300], "File name too long"),
        (["--to=de", "--beam_size=0"], "'0' must be a whole number of at least 1"),
        (["--to=de", "--length_penalty=nan"], "'nan' must be a number, such as 0.6"),
        (["--to=de", "--length_penalty=1e300"], "length_penalty (1e+300) must be in [-10, 10]"),
        (["--to=de", "--checkpoint=" + "7" * 5000], "is no checkpoint; use last, best or a step"),
        (["--to=de", "--length_penalty=much"], "'much' must be a number, such as 0.6"),
        (["--to=de", "--output=/nowhere/file"], "Cannot write /nowhere/file: No such file"),
        ([], "the following arguments are required: --to"),
    ],
)
def test_a_wrong_option_is_told(
    capfd: Capture, micro_run: Path, source: Path, flags: list[str], words: str
) -> None:
    before = tree(source.parent)
    message = refusal(capfd, "decode", f"--logdir={micro_run}", f"--input={source}", *flags)
    assert words in message
    assert tree(source.parent) == before


@pytest.mark.parametrize(
    ("redirection", "words"),
    [
        ("<&-", "Cannot read standard input: Bad file descriptor."),
        ("</dev/null >/dev/null", ""),
        (">/dev/full", "Cannot write standard output: No space left on device."),
    ],
)
def test_streams_that_cannot_be_used_are_told(
    micro_run: Path, source: Path, redirection: str, words: str
) -> None:
    script = f'exec "$@" {redirection}'
    done = subprocess.run(
        ["bash", "-c", script, "-", *command("decode", f"--logdir={micro_run}", "--to=fr")],
        input=b"one\n",
        capture_output=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == (2 if words else 0)
    assert done.stderr.decode() == (f"lingpipe decode: {words}\n" if words else "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("source.ne", "did you mean"),
        ("folder", "is a folder, not a text file"),
        ("latin", "latin, line 3 is not UTF-8: it has byte 0xe9 at byte 4"),
        ("cut.gz", "cut.gz is cut short"),
        ("nowhere/file", "neither does its folder"),
    ],
)
def test_a_source_that_cannot_be_read_is_told(
    capfd: Capture, micro_run: Path, source: Path, name: str, words: str
) -> None:
    (source.parent / "folder").mkdir()
    (source.parent / "latin").write_bytes("one\ntwo\ncafés\n".encode("latin-1"))
    data = gzip.compress(AWKWARD_LINES)
    (source.parent / "cut.gz").write_bytes(data[:-20])
    before = tree(source.parent)
    path, target = source.parent / name, source.parent / "target"
    flags = (f"--logdir={micro_run}", "--to=de", f"--input={path}", f"--output={target}")
    assert words in refusal(capfd, "decode", *flags)
    assert tree(source.parent) == before


def test_a_folder_that_is_no_run_directory(capfd: Capture, source: Path) -> None:
    message = refusal(capfd, "decode", f"--logdir={source.parent}", "--to=de", f"--input={source}")
    assert f"{source.parent} is not a run directory" in message


def test_a_run_without_its_vocabulary(
    capfd: Capture, micro_run: Path, source: Path, tmp_path: Path
) -> None:
    logdir = tmp_path / "run"
    shutil.copytree(micro_run, logdir)
    shutil.rmtree(logdir / "vocab")
    message = refusal(capfd, "decode", f"--logdir={logdir}", "--to=de", f"--input={source}")
    assert f"{logdir}/vocab lacks the vocabulary" in message
