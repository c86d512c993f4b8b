"""`lingpipe evaluate`: BLEU, chrF and perplexity of a checkpoint, per pair and on average."""

from __future__ import annotations

import argparse
import sys

from lingpipe.runtime.evaluator import evaluate


def run(arguments: argparse.Namespace) -> int:
    """Prints the table of scores."""
    evaluation = evaluate(arguments.logdir, arguments.split, arguments.checkpoint)
    sys.stdout.write(evaluation.table)
    return 0
