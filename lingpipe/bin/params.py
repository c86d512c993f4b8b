"""`lingpipe params`: print a model's params or knobs, list all models, or compare two."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lingpipe.base.output import write_result
from lingpipe.bin.quiet_import import import_quietly
from lingpipe.errors import UserError
from lingpipe.registry import lookup, registered_names
from lingpipe.task.model_params import make_experiment

if TYPE_CHECKING:
    from lingpipe.task.experiment import Experiment


def run(arguments: argparse.Namespace) -> int:
    """Prints what was asked for to stdout."""
    if arguments.overrides and (arguments.list or arguments.knobs):
        raise UserError(
            "--list and --knobs show no values of a run, so --set has nothing to set; use "
            "--model=NAME."
        )
    if arguments.list:
        rows = [f"{name:<32} {summary}".rstrip() for name, summary in registered_names().items()]
        text = "".join(f"{row}\n" for row in rows)
    elif arguments.knobs:
        text = lookup(arguments.knobs).describe() + "\n"
    elif arguments.diff:
        first, second = (_experiment(name, arguments.overrides) for name in arguments.diff)
        text = "".join(f"{difference}\n" for difference in first.diff(second))
    else:
        text = _experiment(arguments.model, arguments.overrides).to_text()
    write_result(text)
    return 0


def _experiment(name: str, overrides: Sequence[str]) -> Experiment.Params:
    model = lookup(name)
    import_quietly("tensorflow")  # The tree's nodes are layers' params; listing needs none of it.
    return make_experiment(model, overrides)
