"""`lingpipe params`: print a model's params, list all models, or compare two."""

from __future__ import annotations

import argparse
import sys

from lingpipe.registry import lookup, registered_names
from lingpipe.task.model_params import make_experiment


def run(arguments: argparse.Namespace) -> int:
    """Prints what was asked for to stdout."""
    if arguments.list:
        for name, summary in registered_names().items():
            print(f"{name:<32} {summary}".rstrip())
    elif arguments.diff:
        first, second = (make_experiment(lookup(n), arguments.overrides) for n in arguments.diff)
        for difference in first.diff(second):
            print(difference)
    else:
        experiment = make_experiment(lookup(arguments.model), arguments.overrides)
        sys.stdout.write(experiment.to_text())
    return 0
