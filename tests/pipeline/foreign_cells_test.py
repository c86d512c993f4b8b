"""Functions and modules as cells: what they may not do, and what their weights are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from lingpipe.base.spec import Spec
from lingpipe.errors import UserError
from lingpipe.pipeline.foreign_cells import FunctionCell, ModuleCell, named_variables


class Names(tf.Module):
    """Variables whose names clash, in the order of their attributes."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.variables_here = [tf.Variable(float(i), name=name) for i, name in enumerate(names)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["w", "b"], ["cell/w", "cell/b"]),
        (["w", "w", "w"], ["cell/w", "cell/w_1", "cell/w_2"]),
        (["w", "w_1", "w"], ["cell/w", "cell/w_1", "cell/w_2"]),
        (["w_1", "w", "w"], ["cell/w_1", "cell/w", "cell/w_2"]),
    ],
)
def test_every_variable_has_a_name_of_its_own(names: list[str], expected: list[str]) -> None:
    found = named_variables(Names(*names), "cell")
    assert list(found) == expected
    assert [float(variable) for variable in found.values()] == [float(i) for i in range(len(names))]


class Counter(tf.Module):
    """Counts its calls, perhaps in a function of its own."""

    def __init__(self, wrapped: bool) -> None:
        super().__init__()
        self.count = tf.Variable(0.0)
        self._step = tf.function(self._count, autograph=False) if wrapped else self._count

    def _count(self, inputs: tf.Tensor) -> tf.Tensor:
        self.count.assign_add(1.0)
        return inputs * self.count

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        return self._step(inputs)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ModuleCell(lambda: Counter(wrapped=False)),
        lambda: ModuleCell(lambda: Counter(wrapped=True)),
        lambda: FunctionCell(Counter(wrapped=False)),
    ],
)
def test_a_cell_that_changes_variables_is_refused(make: Callable[[], Any]) -> None:
    """Its result would depend on how often it was called, and so on M and on recomputation."""
    with pytest.raises(UserError, match=r"changes variables when it is called \(AssignAddVariab"):
        make().cost(Spec((2, 3)))
