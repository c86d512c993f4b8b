"""Traces the passes of a stage's cells into graphs: one joint graph for training, forwards else.

It knows the cells' stage and what is to be kept; the stage knows how to run what comes out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lingpipe.pipeline.cell_calls import CellCalls, check_sums
from lingpipe.pipeline.compiled import CompiledFunction, compiled_parts
from lingpipe.pipeline.effects import accumulate, with_effects
from lingpipe.pipeline.errors import naming, refuse_lack_of_room, stage_in_words
from lingpipe.pipeline.graph_function import GraphFunction, ancestors_of, trace, trimmed
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.interface import MOMENT, Interface
from lingpipe.pipeline.joint_graph import CutGraph, Traced, TracedCell, trace_and_cut
from lingpipe.pipeline.keeping import Keeping, Rematerialisation
from lingpipe.pipeline.passing import not_zero
from lingpipe.pipeline.recompute_check import RecomputeCheck
from lingpipe.pipeline.residuals import ResidualChooser, Residuals
from lingpipe.pipeline.routes import Demand, StageLeaves
from lingpipe.pipeline.traced_outputs import TracedOutputs, floating, floats

if TYPE_CHECKING:
    from lingpipe.pipeline.stage import Stage


@dataclasses.dataclass(frozen=True)
class TracedTraining:
    """What tracing the training pass gives.

    Attributes:
      graph: its parts.
      interface: what goes in and out of them.
      residuals: what was chosen to be kept; None where nothing is chosen.
      typical_outputs: nested specs of the outputs in a typical micro-batch; None likewise.
    """

    graph: CutGraph
    interface: Interface
    residuals: Residuals | None = None
    typical_outputs: Any = None


class StageTracer:
    """Traces the cells of one stage.

    Attributes:
      check: what compares what is computed again, if that is asked for.
    """

    def __init__(
        self,
        stage: Stage,
        *,
        seed: int,
        compute_dtype: tf.DType,
        keeping: Keeping,
        splits_backward: bool,
    ) -> None:
        """Traces nothing yet; see `Stage` for the arguments."""
        self.check = RecomputeCheck() if keeping.verify else None
        self._stage = stage
        self._seed = seed
        self._compute_dtype = compute_dtype
        self._keeping = keeping
        self._splits_backward = splits_backward

    def training(
        self,
        inputs: Any,
        batch: Mapping[str, tf.TensorSpec],
        typical: tuple[Any, Mapping[str, tf.TensorSpec]] | None,
        demand: Demand,
    ) -> TracedTraining:
        """Traces forward and backward; see `Stage.trace_training`."""
        stage = self._stage
        structure = (inputs, {key: batch[key] for key in stage.batch_keys})
        found: list[tuple[Any, StageLeaves]] = []

        def joint(*flat: tf.Tensor) -> Traced:
            inputs, entries = tf.nest.pack_sequence_as(structure, flat[:-2])
            traced, outputs, leaves = self._joint(inputs, entries, flat[-2:], demand)
            found.append((outputs, leaves))
            return traced

        chooser = self._chooser(typical) if self._chooses and typical else None
        with tf.device(stage.device), naming(stage, "trace of its training pass"):
            flat = [*tf.nest.flatten(structure), *MOMENT]
            graph = trace_and_cut(
                joint, flat, split_backward=self._splits_backward, choose_residuals=chooser
            )
            if stage.jit_compile:
                graph = compiled_parts(graph)
            stage.state.trace_update()
        interface = Interface.of(*found[0], graph.read_inputs, structure)
        if not chooser or not typical:
            return TracedTraining(graph, interface)
        refuse_lack_of_room(stage, chooser.chosen)
        made = chooser.output_specs[: len(interface.leaves.makes)]
        typical_outputs = interface.packed(made, tf.nest.flatten(typical[0]))
        return TracedTraining(graph, interface, chooser.chosen, typical_outputs)

    def _joint(
        self,
        inputs: Any,
        entries: Mapping[str, tf.Tensor],
        moment: Sequence[tf.Tensor],
        demand: Demand,
    ) -> tuple[Traced, Any, StageLeaves]:
        """Forward and backward pass in the graph under construction, and the nested outputs."""
        stage = self._stage
        flat_inputs = tf.nest.flatten(inputs)
        watched = floats(flat_inputs, demand.taken)
        if self.check:
            self.check.clear()
        calls = self._calls()
        with tf.GradientTape() as tape:
            tape.watch([flat_inputs[i] for i in watched])
            traced = self._traced_outputs(calls, list(stage.cells), inputs, entries, moment)
            if self.check and self._chooses:
                self.check.double()
        flat = traced.flat
        leaves = traced.leaves(flat_inputs, demand, all_new=stage.is_last)
        ends = traced.ends(leaves, demand, only_loss=stage.is_last)
        given = [tf.compat.v1.placeholder(flat[i].dtype, flat[i].shape) for i in ends]
        # A copy: what the gradient computes again is called again.
        cells = list(calls.made) if self._chooses else []
        outputs_of_cells = [floating(call.outputs) for call in cells]
        sources = [[flat_inputs[i] for i in watched], stage.trainable, outputs_of_cells]
        of_inputs, of_weights, of_cells = tape.gradient([flat[i] for i in ends], sources, given)
        gives = not_zero(dict(zip(watched, of_inputs, strict=True)))
        early = self._early_weights()
        done_early = accumulate(stage.accumulators, of_weights, early) if early else None
        done = accumulate(stage.accumulators, of_weights, stage.trainable.keys() - early)
        needed = ancestors_of([*gives.values(), done, *([done_early] if early else [])])
        # The gradient of an output of which nothing is computed is not waited for.
        takes = {i: g for i, g in zip(ends, given, strict=True) if stage.is_last or g.op in needed}
        joint = Traced(
            outputs=traced.results(leaves),
            output_gradients=list(takes.values()),
            input_gradients=list(gives.values()),
            done=self.check.first_fault(done) if self.check else done,
            done_early=done_early,
            cells=[
                TracedCell(call.operations, gradients)
                for call, gradients in zip(cells, of_cells, strict=True)
            ],
            checked=self.check.pairs() if self.check else (),
        )
        leaves = dataclasses.replace(leaves, gives=tuple(gives), takes=tuple(takes))
        return joint, traced.outputs, leaves

    def inference(
        self, inference: Inference, inputs: Any, batch: Mapping[str, tf.TensorSpec], demand: Demand
    ) -> tuple[GraphFunction, Interface]:
        """Traces a forward pass without dropout; see `Stage.trace_inference`."""
        stage = self._stage
        names = stage.names(inference)
        structure = (inputs, {key: batch[key] for key in stage.keys(inference)})
        found: list[tuple[Any, StageLeaves]] = []
        ends: list[tf.Tensor] = []

        def forward(*flat: tf.Tensor) -> list[tf.Tensor]:
            inputs, entries = tf.nest.pack_sequence_as(structure, flat[:-2])
            calls = self._calls(inference)
            traced = self._traced_outputs(calls, names, inputs, entries, flat[-2:])
            leaves = traced.leaves(tf.nest.flatten(inputs), demand, all_new=stage.is_last)
            found.append((traced.outputs, leaves))
            ends.extend(tf.nest.flatten(traced.results(leaves)))
            return ends

        with tf.device(stage.device), naming(stage, f"trace of its {inference.value} pass"):
            whole = trace(forward, [*tf.nest.flatten(structure), *MOMENT])
            function, read = trimmed(whole, ends)
            if stage.jit_compile:
                function = CompiledFunction(function.concrete)
        return function, Interface.of(*found[0], read, structure)

    def _calls(self, inference: Inference | None = None) -> CellCalls:
        """Takes the calls of a new trace."""
        check = self.check if inference is None else None
        keeping, dtype = self._keeping, self._compute_dtype
        return CellCalls(self._stage, self._seed, inference, dtype, keeping, check)

    def _traced_outputs(
        self,
        calls: CellCalls,
        names: Sequence[str],
        inputs: Any,
        batch: Mapping[str, tf.Tensor],
        moment: Sequence[tf.Tensor],
    ) -> TracedOutputs:
        """The outputs of the cells, checked, as tensors that wait for the cells' side effects."""

        def apply() -> tuple[Any, list[tf.Tensor], tf.Tensor]:
            outputs = calls.apply(names, inputs, batch, moment)
            # Packed here, before gradients: what is computed again for those reports too late.
            reported = self._stage.state.pack(calls.reports) if calls.training else []
            return outputs, reported, tf.constant(True)

        traced = TracedOutputs(*with_effects(apply))
        if self._stage.is_last and len(names) == len(self._stage.cells):
            check_sums(traced.outputs, stage_in_words(self._stage, list(self._stage.cells)[-1:]))
        return traced

    @property
    def _chooses(self) -> bool:
        """Whether what is kept is chosen tensor by tensor."""
        return self._keeping.remat is Rematerialisation.auto

    def _chooser(self, typical: tuple[Any, Mapping[str, tf.TensorSpec]]) -> ResidualChooser:
        """What chooses, for a typical micro-batch."""
        entries = {key: typical[1][key] for key in self._stage.batch_keys}
        specs = tf.nest.flatten((typical[0], entries))
        return ResidualChooser(self._keeping.limit, [*specs, *MOMENT])

    def _early_weights(self) -> set[str]:
        """Paths of the weights whose gradients must not wait for a second part of the backward.

        Those of the loss: until then the gradients of the logits would be held, of as many
        micro-batches as wait.
        """
        if not (self._stage.is_last and self._splits_backward):
            return set()
        name = list(self._stage.cells)[-1]
        return (
            self._stage.cells[name].params.all_weights(name).keys() & self._stage.trainable.keys()
        )
