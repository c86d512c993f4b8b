"""Decodes a file or a stream with a checkpoint of a run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from lingpipe.input.lines import iterate_lines, read_lines
from lingpipe.runtime.files import RunDirectoryError
from lingpipe.runtime.opening import open_run
from lingpipe.task.task import DecodeOptions, Hypothesis


def decode_lines(
    logdir: str | Path,
    checkpoint: str,
    options: DecodeOptions,
    *,
    source: Path | None,
    target: Path | None,
    with_scores: bool,
) -> None:
    """Writes `options.nbest` lines for each line read, in order.

    Args:
      logdir: the run directory.
      checkpoint: "last", "best" or a step.
      options: language, beam and so on.
      source: file to read; None for standard input.
      target: file to write, which appears whole once all is done; None for standard output.
      with_scores: put the score and a tab before each line.

    Raises:
      UserError: the run, the options or a file cannot be used.
    """
    lines = read_lines(source) if source else iterate_lines(sys.stdin.buffer, "standard input")
    # Reading the first line early finds a file that cannot be read before the model is loaded.
    lines = _started(lines) if source else lines
    task, run = open_run(logdir, checkpoint)
    results = task.decode(run, lines, options)
    with _writing(target) as file:
        for hypotheses in results:
            for hypothesis in hypotheses:
                file.write(_line(hypothesis, with_scores).encode("utf-8") + b"\n")
            if not options.read_ahead:
                file.flush()
        file.flush()


def _line(hypothesis: Hypothesis, with_scores: bool) -> str:
    return f"{hypothesis.score:.6f}\t{hypothesis.text}" if with_scores else hypothesis.text


def _started(lines: Iterator[str]) -> Iterable[str]:
    """The same lines, the first of them already read."""
    first = next(lines, None)

    def all_lines() -> Iterator[str]:
        if first is not None:
            yield first
            yield from lines

    return all_lines()


@contextlib.contextmanager
def _writing(target: Path | None) -> Iterator[IO[bytes]]:
    """Standard output, or a file that takes its name only once it is complete."""
    if target is None:
        yield sys.stdout.buffer
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, target)
    except OSError as error:
        raise RunDirectoryError(f"Cannot write {target}: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)
