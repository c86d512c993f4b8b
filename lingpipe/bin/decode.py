"""`lingpipe decode`: one line out (or the n best) for each line in, in order."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lingpipe.runtime.decoder import decode_lines
from lingpipe.task.decode_options import DecodeOptions


def run(arguments: argparse.Namespace) -> int:
    """Decodes a file or standard input to a file or standard output."""
    is_dialogue = arguments.input is None and sys.stdin.isatty()
    if is_dialogue:
        print("Write a line and press Enter; Ctrl-D ends.", file=sys.stderr)
    options = DecodeOptions(
        target_language=arguments.to,
        source_language=arguments.source_language,
        beam_size=arguments.beam_size,
        nbest=arguments.nbest,
        length_penalty=arguments.length_penalty,
        max_rows=arguments.batch_size,
        # A person at a terminal wants an answer to each line.
        read_ahead=not is_dialogue,
    )
    decode_lines(
        arguments.logdir,
        arguments.checkpoint,
        options,
        input_file=Path(arguments.input) if arguments.input else None,
        output_file=Path(arguments.output) if arguments.output else None,
        with_scores=arguments.with_scores,
    )
    return 0
