"""`lingpipe timeline`: what every device does in one step, drawn, and where the time goes."""

from __future__ import annotations

import argparse
from pathlib import Path

from lingpipe.base.output import write_result
from lingpipe.registry import lookup
from lingpipe.runtime.timeline import write_timeline
from lingpipe.task.model_params import make_experiment


def run(arguments: argparse.Namespace) -> int:
    """Writes the files and prints the table."""
    experiment = make_experiment(lookup(arguments.model), arguments.overrides)
    timeline = write_timeline(experiment, arguments.model, list(map(Path, arguments.outputs)))
    write_result(timeline.to_text())
    return 0
