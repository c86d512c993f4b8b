"""A stage: some cells, their weights on one device, and the functions that the executor calls.

A stage owns what lies on its device: variables, gradient accumulators and the functions over them,
each traced once. It knows neither its neighbours nor the schedule, nor the optimiser.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.base.layer import Layer, Scope
from lingpipe.pipeline.cell_calls import CellCalls, check_sums
from lingpipe.pipeline.effects import accumulate, with_effects
from lingpipe.pipeline.errors import naming, refuse_lack_of_room, stage_in_words
from lingpipe.pipeline.graph_function import GraphFunction, ancestors_of, trace, trimmed
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.interface import MOMENT, Interface
from lingpipe.pipeline.joint_graph import CutGraph, Traced, TracedCell, trace_and_cut
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.passing import not_zero
from lingpipe.pipeline.recompute_check import RecomputeCheck
from lingpipe.pipeline.rematerialise import Keeping, Rematerialisation
from lingpipe.pipeline.residuals import ResidualChooser, Residuals
from lingpipe.pipeline.routes import EVERYTHING, Demand, StageLeaves
from lingpipe.pipeline.stage_state import StageState
from lingpipe.pipeline.traced_outputs import TracedOutputs, floating, floats


class Stage:
    """A run of cells on one device.

    Attributes:
      index: number of the stage, from 0.
      device: name of its device.
      is_last: True for the stage that returns the loss.
      cells: name -> layer, in order.
      variables: path -> variable of every weight that the cells use.
      trainable: those of them that the learner moves.
      accumulators: path -> float32 sum of the gradients of the current mini-batch.
      state: its layers with state, and what they reported in the current mini-batch.
      batch_keys: entries of the batch that its cells read.
      residuals: what was chosen to be kept, if anything is chosen and training has been traced.
      interfaces: what goes in and out of each kind of pass that was traced; None is training.
    """

    def __init__(
        self,
        index: int,
        cells: Mapping[str, Layer.Params],
        device: str,
        *,
        seed: int,
        is_last: bool,
        compute_dtype: tf.DType = tf.float32,
        keeping: Keeping | None = None,
        splits_backward: bool = False,
    ) -> None:
        """Builds the cells and their accumulators on `device`.

        Args:
          index: number of the stage.
          cells: name -> params of its cells; a name is the path of the cell's weights.
          device: device name, such as "/CPU:1".
          seed: the run's seed.
          is_last: True for the stage that returns the loss.
          compute_dtype: dtype of activations.
          keeping: what to keep between the passes; None for all.
          splits_backward: True if `backward_input` and `backward_weight` will be called, and not
            `backward`.
        """
        self.index = index
        self.device = device
        self.is_last = is_last
        self.variables: dict[str, tf.Variable] = {}
        self._seed = seed
        self._compute_dtype = compute_dtype
        self._keeping = keeping or Keeping()
        self._check = RecomputeCheck() if self._keeping.verify else None
        self.residuals: Residuals | None = None
        self.typical_outputs: Any = None
        self._splits_backward = splits_backward
        with tf.device(device):
            scope = Scope(seed=seed, variables=self.variables)
            self.cells = {name: params.build(scope.child(name)) for name, params in cells.items()}
            self.trainable = {p: v for p, v in self.variables.items() if v.trainable}
            self.accumulators = {
                path: tf.Variable(tf.zeros_like(variable), trainable=False)
                for path, variable in self.trainable.items()
            }
        self.state = StageState(cell for cell in self.cells.values() if isinstance(cell, Layer))
        self.batch_keys = self._keys(list(self.cells))
        self.interfaces: dict[Inference | None, Interface] = {}
        self._training: CutGraph
        self._step_constants: list[tf.Tensor] = []
        self._inference: dict[Inference, GraphFunction] = {}

    def names(self, inference: Inference) -> list[str]:
        """Names of the cells that take part."""
        names = list(self.cells)
        return names[:-1] if self.is_last and inference is Inference.prediction else names

    def keys(self, inference: Inference) -> tuple[str, ...]:
        """Entries of the batch that those cells read."""
        return self._keys(self.names(inference))

    def _keys(self, names: Sequence[str]) -> tuple[str, ...]:
        keys = [key for name in names for key in self.cells[name].params.batch_keys()]
        return tuple(dict.fromkeys(keys))

    # ---------------------------------------------------------------- tracing

    def trace_training(
        self,
        inputs: Any,
        batch: Mapping[str, tf.TensorSpec],
        typical: tuple[Any, Mapping[str, tf.TensorSpec]] | None = None,
        demand: Demand = EVERYTHING,
    ) -> Any:
        """Traces forward and backward; returns the nested `tf.TensorSpec` of the outputs.

        Args:
          inputs: nested specs of what the previous stage hands on; `()` for the first stage.
          batch: specs of the batch entries; unknown dimensions stay open.
          typical: both for a typical micro-batch, every dimension known; where what is kept is
            chosen (`Rematerialisation.auto`), it is chosen for these.
          demand: what the other stages want of this one.

        Raises:
          PipelineError: a cell cannot be traced.
          CellError: the last cell does not return what it must.
        """
        structure = (inputs, {key: batch[key] for key in self.batch_keys})
        found: list[tuple[Any, StageLeaves]] = []

        def joint(*flat: tf.Tensor) -> Traced:
            inputs, entries = tf.nest.pack_sequence_as(structure, flat[:-2])
            traced, outputs, leaves = self._joint(inputs, entries, flat[-2:], demand)
            found.append((outputs, leaves))
            return traced

        chooser = self._chooser(typical) if self._chooses and typical else None
        with tf.device(self.device), naming(self, "trace of its training pass"):
            flat = [*tf.nest.flatten(structure), *MOMENT]
            self._training = trace_and_cut(
                joint, flat, split_backward=self._splits_backward, choose_residuals=chooser
            )
            self.state.trace_update()
        interface = Interface.of(*found[0], self._training.read_inputs, structure)
        self.interfaces[None] = interface
        if chooser and typical:
            self.residuals = chooser.chosen
            refuse_lack_of_room(self, chooser.chosen)
            made = chooser.output_specs[: len(interface.leaves.makes)]
            self.typical_outputs = interface.packed(made, tf.nest.flatten(typical[0]))
        return interface.outputs

    def _joint(
        self,
        inputs: Any,
        entries: Mapping[str, tf.Tensor],
        moment: Sequence[tf.Tensor],
        demand: Demand,
    ) -> tuple[Traced, Any, StageLeaves]:
        """Forward and backward pass in the graph under construction, and the nested outputs."""
        flat_inputs = tf.nest.flatten(inputs)
        watched = floats(flat_inputs, demand.taken)
        if self._check:
            self._check.clear()
        calls = self._calls(training=True)
        with tf.GradientTape() as tape:
            tape.watch([flat_inputs[i] for i in watched])
            traced = self._traced_outputs(calls, list(self.cells), inputs, entries, moment)
            if self._check and self._chooses:
                self._check.double()
        flat = traced.flat
        leaves = traced.leaves(flat_inputs, demand, all_new=self.is_last)
        ends = traced.ends(leaves, demand, only_loss=self.is_last)
        given = [tf.compat.v1.placeholder(flat[i].dtype, flat[i].shape) for i in ends]
        cells = calls.made if self._chooses else []
        outputs_of_cells = [floating(call.outputs) for call in cells]
        sources = [[flat_inputs[i] for i in watched], self.trainable, outputs_of_cells]
        of_inputs, of_weights, of_cells = tape.gradient([flat[i] for i in ends], sources, given)
        gives = not_zero(dict(zip(watched, of_inputs, strict=True)))
        early = self._early_weights()
        done_early = accumulate(self.accumulators, of_weights, early) if early else None
        done = accumulate(self.accumulators, of_weights, self.trainable.keys() - early)
        needed = ancestors_of([*gives.values(), done, *([done_early] if early else [])])
        # The gradient of an output of which nothing is computed is not waited for.
        takes = {i: g for i, g in zip(ends, given, strict=True) if self.is_last or g.op in needed}
        joint = Traced(
            outputs=traced.results(leaves),
            output_gradients=list(takes.values()),
            input_gradients=list(gives.values()),
            done=self._check.first_fault(done) if self._check else done,
            done_early=done_early,
            cells=[
                TracedCell(call.operations, gradients)
                for call, gradients in zip(cells, of_cells, strict=True)
            ],
            checked=self._check.pairs() if self._check else (),
        )
        leaves = dataclasses.replace(leaves, gives=tuple(gives), takes=tuple(takes))
        return joint, traced.outputs, leaves

    def trace_inference(
        self,
        inference: Inference,
        inputs: Any,
        batch: Mapping[str, tf.TensorSpec],
        demand: Demand = EVERYTHING,
    ) -> Any:
        """Traces the forward pass without dropout; arguments and result as in training."""
        names = self.names(inference)
        structure = (inputs, {key: batch[key] for key in self.keys(inference)})
        found: list[tuple[Any, StageLeaves]] = []
        ends: list[tf.Tensor] = []

        def forward(*flat: tf.Tensor) -> list[tf.Tensor]:
            inputs, entries = tf.nest.pack_sequence_as(structure, flat[:-2])
            calls = self._calls(training=False)
            traced = self._traced_outputs(calls, names, inputs, entries, flat[-2:])
            leaves = traced.leaves(tf.nest.flatten(inputs), demand, all_new=self.is_last)
            found.append((traced.outputs, leaves))
            ends.extend(tf.nest.flatten(traced.results(leaves)))
            return ends

        with tf.device(self.device), naming(self, f"trace of its {inference.value} pass"):
            whole = trace(forward, [*tf.nest.flatten(structure), *MOMENT])
            self._inference[inference], read = trimmed(whole, ends)
        self.interfaces[inference] = Interface.of(*found[0], read, structure)
        return self.interfaces[inference].outputs

    def _calls(self, *, training: bool) -> CellCalls:
        """Takes the calls of a new trace."""
        check = self._check if training else None
        return CellCalls(self, self._seed, training, self._compute_dtype, self._keeping, check)

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
            reported = self.state.pack(calls.reports) if calls.training else []
            return outputs, reported, tf.constant(True)

        traced = TracedOutputs(*with_effects(apply))
        if self.is_last and len(names) == len(self.cells):
            check_sums(traced.outputs, stage_in_words(self, list(self.cells)[-1:]))
        return traced

    @property
    def _chooses(self) -> bool:
        """Whether what is kept is chosen tensor by tensor."""
        return self._keeping.remat is Rematerialisation.auto

    def _chooser(self, typical: tuple[Any, Mapping[str, tf.TensorSpec]]) -> ResidualChooser:
        """What chooses, for a typical micro-batch."""
        entries = {key: typical[1][key] for key in self.batch_keys}
        specs = tf.nest.flatten((typical[0], entries))
        return ResidualChooser(self._keeping.limit, [*specs, *MOMENT])

    def _early_weights(self) -> set[str]:
        """Paths of the weights whose gradients must not wait for a second part of the backward.

        Those of the loss: until then the gradients of the logits would be held, of as many
        micro-batches as wait.
        """
        if not (self.is_last and self._splits_backward):
            return set()
        name = list(self.cells)[-1]
        return self.cells[name].params.all_weights(name).keys() & self.trainable.keys()

    # ---------------------------------------------------------------- running

    @property
    def has_step_constants(self) -> bool:
        """Whether `start_step` has anything to compute; known once training is traced."""
        return self._training.step_constants is not None

    def start_step(self) -> None:
        """Computes from weights alone what is the same for all micro-batches of a step."""
        function = self._training.step_constants
        with tf.device(self.device):
            self._step_constants = function() if function else []

    def end_step(self) -> None:
        """Frees what `start_step` computed."""
        self._step_constants = []

    def forward(
        self, leaves: Sequence[tf.Tensor], micro_batch: MicroBatch, step: int
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Runs the forward pass of one micro-batch.

        Args:
          leaves: those that the stage reads, in order; see `StageLeaves`.
          micro_batch: the slice of the mini-batch; only the entries in `batch_keys` are read.
          step: number of the step.

        Returns:
          the leaves that it makes, and the list of tensors to hand to `backward` or
          `backward_input`.
        """
        graph = self._training
        with tf.device(self.device):
            arguments = self.interfaces[None].arguments(leaves, micro_batch, step)
            results = graph.forward(*arguments, *self._step_constants)
            made, statistics, _ = graph.outputs
            self.state.add(results[len(made) : len(made) + len(statistics)])
        kept = [*results[graph.num_outputs :], *(arguments[i] for i in graph.kept_inputs)]
        return results[: len(made)], kept

    def backward(self, kept: list, output_gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """Adds the weights' gradients to the accumulators and returns those of the inputs.

        Args:
          kept: what `forward` returned for this micro-batch.
          output_gradients: those that the stage takes, in order (see `StageLeaves`): for the last
            stage that of the loss.

        Returns:
          the gradients that it gives, in order.
        """
        with tf.device(self.device):
            gradients = [tf.identity(gradient) for gradient in output_gradients]
            results = self._training.backward(*kept, *gradients, *self._step_constants)
        *input_gradients, done = results
        if self._check:
            self._check.raise_if_impure(done)
        return input_gradients

    def backward_input(
        self, kept: list, output_gradients: list[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list]:
        """The first part of `backward`, for a stage that splits it: the gradients of the inputs.

        Args:
          kept: what `forward` returned for this micro-batch.
          output_gradients: as in `backward`.

        Returns:
          the gradients that it gives, and the list of tensors to hand to `backward_weight`.
        """
        graph = self._training
        with tf.device(self.device):
            given = [tf.identity(gradient) for gradient in output_gradients]
            arguments = [*kept, *given, *self._step_constants]
            results = graph.backward(*arguments)
        part, count = graph.weight_part, graph.num_input_gradients
        if not part:
            return results[:count], []
        handed = results[count : count + len(part.crossing)]
        return results[:count], [*handed, *(arguments[i] for i in part.kept_arguments)]

    def backward_weight(self, kept: list) -> None:
        """The second part of `backward`: adds the weights' gradients to the accumulators."""
        part = self._training.weight_part
        if part:
            with tf.device(self.device):
                (done,) = part.function(*kept)
            if self._check:
                self._check.raise_if_impure(done)

    def run_on_nan(self) -> None:
        """Runs the forward pass on numbers that are none, and forgets what it returns.

        Nothing may come of it: neither a gradient nor state nor a number in what others compute.
        """
        with tf.device(self.device):
            self._training.forward.run_on_nan()

    def infer(
        self,
        inference: Inference,
        leaves: Sequence[tf.Tensor],
        micro_batch: MicroBatch,
        step: int,
    ) -> list[tf.Tensor]:
        """Runs the forward pass of one micro-batch without dropout; returns the leaves it makes."""
        interface = self.interfaces[inference]
        with tf.device(self.device):
            arguments = interface.arguments(leaves, micro_batch, step)
            results = self._inference[inference](*arguments)
        return results[: len(interface.leaves.makes)]
