"""Lines in, as many lines out: to a file that appears whole, or to a stream, as they come."""

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lingpipe.base.output import WriteError
from lingpipe.errors import UserError
from lingpipe.input.lines import TextError
from lingpipe.runtime.decoder import decode_lines
from lingpipe.task.decode_options import DecodeOptions
from lingpipe.task.task import Hypothesis

Capture = pytest.CaptureFixture[bytes]


class Echo:
    """A task that answers a line with itself, once for each of the n best."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def decode(
        self, run: Any, lines: Iterable[str], options: DecodeOptions
    ) -> Iterator[Sequence[Hypothesis]]:
        for line in lines:
            self.asked.append(line)
            yield [Hypothesis(line, -0.5 * n) for n in range(options.nbest)]


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Echo:
    """Stands in for the task of every run."""
    echo = Echo()
    monkeypatch.setattr("lingpipe.runtime.decoder.open_run", lambda *_: (echo, None))
    return echo


def decode(
    source: Path | None = None,
    target: Path | None = None,
    *,
    nbest: int = 1,
    with_scores: bool = False,
    read_ahead: bool = True,
) -> None:
    options = DecodeOptions(target_language="de", nbest=nbest, read_ahead=read_ahead)
    decode_lines(
        "run", "last", options, input_file=source, output_file=target, with_scores=with_scores
    )


def written(folder: Path, data: bytes) -> Path:
    path = folder / "source"
    path.write_bytes(data)
    return path


LINES = ["one", "", " ", "\t", "a\x85b", "a\u2028b", "a\x0bb", "a\x0cb", "a\x00b", "\xa0", "\u3000"]


def test_as_many_lines_come_out_as_go_in(task: Echo, capsysbinary: Capture, tmp_path: Path) -> None:
    text = "".join(f"{line}\n" for line in LINES)
    decode(written(tmp_path, text.encode()))
    assert task.asked == LINES
    assert capsysbinary.readouterr().out == text.encode()


def test_ends_of_lines_become_plain_ones(task: Echo, capsysbinary: Capture, tmp_path: Path) -> None:
    decode(written(tmp_path, b"\xef\xbb\xbfone\r\ntwo\nthree"))
    assert capsysbinary.readouterr().out == b"one\ntwo\nthree\n"


def test_nothing_gives_nothing(task: Echo, capsysbinary: Capture, tmp_path: Path) -> None:
    decode(written(tmp_path, b""))
    assert capsysbinary.readouterr().out == b""


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\nb", b"a b\n"), ("a\rb", b"a b\n"), ("a\r\n", b"a  \n"), ("\n\n", b"  \n")],
)
@pytest.mark.parametrize("with_scores", [False, True])
def test_a_translation_is_one_line_whatever_the_model_spells(
    task: Echo,
    capsysbinary: Capture,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    line: bytes,
    with_scores: bool,
) -> None:
    monkeypatch.setattr(task, "decode", lambda *_: iter([[Hypothesis(text, 0.0)]]))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x\n")))
    decode(with_scores=with_scores)
    assert capsysbinary.readouterr().out == (b"0.000000\t" if with_scores else b"") + line


def test_the_n_best_follow_each_other(task: Echo, capsysbinary: Capture, tmp_path: Path) -> None:
    decode(written(tmp_path, b"one\n\ntwo\n"), nbest=2)
    assert capsysbinary.readouterr().out == b"one\none\n\n\ntwo\ntwo\n"


def test_a_score_and_a_tab_stand_before_each_line(
    task: Echo, capsysbinary: Capture, tmp_path: Path
) -> None:
    decode(written(tmp_path, b"one\ntwo\tthree\n"), nbest=2, with_scores=True)
    assert capsysbinary.readouterr().out == (
        b"0.000000\tone\n-0.500000\tone\n0.000000\ttwo\tthree\n-0.500000\ttwo\tthree\n"
    )


def test_the_file_appears_whole_at_the_end(
    task: Echo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    target.write_text("old")

    def decode_slowly(*_: object) -> Iterator[list[Hypothesis]]:
        yield [Hypothesis("new", 0.0)]
        assert target.read_text() == "old"
        yield [Hypothesis("newer", 0.0)]

    monkeypatch.setattr(task, "decode", decode_slowly)
    decode(written(tmp_path, b"one\ntwo\n"), target)
    assert target.read_text() == "new\nnewer\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


def test_a_failure_leaves_the_old_file_and_nothing_else(task: Echo, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    with pytest.raises(TextError, match=r"source, line 2 is not UTF-8"):
        decode(written(tmp_path, b"one\n\xff\n"), target)
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


def test_a_target_may_be_the_source(task: Echo, tmp_path: Path) -> None:
    path = written(tmp_path, b"one\r\ntwo")
    decode(path, path)
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_link_is_followed_and_stays_a_link(task: Echo, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    decode(written(tmp_path, b"one\n"), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "one\n"


def test_a_pipe_or_device_is_written_not_replaced(task: Echo, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    decode(written(tmp_path, b"one\n"), pipe)
    assert os.read(reader, 100) == b"one\n"
    os.close(reader)
    assert pipe.is_fifo()
    decode(written(tmp_path, b"one\n"), Path(os.devnull))
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("missing/target", "No such file or directory"),
        ("source/target", "Not a directory"),
        (".", "Is a directory"),
    ],
)
def test_a_target_that_cannot_be_written_is_named_before_the_work(
    task: Echo, tmp_path: Path, target: str, reason: str
) -> None:
    with pytest.raises(WriteError) as caught:
        decode(written(tmp_path, b"one\n"), tmp_path / target)
    assert str(caught.value) == f"Cannot write {tmp_path / target}: {reason}."
    assert task.asked == []


def test_a_source_that_cannot_be_read_is_named_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingpipe.runtime.decoder.open_run", lambda *_: 1 / 0)
    with pytest.raises(TextError, match="is a folder"):
        decode(tmp_path)
    with pytest.raises(TextError, match="did you mean .*source"):
        decode(written(tmp_path, b"").with_name("sorce"))
    with pytest.raises(TextError, match="line 1 is not UTF-8"):
        decode(written(tmp_path, b"\xff\n"))


def test_a_refused_option_leaves_no_file(
    task: Echo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UserError("no such language")

    monkeypatch.setattr(task, "decode", refuse)
    with pytest.raises(UserError, match="no such language"):
        decode(written(tmp_path, b"one\n"), tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("read_ahead", [False, True])
def test_without_reading_ahead_each_line_is_answered_before_the_next_is_read(
    task: Echo, monkeypatch: pytest.MonkeyPatch, read_ahead: bool
) -> None:
    """A person at a terminal, or a program at the other end of a pipe, waits for the answer."""
    answered: list[int] = []
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    monkeypatch.setattr(sys, "stdout", os.fdopen(write_end, "w"))

    class Typist(io.RawIOBase):
        """Types a line, and notes how many answers there are by then."""

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            if len(answered) == 3:
                return 0
            try:
                received = os.read(read_end, 1000)
            except BlockingIOError:
                received = b""
            answered.append(received.count(b"\n"))
            buffer[:2] = b"x\n"
            return 2

    stdin = io.TextIOWrapper(io.BufferedReader(Typist(), buffer_size=2))
    monkeypatch.setattr(sys, "stdin", stdin)
    decode(read_ahead=read_ahead)
    assert answered == ([0, 0, 0] if read_ahead else [0, 1, 1])
    sys.stdout.close()
    os.close(read_end)
