"""`lingpipe decode`: one line out (or the n best) for each line in, in order."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lingpipe.runtime.decoder import decode_lines
from lingpipe.task.task import DecodeOptions


def run(arguments: argparse.Namespace) -> int:
    """Decodes a file or standard input to a file or standard output."""
    options = DecodeOptions(
        to=arguments.to,
        source=arguments.source,
        beam_size=arguments.beam_size,
        nbest=arguments.nbest,
        length_penalty=arguments.length_penalty,
        max_rows=arguments.batch_size,
        # A person at a terminal wants an answer to each line.
        read_ahead=not (arguments.input is None and sys.stdin.isatty()),
    )
    decode_lines(
        arguments.logdir,
        arguments.checkpoint,
        options,
        source=Path(arguments.input) if arguments.input else None,
        target=Path(arguments.output) if arguments.output else None,
        with_scores=arguments.with_scores,
    )
    return 0
