"""Hyperparameters: declare, check, override, write, compare. Standard library only.

Start with params.py (`Params`) and parameterized.py (`Parameterized`); kinds.py and containers.py
say what a field of each type accepts.
"""

from lingpipe.hyperparams.errors import ParamsError, ParamsNameError, ParamsTypeError
from lingpipe.hyperparams.fields import Field
from lingpipe.hyperparams.overrides import read_overrides
from lingpipe.hyperparams.parameterized import Parameterized
from lingpipe.hyperparams.params import Params
from lingpipe.hyperparams.required import REQUIRED
from lingpipe.hyperparams.walk import Absent, Difference, format_differences, nodes

__all__ = [
    "REQUIRED",
    "Absent",
    "Difference",
    "Field",
    "Parameterized",
    "Params",
    "ParamsError",
    "ParamsNameError",
    "ParamsTypeError",
    "format_differences",
    "nodes",
    "read_overrides",
]
