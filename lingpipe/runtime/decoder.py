"""Decodes a file or a stream with a checkpoint of a run."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from lingpipe.base.atomic_file import atomic_output
from lingpipe.base.output import Output, WriteError, output_to, standard_output
from lingpipe.input.lines import iterate_lines, read_lines
from lingpipe.runtime.opening import open_run
from lingpipe.task.decode_options import DecodeOptions
from lingpipe.task.task import Hypothesis

# A model that spells characters as bytes can spell these too.
_ONE_LINE = str.maketrans("\r\n", "  ")


def decode_lines(
    logdir: str | Path,
    checkpoint: str,
    options: DecodeOptions,
    *,
    input_file: Path | None,
    output_file: Path | None,
    with_scores: bool,
) -> None:
    """Writes `options.nbest` lines for each line read, in order.

    Args:
      logdir: the run directory.
      checkpoint: "last", "best" or a step.
      options: languages, beam and so on.
      input_file: file to read; None for standard input.
      output_file: file to write, which appears whole once all is done; None for standard output.
      with_scores: put the score and a tab before each line.

    Raises:
      UserError: the run, the options or a file cannot be used.
    """
    # Both files are tried before the model is loaded.
    with _reading(input_file) as lines, _writing(output_file) as output:
        task, run = open_run(logdir, checkpoint)
        for hypotheses in task.decode(run, lines, options):
            for hypothesis in hypotheses:
                output.write(_line(hypothesis, with_scores).encode("utf-8") + b"\n")
            if not options.read_ahead:
                output.flush()
        output.flush()


def _line(hypothesis: Hypothesis, with_scores: bool) -> str:
    text = hypothesis.text.translate(_ONE_LINE)
    return f"{hypothesis.score:z.6f}\t{text}" if with_scores else text


@contextlib.contextmanager
def _reading(path: Path | None) -> Iterator[Iterable[str]]:
    """The lines of standard input, or those of a file, the first of them already read."""
    if path is None:
        yield iterate_lines(sys.stdin.buffer, "standard input")
        return
    with contextlib.closing(read_lines(path)) as lines:
        yield itertools.chain(list(itertools.islice(lines, 1)), lines)


@contextlib.contextmanager
def _writing(path: Path | None) -> Iterator[Output]:
    """Standard output, or a file that takes its name only once it is complete.

    A device or a named pipe, such as /dev/stdout, is written as it is.

    Raises:
      WriteError: the file cannot be written.
    """
    if path is None:
        yield standard_output()
    elif path.exists() and not path.is_file():
        with output_to(path) as output:
            yield output
    else:
        # What a symbolic link points to is replaced, not the link.
        try:
            final = path.resolve()
        except RuntimeError as error:  # What pathlib makes of links that lead to themselves.
            raise WriteError(f"Cannot write {path}: its symbolic links go in a circle.") from error
        with atomic_output(final) as output:
            yield output
