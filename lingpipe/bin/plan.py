"""`lingpipe plan`: how a model would be cut into stages, without building a weight.

Unless cells are to be weighed by measured seconds: then each is built, alone, and run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json

from lingpipe.base.output import write_result
from lingpipe.pipeline.plan import Plan, format_plan
from lingpipe.registry import lookup
from lingpipe.runtime.measured_costs import measured_costs
from lingpipe.runtime.parts import build_task, plan_of
from lingpipe.task.model_params import make_experiment


def run(arguments: argparse.Namespace) -> int:
    """Prints the plan as a table or as JSON."""
    overrides = list(arguments.overrides)
    if arguments.device_memory is not None:
        overrides.append(f"pipeline.device_memory={arguments.device_memory}")
    experiment = make_experiment(lookup(arguments.model), overrides)
    plan = plan_of(experiment)
    if cell_seconds := measured_costs(experiment, build_task(experiment)):
        plan = plan_of(experiment, cell_seconds)
    write_result(_as_json(plan) if arguments.json else format_plan(plan))
    return 0


def _as_json(plan: Plan) -> str:
    """All fields of the plan, and the peak of each stage."""
    found = dataclasses.asdict(plan)
    for stage, fields in zip(plan.stages, found["stages"], strict=True):
        if stage.memory:
            fields["memory"]["peak_bytes"] = stage.memory.peak_bytes
    return json.dumps(found, indent=2) + "\n"
