"""`lingpipe train`: train a registered model, or go on with its run."""

from __future__ import annotations

import argparse
import sys

from lingpipe.pipeline.step_result import NonFiniteError
from lingpipe.registry import lookup
from lingpipe.runtime.trainer import train
from lingpipe.task.model_params import make_experiment

# What BSD's sysexits.h calls "temporary failure, try again": the same command goes on.
INTERRUPTED = 75


def run(arguments: argparse.Namespace) -> int:
    """Trains to the last step; INTERRUPTED if a signal ended it early with the state saved."""
    experiment = make_experiment(lookup(arguments.model), arguments.overrides)
    try:
        outcome = train(experiment, arguments.logdir)
    except KeyboardInterrupt:
        # The first signal ends a run after its step; this is a second one, or an early one.
        print(
            "lingpipe train: interrupted before the state could be saved. The same command goes on "
            "from the last checkpoint.",
            file=sys.stderr,
        )
        return 1
    except NonFiniteError as error:
        # It is no fault of the program: the message says all that a traceback could.
        print(
            f"lingpipe train: {error} Checkpoints in {arguments.logdir}, if any, are intact; the "
            "same command, with other learner params if need be, goes on from the last one.",
            file=sys.stderr,
        )
        return 1
    return 0 if outcome.is_complete else INTERRUPTED
