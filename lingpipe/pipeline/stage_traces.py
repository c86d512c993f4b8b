"""Traces the functions of all stages, once for a signature: training and each kind of inference.

The signature says which entries the batches have had, and which of their dimensions vary. A batch
that it does not cover widens it, and what was traced for the old one is traced anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.base.spec import Spec
from lingpipe.pipeline.compiled import CompiledShapes
from lingpipe.pipeline.inference import Inference
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.routes import StageLeaves, StageRoutes, demand_for, find_routes
from lingpipe.pipeline.signature import check_entries, widen_signature
from lingpipe.pipeline.stage import Stage


class StageTraces:
    """What has been traced of the stages of one pipeline.

    Attributes:
      routes: kind of pass -> what each stage sends and receives; None stands for training.
    """

    def __init__(
        self,
        replicas: Sequence[Sequence[Stage]],
        signature: Mapping[str, tf.TensorSpec],
        micro_batch: Mapping[str, Spec],
    ) -> None:
        """Traces nothing yet.

        Args:
          replicas: the stages of each replica, in order; all replicas are traced alike.
          signature: specs of batch entries, None for dimensions that vary; may be empty.
          micro_batch: specs of the entries of a typical micro-batch; the first one seen stands for
            those that are missing.
        """
        self._stages = stages = replicas[0]
        self._twins = list(zip(*replicas, strict=True))
        self._signature = dict(signature)
        self._typical = {
            name: tf.TensorSpec(spec.shape, spec.dtype) for name, spec in micro_batch.items()
        }
        self.routes: dict[Inference | None, tuple[StageRoutes, ...]] = {}
        self._shapes = CompiledShapes(key for stage in stages for key in stage.batch_keys)

    def cover(
        self, micro_batches: Sequence[MicroBatch], inference: Inference | None = None
    ) -> None:
        """Traces what micro-batches ask for, unless that has been done.

        Args:
          micro_batches: those of one mini-batch.
          inference: the kind; None for training.

        Raises:
          BatchError: entries that a cell needs are missing or have other dtypes than before.
          PipelineError, CellError: see `Stage.trace_training`.
        """
        entries = micro_batches[0].entries
        takes_part = inference or Inference.evaluation
        check_entries(self._stages, entries, takes_part)
        if any(stage.jit_compile for stage in self._stages):
            self._shapes.note(micro_batches, inference)
        read = dict.fromkeys(key for stage in self._stages for key in stage.keys(takes_part))
        widened = widen_signature(self._signature, {key: entries[key] for key in read})
        if widened != self._signature:
            self._signature = widened
            self.routes.clear()
        if inference not in self.routes:
            typical = {key: self._typical_spec(key, entries[key]) for key in read}
            self.routes[inference] = self._trace(inference, typical)

    def _typical_spec(self, key: str, seen: np.ndarray) -> tf.TensorSpec:
        """Spec of an entry in a typical micro-batch, which must fit what is traced.

        Dimensions that do not vary are those of the signature. Where what was called typical has
        another dtype or another number of dimensions, what was seen is typical.
        """
        traced = self._signature[key]
        spec = self._typical.get(key)
        if spec is None or spec.dtype != traced.dtype or spec.shape.rank != traced.shape.rank:
            return tf.TensorSpec(seen.shape, traced.dtype)
        dims = zip(traced.shape.as_list(), spec.shape.as_list(), strict=True)
        return tf.TensorSpec([new if old is None else old for old, new in dims], traced.dtype)

    def _trace(
        self, inference: Inference | None, typical: Mapping[str, tf.TensorSpec]
    ) -> tuple[StageRoutes, ...]:
        """Traces one kind of pass of every stage and finds its routes.

        From the first stage to the last each is told which gradients the stages before it take, but
        not yet which of its outputs are read. A stage that makes a leaf in vain is traced once
        more, from the last to the first: it may then read less of the stages before it. That is
        rare; as a rule each stage is traced once.
        """
        leaves: list[StageLeaves] = []
        inputs: list[Any] = [()]
        typical_inputs: list[Any] = [()]

        def trace(index: int) -> Any:
            demand = demand_for(leaves, index)
            known = (typical_inputs[index], typical)
            outputs = [
                stage.trace_training(inputs[index], self._signature, known, demand)
                if inference is None
                else stage.trace_inference(inference, inputs[index], self._signature, demand)
                for stage in self._twins[index]
            ]
            return outputs[0]

        for index, stage in enumerate(self._stages):
            inputs.append(trace(index))
            typical_inputs.append(stage.typical_outputs)
            leaves.append(stage.interfaces[inference].leaves)
        for index in reversed(range(len(leaves) - 1)):
            if demand_for(leaves, index).is_less_than(leaves[index]):
                trace(index)
                leaves[index] = self._stages[index].interfaces[inference].leaves
        return find_routes(leaves)
