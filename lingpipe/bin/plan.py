"""`lingpipe plan`: how a model would be cut into stages, without building a weight.

Unless cells are to be weighed by measured seconds: then each is built, alone, and run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json

from lingpipe.base.output import write_result
from lingpipe.pipeline.plan import format_plan
from lingpipe.registry import lookup
from lingpipe.runtime.measured_costs import measured_costs
from lingpipe.runtime.parts import build_task, plan_of
from lingpipe.task.model_params import make_experiment


def run(arguments: argparse.Namespace) -> int:
    """Prints the plan as a table or as JSON."""
    experiment = make_experiment(lookup(arguments.model), arguments.overrides)
    plan = plan_of(experiment)
    if cell_seconds := measured_costs(experiment, build_task(experiment)):
        plan = plan_of(experiment, cell_seconds)
    as_json = arguments.json
    text = json.dumps(dataclasses.asdict(plan), indent=2) + "\n" if as_json else format_plan(plan)
    write_result(text)
    return 0
