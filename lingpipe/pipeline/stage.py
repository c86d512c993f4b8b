"""A stage: some cells, their weights on one device, and the functions that the executor calls.

A stage owns what lies on its device: variables, gradient accumulators and the functions over them,
each traced once. It knows neither its neighbours nor the schedule, nor the optimiser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.base.layer import Layer, Scope
from lingpipe.pipeline.graph_function import GraphFunction
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.interface import Interface
from lingpipe.pipeline.joint_graph import CutGraph
from lingpipe.pipeline.keeping import Keeping
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.residuals import Residuals
from lingpipe.pipeline.routes import EVERYTHING, Demand
from lingpipe.pipeline.stage_state import StageState
from lingpipe.pipeline.stage_tracer import StageTracer


class Stage:
    """A run of cells on one device.

    Attributes:
      index: number of the stage, from 0.
      replica: number of the replica that it belongs to, from 0.
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
      typical_outputs: nested specs of its outputs in a typical micro-batch; None unless what is
        kept was chosen.
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
        replica: int = 0,
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
          replica: number of the replica.
          compute_dtype: dtype of activations.
          keeping: what to keep between the passes; None for all.
          splits_backward: True if `backward_input` and `backward_weight` will be called, and not
            `backward`.
          jit_compile: True if XLA compiles the stage's functions.
        """
        self.index = index
        self.replica = replica
        self.device = device
        self.is_last = is_last
        self.variables: dict[str, tf.Variable] = {}
        self.residuals: Residuals | None = None
        self.typical_outputs: Any = None
        self._tracer = StageTracer(
            self,
            seed=seed,
            compute_dtype=compute_dtype,
            keeping=keeping or Keeping(),
            splits_backward=splits_backward,
        )
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
          DeviceMemoryError: not even the least that must be kept fits the limit.
        """
        traced = self._tracer.training(inputs, batch, typical, demand)
        self._training = traced.graph
        self.interfaces[None] = traced.interface
        self.residuals, self.typical_outputs = traced.residuals, traced.typical_outputs
        return traced.interface.outputs

    def trace_inference(
        self,
        inference: Inference,
        inputs: Any,
        batch: Mapping[str, tf.TensorSpec],
        demand: Demand = EVERYTHING,
    ) -> Any:
        """Traces the forward pass without dropout; arguments and result as in training."""
        function, interface = self._tracer.inference(inference, inputs, batch, demand)
        self._inference[inference], self.interfaces[inference] = function, interface
        return interface.outputs

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

        Raises:
          ImpureCellError: `Keeping.verify` asks for a comparison, and it failed; `backward_weight`
            likewise.
        """
        with tf.device(self.device):
            gradients = [tf.identity(gradient) for gradient in output_gradients]
            results = self._training.backward(*kept, *gradients, *self._step_constants)
        *input_gradients, done = results
        if self._tracer.check:
            self._tracer.check.raise_if_impure(done, self)
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
            if self._tracer.check:
                self._tracer.check.raise_if_impure(done, self)

    def run_on_nan(self) -> None:
        """Runs the forward pass on numbers that are none, and forgets what it returns.

        Nothing may come of it: neither a gradient nor state nor a number in what others compute.
        Only what a cell does beside computing, such as a print, happens once more.
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
