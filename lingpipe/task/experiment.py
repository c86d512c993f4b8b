"""The whole of a training run as one tree of params: task, input, learner, pipeline, train.

It is what a run directory keeps in `params.txt`, what `--set PATH=VALUE` reaches into, and all that
is needed to build the run again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import tensorflow as tf

from lingpipe.cluster.devices import DeviceType
from lingpipe.hyperparams import REQUIRED, Params
from lingpipe.input.input import Input
from lingpipe.learner.learner import Learner
from lingpipe.pipeline.builder import Pipeline
from lingpipe.task.task import Task


class Dtype(enum.Enum):
    """Dtype of activations and their gradients.

    Weights, losses and the sums of weights' gradients are float32 throughout.
    """

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"  # More digits than bfloat16, less range: the loss is scaled.

    @property
    def tensorflow(self) -> tf.DType:
        """The TensorFlow dtype."""
        return tf.as_dtype(self.value)


class TrainParams(Params):
    """How long to train, and what to write down on the way."""

    max_steps: int = REQUIRED  # The run ends after this step.
    seed: int = 1  # Seed of initial weights, dropout and the order of the data.
    dtype: Dtype = Dtype.float32  # Dtype of activations: float32, bfloat16 or float16.
    log_every_steps: int = 10  # Steps from one line of metrics.jsonl to the next.
    # Steps from one evaluation on dev to the next, the last step too; 0 for never. The best
    # checkpoint is one of those that were evaluated.
    evaluate_every_steps: int = 200
    checkpoint_every_steps: int = 200  # Steps from one checkpoint to the next; the last step too.
    keep_last_checkpoints: int = 3  # Checkpoints kept, beside the best.

    def inconsistencies(self) -> Iterable[tuple[str, str]]:
        at_least = {
            "max_steps": 1,
            "log_every_steps": 1,
            "evaluate_every_steps": 0,
            "checkpoint_every_steps": 1,
            "keep_last_checkpoints": 1,
        }
        for field, least in at_least.items():
            value = getattr(self, field)
            if value < least:
                yield field, f"{field} ({value}) must be at least {least}."


class ClusterParams(Params):
    """Where stages run."""

    device_type: DeviceType = DeviceType.auto  # auto, cpu or gpu.


class Experiment:
    """Holds the root of the tree."""

    class Params(Params):
        """Everything that defines a run."""

        task: Task.Params = REQUIRED
        input: Input.Params = REQUIRED
        learner: Learner.Params = REQUIRED
        pipeline: Pipeline.Params = Pipeline.Params()
        train: TrainParams = REQUIRED
        cluster: ClusterParams = ClusterParams()

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            if self.pipeline.jit_compile and not self.input.has_few_shapes():
                yield (
                    "pipeline.jit_compile",
                    "jit_compile compiles every stage anew for each shape of a batch, and this "
                    "input's batches come in hundreds. Set input.static_shapes=true, and "
                    f"input.rows_multiple={self.pipeline.num_slices()}, the number of "
                    "micro-batches; the knob jit_compile=true sets all three.",
                )
