"""`lingpipe plan`: how a model would be cut into stages, without building a weight."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from lingpipe.pipeline.plan import format_plan
from lingpipe.registry import lookup
from lingpipe.runtime.parts import plan_of
from lingpipe.task.model_params import make_experiment


def run(arguments: argparse.Namespace) -> int:
    """Prints the plan as a table or as JSON."""
    plan = plan_of(make_experiment(lookup(arguments.model), arguments.overrides))
    if arguments.json:
        json.dump(dataclasses.asdict(plan), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.write(format_plan(plan))
    return 0
