"""Calls a stage's cells one after another in the graph under construction, rematerialised as asked.

What a call gives beside its outputs is noted: the statistics that layers with state report, and
which operations belong to which cell, for whoever chooses what to keep.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.pipeline.errors import CellError, naming, stage_in_words
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.keeping import Keeping, Rematerialisation
from lingpipe.pipeline.recompute_check import RecomputeCheck
from lingpipe.pipeline.rematerialise import rematerialise
from lingpipe.pipeline.stage_state import Statistics

if TYPE_CHECKING:
    from lingpipe.pipeline.stage import Stage


@dataclasses.dataclass(frozen=True)
class CellCall:
    """One call of a cell.

    Attributes:
      operations: those that it added to the graph.
      outputs: its nested outputs.
    """

    operations: frozenset[tf.Operation]
    outputs: Any


@dataclasses.dataclass
class CellCalls:
    """The calls of one trace.

    Attributes:
      stage: whose cells are called.
      seed: the run's seed.
      inference: the kind of forward pass; None is training.
      compute_dtype: dtype of activations.
      keeping: what to keep between the passes; in training only.
      check: takes fingerprints of all outputs in training; None for none.
      reports: what each call reported, calls that only compute again included.
      made: the calls, in order.
    """

    stage: Stage
    seed: int
    inference: Inference | None
    compute_dtype: tf.DType
    keeping: Keeping
    check: RecomputeCheck | None
    reports: list[Statistics] = dataclasses.field(default_factory=list)
    made: list[CellCall] = dataclasses.field(default_factory=list)

    @property
    def training(self) -> bool:
        """Whether this is a training pass."""
        return self.inference is None

    def apply(
        self,
        names: Sequence[str],
        inputs: Any,
        batch: Mapping[str, tf.Tensor],
        moment: Sequence[tf.Tensor],
    ) -> Any:
        """What the last of the cells returns.

        Args:
          names: the cells to call.
          inputs: what the first of them is given; `()` for nothing.
          batch: entries of the batch.
          moment: number of the step and of the micro-batch's first example.
        """
        run = functools.partial(self._run, batch=batch, moment=moment)
        names = list(names)
        if isinstance(inputs, tuple) and not inputs:
            # The first cell has nothing to be computed again from but the batch, and a table that
            # is read by rows would get a dense gradient from tf.recompute_grad.
            inputs, names = run(names[:1], None), names[1:]
        for group in self._rematerialised(names):
            call = functools.partial(run, group.names)
            inputs = rematerialise(call)(inputs) if group.is_again else call(inputs)
        return inputs

    def _rematerialised(self, names: list[str]) -> list[_Group]:
        """The cells in groups, each computed again as a whole or not at all."""
        keeping = self.keeping if self.training else Keeping()
        last = [name for name in names[-1:] if keeping.forgets_last_cell]
        others = names[: len(names) - len(last)]
        if keeping.remat is Rematerialisation.stage:
            groups = [_Group(others + last, True)]
        elif keeping.remat is Rematerialisation.layer:
            groups = [_Group([name], True) for name in others + last]
        else:
            groups = [_Group(others, False), _Group(last, True)]
        return [group for group in groups if group.names]

    def _run(
        self,
        names: Sequence[str],
        inputs: Any,
        *,
        batch: Mapping[str, tf.Tensor],
        moment: Sequence[tf.Tensor],
    ) -> Any:
        """Calls some cells in turn."""
        graph = tf.compat.v1.get_default_graph()
        step, first_example = moment
        for name in names:
            cell = self.stage.cells[name]
            context = Context(
                training=self.training,
                step=step,
                seed=self.seed,
                first_example=first_example,
                compute_dtype=self.compute_dtype,
                batch={key: batch[key] for key in cell.params.batch_keys()},
            )
            doing = f"trace of its {self.inference.value if self.inference else 'training'} pass"
            before = len(graph.get_operations())
            # The cell's name leads the names of its operations, in messages and profiles.
            with naming(self.stage, doing, [name]), tf.name_scope(_scope_name(name)):
                inputs = cell(inputs, context)
            _check_tensors(inputs, stage_in_words(self.stage, [name]))
            self.made.append(CellCall(frozenset(graph.get_operations()[before:]), inputs))
            self.reports.append(context.statistics)
            if self.check:
                self.check.record(name, inputs)
        return inputs


@dataclasses.dataclass(frozen=True)
class _Group:
    """Cells that are computed again together, or are not."""

    names: list[str]
    is_again: bool


def check_sums(outputs: Any, where: str) -> None:
    """Refuses what the last cell returned unless it is a dict of sums with loss and weight."""
    if not isinstance(outputs, Mapping) or not {"loss", "weight"} <= set(outputs):
        keys = f"a dict of {sorted(outputs)}" if isinstance(outputs, Mapping) else type(outputs)
        raise CellError(
            f"{where} is the last and must return a dict with at least 'loss' and 'weight', sums "
            f"over its examples; it returns {keys}."
        )
    for name, tensor in outputs.items():
        is_number = isinstance(tensor, tf.Tensor) and (
            tensor.dtype.is_floating or tensor.dtype.is_integer
        )
        if not is_number or tensor.shape.rank != 0:
            raise CellError(
                f"{where} is the last and must return numbers, sums over its examples; {name!r} is "
                f"{tensor}. Use tf.reduce_sum, or leave it out."
            )
    if not outputs["loss"].dtype.is_floating:
        raise CellError(f"{where} must return a floating 'loss', not {outputs['loss'].dtype.name}.")


def _check_tensors(outputs: Any, where: str) -> None:
    """Refuses what cannot travel to the next cell, which may lie on another device."""
    for leaf in tf.nest.flatten(outputs):
        if not isinstance(leaf, tf.Tensor):
            raise CellError(
                f"{where} returns {leaf!r} ({type(leaf).__name__}) among its outputs; all must be "
                "tensors, in dicts, lists or tuples. Leave it out, or use tf.constant."
            )
        if leaf.dtype.is_complex:
            raise CellError(
                f"{where} returns a {leaf.dtype.name} tensor among its outputs; gradients go from "
                "cell to cell as real numbers. Return tf.math.real and tf.math.imag of it."
            )


def _scope_name(cell: str) -> str:
    """A cell's name in the characters that the name of an operation may have."""
    return re.sub(r"^(?![A-Za-z0-9.])", "cell", re.sub(r"[^A-Za-z0-9_./-]", "_", cell))
