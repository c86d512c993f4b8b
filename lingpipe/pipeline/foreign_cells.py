"""Cells from elsewhere: plain functions and `tf.Module`s in the list of cells.

    FunctionCell(tf.nn.gelu)
    FunctionCell(cross_entropy, reads=("labels",))      # cross_entropy(outputs, batch)
    ModuleCell(lambda: Block(512))                      # made on the device of its stage

They answer what a pipeline asks of a cell: `batch_keys`, `cost`, `all_weights` and `build`. The
cost comes from a trace; weights keep the names that the module gave them, below the cell's own.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.initializers import constant
from lingpipe.base.layer import Scope, Weight, join_path
from lingpipe.base.spec import Spec, Specs
from lingpipe.pipeline.errors import CellError
from lingpipe.pipeline.traced_cost import traced_cost


@dataclasses.dataclass(frozen=True)
class InputCell:
    """The first cell of a list: hands on entries of the batch.

    Attributes:
      keys: the entries. One is handed on as it is, several as a dict.
    """

    keys: tuple[str, ...] = ("inputs",)

    def batch_keys(self) -> tuple[str, ...]:
        """The entries."""
        return self.keys

    def all_weights(self, path: str = "") -> dict[str, Weight]:
        """None."""
        return {}

    def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
        """Nothing is computed."""
        return Cost(0, self._pick(batch or {}), 0)

    def build(self, scope: Scope) -> BuiltCell:
        """The cell itself; there is nothing to build."""
        return BuiltCell(self, lambda inputs, context: self._pick(context.batch))

    def _pick(self, batch: Mapping[str, Any]) -> Any:
        return (
            batch[self.keys[0]] if len(self.keys) == 1 else {key: batch[key] for key in self.keys}
        )


@dataclasses.dataclass(frozen=True)
class FunctionCell:
    """A plain function without weights.

    Attributes:
      function: called with the nested inputs, and, if it reads any, with the entries of the batch
        by name as a second argument.
      reads: entries of the batch that it reads.
    """

    function: Callable[..., Any]
    reads: tuple[str, ...] = ()

    def batch_keys(self) -> tuple[str, ...]:
        """The entries that it reads."""
        return self.reads

    def all_weights(self, path: str = "") -> dict[str, Weight]:
        """None."""
        return {}

    def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
        """Read off a trace; see `traced_cost`."""
        return traced_cost(self._call, inputs, {key: (batch or {})[key] for key in self.reads})

    def build(self, scope: Scope) -> BuiltCell:
        """The function as a cell; there is nothing to build."""
        return BuiltCell(self, lambda inputs, context: self._call(inputs, context.batch))

    def _call(self, inputs: Any, batch: Mapping[str, Any]) -> Any:
        return self.function(inputs, dict(batch)) if self.reads else self.function(inputs)


@dataclasses.dataclass(frozen=True)
class ModuleCell:
    """A `tf.Module` that is called with the nested inputs.

    Attributes:
      make: makes the module with all its variables; a module that exists already lies on a device
        of its own. It is called on the device of the stage, and some times before for the plan.
    """

    make: Callable[[], tf.Module]

    def batch_keys(self) -> tuple[str, ...]:
        """None: a module sees its inputs only."""
        return ()

    def all_weights(self, path: str = "") -> dict[str, Weight]:
        """Shapes of the variables by name, after making the module once."""
        return {
            name: Weight(tuple(variable.shape), constant(0.0), variable.trainable)
            for name, variable in named_variables(self.make(), path).items()
        }

    def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
        """Read off a trace of a module made for it; see `traced_cost`."""
        module = self.make()
        before = len(module.variables)
        try:
            cost = traced_cost(module, inputs)
        except ValueError as error:
            if len(module.variables) > before:
                raise _late_variables(module) from error
            raise
        if len(module.variables) > before:
            raise _late_variables(module)
        return cost

    def build(self, scope: Scope) -> BuiltCell:
        """Makes the module and its variables on the current device."""
        module = self.make()
        scope.variables.update(named_variables(module, scope.weights_path))
        return BuiltCell(self, lambda inputs, context: module(inputs))


@dataclasses.dataclass(frozen=True)
class BuiltCell:
    """A cell on its device.

    Attributes:
      params: what it was built from.
      function: called with the nested inputs and the context.
    """

    params: Any
    function: Callable[[Any, Context], Any]

    def __call__(self, inputs: Any, context: Context) -> Any:
        """Applies the cell."""
        return self.function(inputs, context)


def named_variables(module: tf.Module, path: str) -> dict[str, tf.Variable]:
    """The variables of a module by their own names below `path`; a name that is taken is numbered.

    The order of `tf.Module.variables` is that of the attributes' names, so that numbers are stable.
    """
    named: dict[str, tf.Variable] = {}
    for variable in module.variables:
        own = join_path(path, variable.name.split(":")[0])
        names = itertools.chain([own], (f"{own}_{number}" for number in itertools.count(1)))
        named[next(name for name in names if name not in named)] = variable
    return named


def _late_variables(module: tf.Module) -> CellError:
    return CellError(
        f"{type(module).__qualname__} makes variables when it is first called; a pipeline must "
        "know them before. Make them in its __init__."
    )
