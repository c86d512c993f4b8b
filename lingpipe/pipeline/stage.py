"""A stage: some cells, their weights on one device, and the functions that the executor calls.

A stage owns what lies on its device: variables, gradient accumulators and the functions over them,
each traced once. It knows neither its neighbours nor the schedule, nor the optimiser.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer, Scope
from lingpipe.pipeline.errors import CellError, naming, stage_in_words
from lingpipe.pipeline.graph_function import GraphFunction, trace
from lingpipe.pipeline.joint_graph import (
    CutGraph,
    Traced,
    accumulate_all,
    trace_and_cut,
    with_effects,
)
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.rematerialise import Rematerialisation, rematerialise
from lingpipe.pipeline.stage_state import StageState, Statistics

# Every stage function ends with the step number and the micro-batch's first example.
_MOMENT = (tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64))


class Inference(enum.Enum):
    """A forward pass without dropout, and how far it goes."""

    evaluation = "evaluation"  # All cells: the sums that the last one returns.
    prediction = "prediction"  # All but the last cell, the loss: what that is given.


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
        remat: Rematerialisation = Rematerialisation.none,
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
          remat: what to keep. On the last stage input gradients follow the forward pass at once,
            so that computing again would save nothing: it always keeps all.
          splits_backward: True if `backward_input` and `backward_weight` will be called, and not
            `backward`.
        """
        self.index = index
        self.device = device
        self.is_last = is_last
        self.variables: dict[str, tf.Variable] = {}
        self._seed = seed
        self._compute_dtype = compute_dtype
        self._remat = Rematerialisation.none if is_last else remat
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
        self._training: CutGraph
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

    def trace_training(self, inputs: Any, batch: Mapping[str, tf.TensorSpec]) -> Any:
        """Traces forward and backward; returns the nested `tf.TensorSpec` of the outputs.

        Args:
          inputs: nested specs of what the previous stage sends; `()` for the first stage.
          batch: specs of the batch entries; unknown dimensions stay open.

        Raises:
          PipelineError: a cell cannot be traced.
          CellError: the last cell does not return what it must.
        """
        structure = (inputs, {key: batch[key] for key in self.batch_keys})
        names = list(self.cells)

        def joint(*flat: tf.Tensor) -> Traced:
            inputs, entries = tf.nest.pack_sequence_as(structure, flat[:-2])
            floats = _floats(inputs)
            with tf.GradientTape() as tape:
                tape.watch(floats)
                outputs, statistics = self._traced_outputs(
                    names, inputs, entries, flat[-2:], training=True
                )
            ends = [outputs["loss"]] if self.is_last else _floats(outputs)
            given = [tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in ends]
            sources = [floats, list(self.trainable.values())]
            input_gradients, weight_gradients = tape.gradient(ends, sources, given)
            return Traced(
                outputs=(outputs, statistics),
                output_gradients=given,
                input_gradients=[
                    tf.zeros_like(tensor) if gradient is None else tf.convert_to_tensor(gradient)
                    for tensor, gradient in zip(floats, input_gradients, strict=True)
                ],
                done=accumulate_all(list(self.accumulators.values()), weight_gradients),
            )

        with tf.device(self.device), naming(self, "trace of its training pass"):
            flat = [*tf.nest.flatten(structure), *_MOMENT]
            self._training = trace_and_cut(joint, flat, split_backward=self._splits_backward)
            self.state.trace_update()
        return self._training.outputs[0]

    def trace_inference(
        self, inference: Inference, inputs: Any, batch: Mapping[str, tf.TensorSpec]
    ) -> Any:
        """Traces the forward pass without dropout; arguments and result as in training."""
        names = self.names(inference)
        structure = (inputs, {key: batch[key] for key in self.keys(inference)})

        def forward(*flat: tf.Tensor) -> Any:
            inputs, entries = tf.nest.pack_sequence_as(structure, flat[:-2])
            return self._traced_outputs(names, inputs, entries, flat[-2:], training=False)[0]

        with tf.device(self.device), naming(self, f"trace of its {inference.value} pass"):
            whole = trace(forward, [*tf.nest.flatten(structure), *_MOMENT])
        outputs = whole.structured_outputs
        self._inference[inference] = (outputs, GraphFunction(whole))
        return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), outputs)

    def _traced_outputs(
        self,
        names: Sequence[str],
        inputs: Any,
        batch: Mapping[str, tf.Tensor],
        moment: Sequence[tf.Tensor],
        *,
        training: bool,
    ) -> tuple[Any, list[tf.Tensor]]:
        """The outputs of the cells, checked, as tensors that wait for the cells' side effects.

        Beside them the vector of what layers with state report in training, if any does.
        """

        def apply() -> tuple[Any, list[tf.Tensor]]:
            reports: list[Statistics] = []
            outputs = self._apply(names, inputs, batch, moment, reports, training=training)
            # Packed here, before gradients: what is computed again for those reports too late.
            return outputs, self.state.pack(reports) if training else []

        outputs, statistics = with_effects(apply)
        if self.is_last and len(names) == len(self.cells):
            _check_sums(outputs, stage_in_words(self, list(self.cells)[-1:]))
        return outputs, statistics

    def _apply(
        self,
        names: Sequence[str],
        inputs: Any,
        batch: Mapping[str, tf.Tensor],
        moment: Sequence[tf.Tensor],
        reports: list[Statistics],
        *,
        training: bool,
    ) -> Any:
        """Applies the cells in order, rematerialised as asked; `reports` gets what each reports."""
        step, first_example = moment

        def run(names: Sequence[str], cell_inputs: Any) -> Any:
            for name in names:
                cell = self.cells[name]
                context = Context(
                    training=training,
                    step=step,
                    seed=self._seed,
                    first_example=first_example,
                    compute_dtype=self._compute_dtype,
                    batch={key: batch[key] for key in cell.params.batch_keys()},
                )
                doing = f"trace of its {'training' if training else 'evaluation'} pass"
                # The cell's name leads the names of its operations, in messages and profiles.
                with naming(self, doing, [name]), tf.name_scope(_scope_name(name)):
                    cell_inputs = cell(cell_inputs, context)
                _check_tensors(cell_inputs, stage_in_words(self, [name]))
                reports.append(context.statistics)
            return cell_inputs

        if isinstance(inputs, tuple) and not inputs:
            # The first cell has nothing to be computed again from but the batch, and a table that
            # is read by rows would get a dense gradient from tf.recompute_grad.
            inputs, names = run(names[:1], None), names[1:]
        if not training or self._remat is Rematerialisation.none:
            return run(names, inputs)
        if self._remat is Rematerialisation.stage:
            return rematerialise(functools.partial(run, names))(inputs) if names else inputs
        for name in names:
            inputs = rematerialise(functools.partial(run, [name]))(inputs)
        return inputs

    # ---------------------------------------------------------------- running

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
            results = graph.forward(*flat)
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
            *input_gradients, _ = self._training.backward(*kept, *gradients)
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
            arguments = [*kept, *(tf.identity(gradient) for gradient in output_gradients)]
            results = graph.backward(*arguments)
        positions = graph.weight_part.kept_arguments if graph.weight_part else ()
        count = graph.num_input_gradients
        return results[:count], [*results[count:], *(arguments[i] for i in positions)]

    def backward_weight(self, kept: list) -> None:
        """The second part of `backward`: adds the weights' gradients to the accumulators."""
        part = self._training.weight_part
        if part:
            with tf.device(self.device):
                part.function(*kept)

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


def _check_tensors(outputs: Any, where: str) -> None:
    """Refuses what cannot travel to the next cell, which may lie on another device."""
    for leaf in tf.nest.flatten(outputs):
        if not isinstance(leaf, tf.Tensor):
            raise CellError(
                f"{where} returns {leaf!r} ({type(leaf).__name__}) among its outputs; all must be "
                "tensors, in dicts, lists or tuples. Leave it out, or use tf.constant."
            )


def _check_sums(outputs: Any, where: str) -> None:
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


def _scope_name(cell: str) -> str:
    """A cell's name in the characters that the name of an operation may have."""
    return re.sub(r"^(?![A-Za-z0-9.])", "cell", re.sub(r"[^A-Za-z0-9_./-]", "_", cell))


def _floats(structure: Any) -> list[tf.Tensor]:
    """The floating tensors of a nested structure, flattened."""
    return [tensor for tensor in tf.nest.flatten(structure) if tensor.dtype.is_floating]
