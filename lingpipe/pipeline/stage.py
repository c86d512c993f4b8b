"""A stage: some cells, their weights on one device, and the functions that the executor calls.

A stage owns what lies on its device: variables, gradient accumulators and the functions over them,
each traced once. It knows neither its neighbours nor the schedule, nor the optimiser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.base.layer import Layer, Scope
from lingpipe.pipeline.cell_calls import CellCalls, check_sums
from lingpipe.pipeline.compiled import CompiledFunction, compiled_parts
from lingpipe.pipeline.effects import accumulate_all, with_effects
from lingpipe.pipeline.errors import naming, refuse_lack_of_room, stage_in_words
from lingpipe.pipeline.graph_function import GraphFunction, trace
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.joint_graph import CutGraph, Traced, TracedCell, trace_and_cut
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.recompute_check import RecomputeCheck
from lingpipe.pipeline.rematerialise import Keeping, Rematerialisation
from lingpipe.pipeline.residuals import ResidualChooser, Residuals
from lingpipe.pipeline.stage_state import StageState

# Every stage function ends with the step number and the micro-batch's first example.
_MOMENT = (tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64))


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
      jit_compile: True if XLA compiles its functions.
      residuals: what was chosen to be kept, if anything is chosen and training has been traced.
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
        jit_compile: bool = False,
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
          jit_compile: True if XLA compiles the stage's functions.
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
        self.jit_compile = jit_compile
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
        self._training: CutGraph
        self._step_constants: list[tf.Tensor] = []
        self._inference: dict[Inference, tuple[Any, GraphFunction]] = {}

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
    ) -> Any:
        """Traces forward and backward; returns the nested `tf.TensorSpec` of the outputs.

        Args:
          inputs: nested specs of what the previous stage sends; `()` for the first stage.
          batch: specs of the batch entries; unknown dimensions stay open.
          typical: both for a typical micro-batch, every dimension known; where what is kept is
            chosen (`Rematerialisation.auto`), it is chosen for these.

        Raises:
          PipelineError: a cell cannot be traced.
          CellError: the last cell does not return what it must.
        """
        structure = (inputs, {key: batch[key] for key in self.batch_keys})

        def joint(*flat: tf.Tensor) -> Traced:
            inputs, entries = tf.nest.pack_sequence_as(structure, flat[:-2])
            return self._joint(inputs, entries, flat[-2:])

        chooser = self._chooser(typical)
        with tf.device(self.device), naming(self, "trace of its training pass"):
            flat = [*tf.nest.flatten(structure), *_MOMENT]
            self._training = trace_and_cut(
                joint, flat, split_backward=self._splits_backward, choose_residuals=chooser
            )
            if self.jit_compile:
                self._training = compiled_parts(self._training)
            self.state.trace_update()
        if chooser:
            self.residuals = chooser.chosen
            refuse_lack_of_room(self, chooser.chosen)
            self.typical_outputs = tf.nest.pack_sequence_as(
                self._training.outputs[0], chooser.output_specs
            )
        return self._training.outputs[0]

    def _joint(
        self, inputs: Any, entries: Mapping[str, tf.Tensor], moment: Sequence[tf.Tensor]
    ) -> Traced:
        """Forward and backward pass in the graph under construction."""
        floats = _floats(inputs)
        names = list(self.cells)
        if self._check:
            self._check.clear()
        calls = self._calls(training=True)
        with tf.GradientTape() as tape:
            tape.watch(floats)
            outputs, statistics = self._traced_outputs(calls, names, inputs, entries, moment)
            if self._check and self._chooses:
                self._check.double()
        made = calls.made if self._chooses else []
        ends = [outputs["loss"]] if self.is_last else _floats(outputs)
        given = [tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in ends]
        sources = [floats, self.trainable, [_floats(call.outputs) for call in made]]
        of_inputs, of_weights, of_cells = tape.gradient(ends, sources, given)
        early = self._early_weights()
        done_early = _accumulate(self, of_weights, early) if early else None
        done = _accumulate(self, of_weights, self.trainable.keys() - early)
        return Traced(
            outputs=(outputs, statistics),
            output_gradients=given,
            input_gradients=[
                tf.zeros_like(tensor) if gradient is None else tf.convert_to_tensor(gradient)
                for tensor, gradient in zip(floats, of_inputs, strict=True)
            ],
            done=self._check.first_fault(done) if self._check else done,
            done_early=done_early,
            cells=[
                TracedCell(call.operations, gradients)
                for call, gradients in zip(made, of_cells, strict=True)
            ],
            checked=self._check.pairs() if self._check else (),
        )

    def trace_inference(
        self, inference: Inference, inputs: Any, batch: Mapping[str, tf.TensorSpec]
    ) -> Any:
        """Traces the forward pass without dropout; arguments and result as in training."""
        names = self.names(inference)
        structure = (inputs, {key: batch[key] for key in self.keys(inference)})

        def forward(*flat: tf.Tensor) -> Any:
            inputs, entries = tf.nest.pack_sequence_as(structure, flat[:-2])
            calls = self._calls(training=False)
            return self._traced_outputs(calls, names, inputs, entries, flat[-2:])[0]

        with tf.device(self.device), naming(self, f"trace of its {inference.value} pass"):
            whole = trace(forward, [*tf.nest.flatten(structure), *_MOMENT])
            function = CompiledFunction(whole) if self.jit_compile else GraphFunction(whole)
        outputs = whole.structured_outputs
        self._inference[inference] = (outputs, function)
        return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), outputs)

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
    ) -> tuple[Any, list[tf.Tensor]]:
        """The outputs of the cells, checked, as tensors that wait for the cells' side effects.

        Beside them the vector of what layers with state report in training, if any does.
        """

        def apply() -> tuple[Any, list[tf.Tensor]]:
            outputs = calls.apply(names, inputs, batch, moment)
            # Packed here, before gradients: what is computed again for those reports too late.
            return outputs, self.state.pack(calls.reports) if calls.training else []

        outputs, statistics = with_effects(apply)
        if self.is_last and len(names) == len(self.cells):
            check_sums(outputs, stage_in_words(self, list(self.cells)[-1:]))
        return outputs, statistics

    @property
    def _chooses(self) -> bool:
        """Whether what is kept is chosen tensor by tensor."""
        return self._keeping.remat is Rematerialisation.auto

    def _chooser(
        self, typical: tuple[Any, Mapping[str, tf.TensorSpec]] | None
    ) -> ResidualChooser | None:
        """What chooses, if anything is to be chosen."""
        if not self._chooses or typical is None:
            return None
        inputs, batch = typical
        moment = [tf.TensorSpec([], tf.int64)] * 2
        entries = {key: batch[key] for key in self.batch_keys}
        return ResidualChooser(self._keeping.limit, [*tf.nest.flatten((inputs, entries)), *moment])

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

    def start_step(self) -> None:
        """Computes from weights alone what is the same for all micro-batches of a step."""
        function = self._training.step_constants
        with tf.device(self.device):
            self._step_constants = function() if function else []

    def end_step(self) -> None:
        """Frees what `start_step` computed."""
        self._step_constants = []

    def forward(self, inputs: Any, micro_batch: MicroBatch, step: int) -> tuple[Any, list]:
        """Runs the forward pass of one micro-batch.

        Args:
          inputs: what the previous stage sent, `()` for the first stage.
          micro_batch: the slice of the mini-batch; only the entries in `batch_keys` are read.
          step: number of the step.

        Returns:
          the outputs, and the list of tensors to hand to `backward` or `backward_input`.
        """
        graph = self._training
        with tf.device(self.device):
            flat = self._feeds(inputs, micro_batch, step, self.batch_keys)
            results = graph.forward(*flat, *self._step_constants)
            first = results[: graph.num_outputs]
            outputs, statistics = tf.nest.pack_sequence_as(graph.outputs, first)
            self.state.add(statistics)
        kept = [*results[graph.num_outputs :], *(flat[i] for i in graph.kept_inputs)]
        return outputs, kept

    def backward(self, kept: list, output_gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """Adds the weights' gradients to the accumulators and returns those of the inputs.

        Args:
          kept: what `forward` returned for this micro-batch.
          output_gradients: gradient of each floating output, in flattened order; of the loss
            alone for the last stage.

        Returns:
          gradient of each floating input, in flattened order.
        """
        with tf.device(self.device):
            gradients = [tf.identity(gradient) for gradient in output_gradients]
            results = self._training.backward(*kept, *gradients, *self._step_constants)
        *input_gradients, done = results
        self._check_recomputed(done)
        return input_gradients

    def backward_input(
        self, kept: list, output_gradients: list[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list]:
        """The first part of `backward`, for a stage that splits it: the gradients of the inputs.

        Args:
          kept: what `forward` returned for this micro-batch.
          output_gradients: as in `backward`.

        Returns:
          gradient of each floating input, in flattened order, and the list of tensors to hand to
          `backward_weight`.
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
            self._check_recomputed(done)

    def _check_recomputed(self, done: tf.Tensor) -> None:
        """Compares what was computed again, if that is asked for.

        Raises:
          ImpureCellError: a cell gave other outputs.
        """
        if self._check:
            self._check.raise_if_impure(done)

    def infer(self, inference: Inference, inputs: Any, micro_batch: MicroBatch, step: int) -> Any:
        """Runs the forward pass of one micro-batch without dropout and returns its outputs."""
        structure, function = self._inference[inference]
        with tf.device(self.device):
            results = function(*self._feeds(inputs, micro_batch, step, self.keys(inference)))
        return tf.nest.pack_sequence_as(structure, results)

    def _feeds(
        self, inputs: Any, micro_batch: MicroBatch, step: int, keys: Sequence[str]
    ) -> list[tf.Tensor]:
        """Flat arguments of a stage function, copied to the current device."""
        entries = {key: micro_batch.entries[key] for key in keys}
        flat = [tf.identity(tensor) for tensor in tf.nest.flatten((inputs, entries))]
        moment = (np.int64(step), np.int64(micro_batch.first_example))
        return [*flat, *(tf.constant(number, tf.int64) for number in moment)]


def _accumulate(
    stage: Stage, gradients: Mapping[str, tf.Tensor | tf.IndexedSlices | None], paths: Set[str]
) -> tf.Tensor:
    """Adds the gradients of some weights to their accumulators; see `accumulate_all`."""
    chosen = [path for path in stage.trainable if path in paths]
    accumulators = [stage.accumulators[path] for path in chosen]
    return accumulate_all(accumulators, [gradients[path] for path in chosen])


def _floats(structure: Any) -> list[tf.Tensor]:
    """The floating tensors of a nested structure, flattened."""
    return [tensor for tensor in tf.nest.flatten(structure) if tensor.dtype.is_floating]
