"""`lingpipe timeline`: what every device does in one step, drawn, and where the time goes."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from lingpipe.base.output import write_result
from lingpipe.pipeline.step_result import NonFiniteError
from lingpipe.registry import lookup
from lingpipe.runtime.timeline import write_timeline
from lingpipe.task.model_params import make_experiment


def run(arguments: argparse.Namespace) -> int:
    """Writes the files and prints the table; 1 if the model came to numbers that are not finite."""
    experiment = make_experiment(lookup(arguments.model), arguments.overrides)
    outputs = [Path(output) for output in arguments.outputs]
    # So that SIGTERM, too, takes the temporary folder of the vocabulary away.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        timeline = write_timeline(experiment, arguments.model, outputs)
    except NonFiniteError as error:
        print(f"lingpipe timeline: {error}", file=sys.stderr)
        return 1
    write_result(timeline.to_text())
    return 0
