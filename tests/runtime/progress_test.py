"""A bar where somebody looks, a line now and then where it goes to a file."""

import io

import pytest

from lingpipe.runtime.progress import Progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that have passed; a test changes them."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_every_ten_seconds_and_the_last_step(clock: list[float]) -> None:
    stream = io.StringIO()
    with Progress(0, 8, stream=stream) as progress:
        for step in range(1, 9):
            clock[0] += 4
            progress.advance(step, 10 / step)
    assert stream.getvalue().splitlines() == [
        "step 3 of 8: loss 3.333",
        "step 6 of 8: loss 1.667",
        "step 8 of 8: loss 1.25",
    ]


class Lost(io.StringIO):
    """A stream whose reader has gone, or whose disk is full."""

    attempts = 0

    def write(self, text: str) -> int:
        self.attempts += 1
        raise BrokenPipeError(32, "Broken pipe")


def test_a_reader_that_has_gone_does_not_end_the_run(clock: list[float]) -> None:
    stream, steps = Lost(), []
    with Progress(0, 3, stream=stream) as progress:
        for step in range(1, 4):
            clock[0] += 11
            progress.advance(step, 1.0)
            progress.note("saved")
            steps.append(step)
    assert steps == [1, 2, 3]
    assert stream.attempts == 1  # It is not tried again.


def test_a_terminal_gets_a_bar_with_the_loss() -> None:
    stream = Terminal()
    with Progress(3, 5, stream=stream) as progress:
        progress.advance(4, 1.5)
        progress.advance(5, 0.25)
    assert "5/5" in stream.getvalue()
    assert "loss=0.250" in stream.getvalue()
    assert "step 5 of 5" not in stream.getvalue()


def test_a_note_stands_on_lines_of_its_own_beside_the_bar() -> None:
    stream = Terminal()
    with Progress(0, 5, stream=stream) as progress:
        progress.advance(1, 1.0)
        progress.note("dev loss 3\nsaved")
    assert "dev loss 3\nsaved\n" in stream.getvalue()


def test_a_note_in_a_log_is_a_line(clock: list[float]) -> None:
    stream = io.StringIO()
    with Progress(0, 5, stream=stream) as progress:
        progress.note("dev loss 3")
    assert stream.getvalue() == "dev loss 3\n"


@pytest.mark.parametrize("start", [5, 9])
def test_a_run_that_is_done_draws_no_bar(start: int) -> None:
    stream = Terminal()
    with Progress(start, 5, stream=stream) as progress:
        progress.note("done")
    assert stream.getvalue() == "done\n"
