"""`lingpipe evaluate`: BLEU, chrF and perplexity of a checkpoint, per pair and on average."""

from __future__ import annotations

import argparse

from lingpipe.base.output import write_result
from lingpipe.runtime.evaluator import evaluate


def run(arguments: argparse.Namespace) -> int:
    """Prints the table of scores."""
    evaluation = evaluate(arguments.logdir, arguments.split, arguments.checkpoint)
    write_result(evaluation.table)
    return 0
