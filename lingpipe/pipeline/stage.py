"""A stage: some cells, their weights on one device, and the functions that the executor calls.

A stage owns everything that lies on its device: variables, gradient accumulators, optimiser slots.
Its forward, backward and update functions are traced once. A stage knows neither its neighbours nor
the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer, Scope
from lingpipe.learner.clipping import squared_norm
from lingpipe.learner.learner import Learner
from lingpipe.pipeline.joint_graph import (
    CutGraph,
    StageFunction,
    Traced,
    accumulate_all,
    trace_and_cut,
)
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.rematerialise import Rematerialisation, rematerialise

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
    ) -> None:
        """Builds the cells and their accumulators on `device`.

        Args:
          index: number of the stage.
          cells: name -> params of its cells; a name is the path of the cell's weights.
          device: device name, such as "/CPU:1".
          seed: the run's seed.
          is_last: True for the stage that returns the loss.
          compute_dtype: dtype of activations.
          remat: what to keep. The last stage runs backward right after forward, where computing
            again would save nothing: it always keeps all.
        """
        self.index = index
        self.device = device
        self.is_last = is_last
        self.variables: dict[str, tf.Variable] = {}
        self._seed = seed
        self._compute_dtype = compute_dtype
        self._remat = Rematerialisation.none if is_last else remat
        with tf.device(device):
            scope = Scope(seed=seed, variables=self.variables)
            self.cells = {name: params.build(scope.child(name)) for name, params in cells.items()}
            self.trainable = {p: v for p, v in self.variables.items() if v.trainable}
            self.accumulators = {
                path: tf.Variable(tf.zeros_like(variable), trainable=False)
                for path, variable in self.trainable.items()
            }
        keys = [key for cell in self.cells.values() for key in cell.params.batch_keys()]
        self.batch_keys = tuple(dict.fromkeys(keys))
        self._training: CutGraph | None = None
        self._evaluation: Any = None

    # ---------------------------------------------------------------- tracing

    def trace_training(self, inputs: Any, batch: Mapping[str, tf.TensorSpec]) -> Any:
        """Traces forward and backward; returns the nested `tf.TensorSpec` of the outputs.

        Args:
          inputs: nested specs of what the previous stage sends; `()` for the first stage.
          batch: specs of the batch entries; unknown dimensions stay open.
        """
        structure = self._structure(inputs, batch)

        def joint(*flat: tf.Tensor) -> Traced:
            inputs, entries = tf.nest.pack_sequence_as(structure, flat[:-2])
            floats = _floats(inputs)
            with tf.GradientTape() as tape:
                tape.watch(floats)
                outputs = self._apply(inputs, entries, flat[-2], flat[-1], training=True)
                # An output may be an input passed on; in the graph it needs a name of its own.
                outputs = tf.nest.map_structure(tf.identity, outputs)
            ends = [outputs["loss"]] if self.is_last else _floats(outputs)
            given = [tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in ends]
            sources = [floats, list(self.trainable.values())]
            input_gradients, weight_gradients = tape.gradient(ends, sources, given)
            return Traced(
                outputs=outputs,
                output_gradients=given,
                input_gradients=[
                    tf.zeros_like(tensor) if gradient is None else tf.identity(gradient)
                    for tensor, gradient in zip(floats, input_gradients, strict=True)
                ],
                done=accumulate_all(list(self.accumulators.values()), weight_gradients),
            )

        with tf.device(self.device):
            self._training = trace_and_cut(joint, [*tf.nest.flatten(structure), *_MOMENT])
        return self._training.outputs

    def trace_evaluation(self, inputs: Any, batch: Mapping[str, tf.TensorSpec]) -> Any:
        """Traces the forward pass without dropout; arguments and result as in training."""
        structure = self._structure(inputs, batch)

        def forward(*flat: tf.Tensor) -> Any:
            inputs, entries = tf.nest.pack_sequence_as(structure, flat[:-2])
            outputs = self._apply(inputs, entries, flat[-2], flat[-1], training=False)
            return tf.nest.map_structure(tf.identity, outputs)

        with tf.device(self.device):
            signature = [*tf.nest.flatten(structure), *_MOMENT]
            graph = tf.compat.v1.wrap_function(forward, signature)
        self._evaluation = (graph.structured_outputs, StageFunction(graph))
        return tf.nest.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), graph.structured_outputs
        )

    def _structure(self, inputs: Any, batch: Mapping[str, tf.TensorSpec]) -> Any:
        return (inputs, {key: batch[key] for key in self.batch_keys})

    def _apply(
        self,
        inputs: Any,
        batch: Mapping[str, tf.Tensor],
        step: tf.Tensor,
        first_example: tf.Tensor,
        *,
        training: bool,
    ) -> Any:
        """Applies the cells in order, rematerialised as asked."""

        def run(names: list[str], cell_inputs: Any) -> Any:
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
                cell_inputs = cell(cell_inputs, context)
            return cell_inputs

        names = list(self.cells)
        if isinstance(inputs, tuple) and not inputs:
            # The first cell has nothing to be computed again from but the batch, and a table that
            # is read by rows would get a dense gradient from tf.recompute_grad.
            inputs, names = run(names[:1], None), names[1:]
        if not training or self._remat is Rematerialisation.none:
            return run(names, inputs)
        if self._remat is Rematerialisation.stage:
            return rematerialise(lambda x: run(names, x))(inputs) if names else inputs
        for name in names:
            inputs = rematerialise(lambda x, name=name: run([name], x))(inputs)
        return inputs

    # ---------------------------------------------------------------- running

    def forward(self, inputs: Any, micro_batch: MicroBatch, step: int) -> tuple[Any, list]:
        """Runs the forward pass of one micro-batch.

        Args:
          inputs: what the previous stage sent, `()` for the first stage.
          micro_batch: the slice of the mini-batch; only the entries in `batch_keys` are read.
          step: number of the step.

        Returns:
          the outputs, and the list of tensors to hand to `backward`.
        """
        graph = self._training
        with tf.device(self.device):
            flat = self._feeds(inputs, micro_batch, step)
            results = graph.forward(*flat)
        outputs = tf.nest.pack_sequence_as(graph.outputs, results[: graph.num_outputs])
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

    def evaluate(self, inputs: Any, micro_batch: MicroBatch, step: int) -> Any:
        """Runs the forward pass of one micro-batch without dropout and returns its outputs."""
        structure, function = self._evaluation
        with tf.device(self.device):
            results = function(*self._feeds(inputs, micro_batch, step))
        return tf.nest.pack_sequence_as(structure, results)

    def _feeds(self, inputs: Any, micro_batch: MicroBatch, step: int) -> list[tf.Tensor]:
        """Flat arguments of a stage function, copied to the current device."""
        entries = {key: micro_batch.entries[key] for key in self.batch_keys}
        flat = [tf.identity(tensor) for tensor in tf.nest.flatten((inputs, entries))]
        moment = (np.int64(step), np.int64(micro_batch.first_example))
        return [*flat, *(tf.constant(number, tf.int64) for number in moment)]


class StageLearner:
    """The learner's part of a stage: slots, gradient norm and update.

    Attributes:
      slots: `<weight path>/<slot>` -> variable, beside the weights that this stage owns.
    """

    def __init__(self, stage: Stage, learner: Learner, owned: Mapping[str, tf.Variable]) -> None:
        """Makes the slots of the weights that the stage owns; mirrored ones have none here."""
        self._stage = stage
        self._owned = dict(owned)
        with tf.device(stage.device):
            self.slots = learner.create_slots(self._owned)
        scalar = tf.TensorSpec([], tf.float32)

        @tf.function(input_signature=[])
        def norm() -> tf.Tensor:
            return squared_norm([stage.accumulators[path] for path in self._owned])

        @tf.function(input_signature=[scalar, scalar, tf.TensorSpec([], tf.int64)])
        def update(factor: tf.Tensor, learning_rate: tf.Tensor, step: tf.Tensor) -> None:
            gradients = {path: stage.accumulators[path] * factor for path in self._owned}
            learner.apply(self._owned, gradients, self.slots, learning_rate, step)
            clear()

        @tf.function(input_signature=[])
        def clear() -> None:
            for accumulator in stage.accumulators.values():
                accumulator.assign(tf.zeros_like(accumulator))

        self._norm, self._update, self._clear = norm, update, clear

    def squared_norm(self) -> tf.Tensor:
        """Sum of the squares of the accumulated gradients of the owned weights."""
        if not self._owned:
            return tf.zeros([])
        with tf.device(self._stage.device):
            return self._norm()

    def update(self, factor: float, learning_rate: float, step: int) -> None:
        """Applies the accumulated gradients times `factor` and clears the accumulators."""
        with tf.device(self._stage.device):
            self._update(
                tf.constant(factor, tf.float32),
                tf.constant(learning_rate, tf.float32),
                tf.constant(step, tf.int64),
            )

    def clear(self) -> None:
        """Sets the accumulators to zero."""
        with tf.device(self._stage.device):
            self._clear()


def _floats(structure: Any) -> list[tf.Tensor]:
    """The floating tensors of a nested structure, flattened."""
    return [tensor for tensor in tf.nest.flatten(structure) if tensor.dtype.is_floating]
