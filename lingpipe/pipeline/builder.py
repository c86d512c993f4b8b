"""The pipeline as its users see it: a list of cells, K stages, M micro-batches, R replicas.

    pipeline = Pipeline.Params(num_stages=2, num_micro_batches=4).build(
        cells={"embed": ..., "layer_0": ..., "loss": ...},
        learner=Learner.Params(...).build(),
        devices=["/CPU:0", "/CPU:1"],
        micro_batch={"ids": Spec((8, 16), "int32")},
    )
    result = pipeline.train_step({"ids": ids, "labels": labels})

The last cell returns a dict of scalar sums over its examples; `loss` and `weight` must be among
them. Gradients are those of the sum of all losses divided by the sum of all weights, over the whole
mini-batch, whatever K, M, R, schedule and rematerialisation are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec
from lingpipe.cluster.placement import place_stages
from lingpipe.hyperparams import Parameterized
from lingpipe.learner.clipping import clip_factor
from lingpipe.learner.learner import Learner
from lingpipe.learner.loss_scale import LossScaleState
from lingpipe.pipeline.executor import Executor, Share
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.joining import add_up, join_predictions
from lingpipe.pipeline.micro_batch import BatchError, MicroBatch, split_batch
from lingpipe.pipeline.pipeline_params import PipelineParams
from lingpipe.pipeline.plan import PartitionCosts, Plan
from lingpipe.pipeline.planning import plan_pipeline
from lingpipe.pipeline.profile import measure_cells
from lingpipe.pipeline.recorder import Recording, StepRecorder
from lingpipe.pipeline.schedule import Schedule
from lingpipe.pipeline.schedules import make_schedule
from lingpipe.pipeline.shared_weights import SharedWeights
from lingpipe.pipeline.shares import share_out
from lingpipe.pipeline.stage import Stage
from lingpipe.pipeline.stage_learner import StageLearner, build_learners
from lingpipe.pipeline.stage_traces import StageTraces
from lingpipe.pipeline.stages import build_stages
from lingpipe.pipeline.step_result import StepResult, check_finite, result_of

# Added to what is being done while weights move.
_RESTORE = "(other stages may have been updated: restore the last checkpoint)"


class Pipeline(Parameterized):
    """A model cut into stages on devices.

    Attributes:
      plan: the plan that was followed.
      replicas: the stages of each replica, in order.
      step: number of training steps done.
      weights: path -> variable of every weight, each where it is owned.
      slots: `<weight path>/<slot>` -> variable of the optimiser.
      loss_scale: where the loss scale stands, which moves as `learner.loss_scale` says; None
        unless activations are float16.
    """

    class Params(PipelineParams):
        """How to cut and run; what to run comes with `build`."""

    def __init__(
        self,
        params: Params,
        *,
        cells: Mapping[str, Layer.Params],
        learner: Learner,
        devices: Sequence[str],
        micro_batch: Mapping[str, Spec],
        seed: int = 0,
        compute_dtype: tf.DType = tf.float32,
        signature: Mapping[str, tf.TensorSpec] | None = None,
        cell_seconds: Mapping[str, float] | None = None,
    ) -> None:
        """Builds every stage on its device; functions are traced with the first batch.

        Args:
          params: frozen params.
          cells: name -> params of each cell, in order; the last returns the loss.
          learner: optimiser, learning rate and clipping.
          devices: at least `params.num_devices()`, used in order: see `place_stages`.
          micro_batch: typical shapes of a micro-batch, for balancing.
          seed: seed of initial weights and of dropout.
          compute_dtype: dtype of activations; weights and the sums of their gradients are float32.
          signature: specs of the batch entries, None for dimensions that vary. None: those of the
            first batch; what varies later is opened then, for one more trace.
          cell_seconds: what `measure_cells` returned, to balance by. None: with `partition_costs`
            measured, the cells are measured here, on the first device.

        Raises:
          PartitionError: the cells cannot be cut as asked.
          DeviceError: fewer devices than the stages need.
          SharedWeightError: layers share a weight but declare it differently, or share state over
            stages.
          DeviceMemoryError: a stage does not fit its device.
        """
        self.params = params
        self._schedules: dict[int, Schedule] = {}
        schedule = self._schedule(params.num_micro_batches)
        places = place_stages(devices, schedule.placement, params.num_replicas)
        self.plan = _plan(
            params, cells, learner, micro_batch, devices[0], seed, compute_dtype, cell_seconds
        )
        self.step, self._learner = 0, learner
        self.loss_scale = learner.loss_scale.start() if compute_dtype == tf.float16 else None
        self._is_clean = True
        self.replicas = build_stages(
            self.plan, cells, places, schedule, params, seed=seed, compute_dtype=compute_dtype
        )
        self._shared = SharedWeights(self.replicas, params.num_sharing())
        self.weights = self._shared.weights
        self._executor = Executor(self.replicas, schedule.placement, params.poison_bubbles)
        self.copy_shared_weights()  # Tied layers may declare different initial values.
        self._learners = build_learners(self.replicas, self._shared, learner)
        self.slots = dict(_all_slots(self._learners))
        self._traces = StageTraces(self.replicas, signature or {}, micro_batch)

    @property
    def stages(self) -> list[Stage]:
        """The stages of the first replica, in order."""
        return self.replicas[0]

    def devices_by_stage(self) -> list[str]:
        """For each stage the names of its devices, one of each replica."""
        twins = zip(*self.replicas, strict=True)
        return [", ".join(stage.device for stage in stages) for stages in twins]

    def train_step(self, batch: Mapping[str, np.ndarray]) -> StepResult:
        """One synchronous step on a mini-batch: forward, backward, one update.

        In float16 a step whose loss is finite and whose gradient is not is skipped by all stages
        together: it counts, the loss scale falls, and weights, slots and the state of layers stay.
        Statistics of the forward pass are dropped too, though finite: weights and moving averages
        shall have seen the same batches.

        Args:
          batch: name -> array with examples along dimension 0, equally many in each.

        Raises:
          BatchError: entries that cannot be split, that a cell needs and lacks, or that have other
            dtypes than before.
          CellError: the last cell does not return what it must.
          PipelineError: a stage failed; no update was applied and the next step may run.
          DeviceMemoryError: with remat auto, not even the least fits device_memory.
          CompilationError: XLA cannot compile a stage, and `jit_compile` asks for it.
          NonFiniteError: loss, gradient (in float16: at the smallest loss scale) or the statistics
            of a layer with state are not finite; no update was applied.
        """
        micro_batches = self._prepare(batch)
        self._is_clean = False
        step = self.step + 1
        shares, routes = self._shares(micro_batches), self._traces.routes[None]
        loss_scale = self.loss_scale.scale if self.loss_scale else 1.0
        sums = add_up(self._executor.train(shares, routes, step, loss_scale))
        if self._shared.has_traffic:
            self._executor.each(self._shared.reduce, "reduction of gradients")
        squares = self._executor.each(lambda stage: self._learner_of(stage).squared_norm(), "norm")
        learning_rate = self._learner.learning_rate(step)
        result = result_of(step, sums, sum(squares), learning_rate, loss_scale)
        smaller = self._scale_after_overflow(result)
        if smaller:
            self.step, self.loss_scale = step, smaller
            return dataclasses.replace(result, is_skipped=True)
        if result.is_without_weight:
            # Nothing to learn from. An update would still move weights, by Adam's momentum.
            self.step = step
            return result
        check_finite(result, self.stages, is_scaled=self.loss_scale is not None)
        clip = clip_factor(result.grad_norm, self._learner.params.clip_global_norm)
        factor = 1.0 / result.weight / loss_scale * clip  # A loss scale is a power of two.
        # The update ends on every stage also if it is interrupted: from here on the step is done.
        self.step = step
        if self.loss_scale:
            self.loss_scale = self._learner.loss_scale.after_good_step(self.loss_scale)
        self._executor.each(
            lambda stage: self._learner_of(stage).update(factor, learning_rate, step),
            f"update {_RESTORE}",
        )
        if self._shared.has_traffic:
            self._executor.each(self._shared.broadcast, f"broadcast of weights {_RESTORE}")
        self._is_clean = True
        return result

    def _scale_after_overflow(self, result: StepResult) -> LossScaleState | None:
        """The loss scale that a gradient beyond float16 leaves; None if that is not the case.

        None too at the smallest scale, and if the loss is not finite, which no scale would mend.
        """
        if not self.loss_scale or not math.isfinite(result.loss) or math.isfinite(result.grad_norm):
            return None
        return self._learner.loss_scale.after_overflow(self.loss_scale)

    def record_step(self, batch: Mapping[str, np.ndarray]) -> tuple[StepResult, Recording]:
        """A training step like any other, and what each device did in it, and when.

        Every call waits for its device, which costs some time. What the first step of a batch's
        shape traces would be recorded as a wait: train on such a batch before.

        Raises:
          what `train_step` raises.
        """
        placement = self._schedule(self.params.num_micro_batches).placement
        recorder = StepRecorder(self.replicas, placement)
        with self._executor.recorded_by(recorder):
            return self.train_step(batch), recorder.recording()

    def evaluate_step(self, batch: Mapping[str, np.ndarray]) -> dict[str, float]:
        """The last cell's sums over a batch, without dropout and without an update.

        Raises:
          BatchError, PipelineError: as in `train_step`.
        """
        micro_batches = self._prepare(batch, Inference.evaluation)
        return add_up(self._infer(Inference.evaluation, micro_batches))

    def predict(self, batch: Mapping[str, np.ndarray]) -> Any:
        """What the last cell is given: the outputs of all others, without dropout.

        Args:
          batch: as in `train_step`; entries that only the last cell reads may be missing.

        Returns:
          a nested structure of arrays with the examples of the whole batch along dimension 0.

        Raises:
          BatchError, PipelineError: as in `train_step`.
          CellError: an output has no dimension of examples.
        """
        micro_batches = self._prepare(batch, Inference.prediction)
        results = self._infer(Inference.prediction, micro_batches)
        return join_predictions(results, [part.size for part in micro_batches])

    def __call__(self, inputs: np.ndarray | Mapping[str, np.ndarray]) -> Any:
        """`predict`, given a batch or the one entry that the cells but the last read.

        Raises:
          BatchError: the cells read several entries; give all of them by name.
        """
        if isinstance(inputs, Mapping):
            return self.predict(inputs)
        keys = {key for stage in self.stages for key in stage.keys(Inference.prediction)}
        if len(keys) != 1:
            raise BatchError(
                f"The cells read the batch entries {', '.join(sorted(keys)) or 'none'}; give the "
                "pipeline a batch that has them by name, not one array."
            )
        return self.predict({keys.pop(): np.asarray(inputs)})

    def copy_shared_weights(self) -> None:
        """Brings the copies of shared weights up to date; call it after restoring a checkpoint."""
        if self._shared.any_copies:
            self._executor.each(self._shared.copy_all, "copying of shared weights")

    def restore_loss_scale(self, record: Mapping[str, Any] | None) -> None:
        """Goes on from the loss scale of a checkpoint, where activations are float16.

        Args:
          record: `loss_scale.to_record()` of a pipeline before; None starts anew.
        """
        if self.loss_scale:
            self.loss_scale = self._learner.loss_scale.restored(record)

    def close(self) -> None:
        """Ends the devices' threads."""
        self._executor.close()

    def _schedule(self, num_micro_batches: int) -> Schedule:
        """The schedule for so many micro-batches; a small mini-batch has fewer than M."""
        schedule = self._schedules.get(num_micro_batches)
        if schedule is None:
            params = self.params
            schedule = make_schedule(
                params.schedule, params.num_stages, num_micro_batches, params.stages_per_device
            )
            schedule.validate()  # A stuck one would make the devices wait for ever.
            self._schedules[num_micro_batches] = schedule
        return schedule

    def _shares(self, micro_batches: Sequence[MicroBatch]) -> list[Share]:
        """What each replica does; those for which there is no micro-batch are left out."""
        shares = share_out(micro_batches, self.params.num_replicas)
        return [Share(self._schedule(len(share)), share) for share in shares if share]

    def _learner_of(self, stage: Stage) -> StageLearner:
        return self._learners[stage.replica][stage.index]

    def _infer(self, inference: Inference, micro_batches: Sequence[MicroBatch]) -> list[Any]:
        shares, routes = self._shares(micro_batches), self._traces.routes[inference]
        return self._executor.infer(inference, shares, routes, self.step)

    def _prepare(
        self, batch: Mapping[str, np.ndarray], inference: Inference | None = None
    ) -> list[MicroBatch]:
        """Splits the batch, traces the stages if its shapes ask for it, and tidies up.

        An `inference` of None is training. After a step that failed, was interrupted or skipped,
        accumulators hold parts of gradients and copies of shared weights may be old.
        """
        micro_batches = split_batch(batch, self.params.num_slices())
        self._traces.cover(micro_batches, inference)
        if not self._is_clean:
            self._executor.each(lambda stage: self._learner_of(stage).clear(), "clearing")
            self.copy_shared_weights()
            self._is_clean = True
        return micro_batches


def _all_slots(
    learners: Iterable[Iterable[StageLearner]],
) -> Iterator[tuple[str, tf.Variable]]:
    """Name and variable of every slot."""
    for parts in learners:
        for part in parts:
            yield from part.slots.items()


def _plan(
    params: Pipeline.Params,
    cells: Mapping[str, Layer.Params],
    learner: Learner,
    micro_batch: Mapping[str, Spec],
    device: str,
    seed: int,
    compute_dtype: tf.DType,
    cell_seconds: Mapping[str, float] | None,
) -> Plan:
    """The plan; measures the cells on `device` first where that is asked for and not yet done."""
    if params.partition_costs is PartitionCosts.measured and cell_seconds is None:
        cell_seconds = measure_cells(
            cells,
            micro_batch,
            device,
            seed=seed,
            compute_dtype=compute_dtype,
            remat=params.remat,
            jit_compile=params.jit_compile,
        )
    return plan_pipeline(
        params,
        cells,
        micro_batch,
        num_slots=len(learner.optimizer.slot_names),
        compute_dtype=compute_dtype.name,
        compute_bytes=compute_dtype.size,
        cell_seconds=cell_seconds,
    )
