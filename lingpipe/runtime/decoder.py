"""Decodes a file or a stream with a checkpoint of a run."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from lingpipe.base.atomic_file import WriteError
from lingpipe.errors import UserError
from lingpipe.input.lines import iterate_lines, read_lines
from lingpipe.runtime.opening import open_run
from lingpipe.task.task import DecodeOptions, Hypothesis

# A model that spells characters as bytes can spell these too.
_ONE_LINE = str.maketrans("\r\n", "  ")


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
    # Both files are tried before the model is loaded.
    with _reading(source) as lines, _writing(target) as file:
        task, run = open_run(logdir, checkpoint)
        for hypotheses in task.decode(run, lines, options):
            for hypothesis in hypotheses:
                file.write(_line(hypothesis, with_scores).encode("utf-8") + b"\n")
            if not options.read_ahead:
                file.flush()
        file.flush()


def _line(hypothesis: Hypothesis, with_scores: bool) -> str:
    text = hypothesis.text.translate(_ONE_LINE)
    return f"{hypothesis.score:z.6f}\t{text}" if with_scores else text


@contextlib.contextmanager
def _reading(source: Path | None) -> Iterator[Iterable[str]]:
    """The lines of standard input, or those of a file, the first of them already read."""
    if source is None:
        yield iterate_lines(sys.stdin.buffer, "standard input")
        return
    with contextlib.closing(read_lines(source)) as lines:
        yield itertools.chain(list(itertools.islice(lines, 1)), lines)


@contextlib.contextmanager
def _writing(target: Path | None) -> Iterator[IO[bytes]]:
    """Standard output, or a file that takes its name only once it is complete.

    A device or a named pipe, such as /dev/stdout, is written as it is.

    Raises:
      WriteError: the file cannot be written.
    """
    if target is None:
        yield sys.stdout.buffer
        return
    try:
        if target.exists() and not target.is_file():
            with open(target, "wb") as file:
                yield file
            return
        final = target.resolve()  # What a symbolic link points to is replaced, not the link.
        temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
        try:
            with open(temporary, "wb") as file:
                yield file
            os.replace(temporary, final)
        finally:
            temporary.unlink(missing_ok=True)
    except (UserError, BrokenPipeError):
        raise
    except OSError as error:
        raise WriteError(f"Cannot write {target}: {error.strerror}.") from error
