"""Small cells and pipelines for the tests, and the reference that pipelines are held to.

The reference is a plain `tf.GradientTape` over the same cells, called one after another on one
device with the whole mini-batch; or, for cells that mix examples, with one slice after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.initializers import constant, normal
from lingpipe.base.layer import Layer, Scope, Weight
from lingpipe.base.spec import Spec, Specs
from lingpipe.base.state import stateful_layers, update_state
from lingpipe.layers.batch_norm import BatchNorm
from lingpipe.learner.learner import Learner
from lingpipe.learner.optimizers import Momentum, Optimizer
from lingpipe.learner.schedules import Constant
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.micro_batch import split_batch
from tasks.mt.model import SharedTables, TransformerModel

Batch = dict[str, np.ndarray]
Cells = Mapping[str, Layer.Params]

SEED = 3

# (schedule, remat, stages_per_device) of a pipeline of an even number of stages: the last arguments
# of `make_pipeline`.
EVERY_SETTING = [
    (schedule, remat, 2 if schedule == "interleaved" else 1)
    for schedule in ("gpipe", "1f1b", "interleaved", "zb_h1")
    for remat in ("none", "layer", "stage")
]


class Cell(Layer):
    """A cell of a test: costs one, reads the batch entries that its params name."""

    class Params(Layer.Params):
        keys: list[str] = []

        def batch_keys(self) -> tuple[str, ...]:
            return tuple(self.keys)

        def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
            return Cost(1, inputs, 0)

    params: Params


class Source(Cell):
    """None -> batch entry 'x' [B, ..., D] in the compute dtype."""

    class Params(Cell.Params):
        keys = ["x"]

        def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
            return Cost(1, (batch or {}).get("x"), 0)

    def __call__(self, inputs: None, context: Context) -> tf.Tensor:
        return context.cast(context.batch["x"])


class Dense(Cell):
    """x [B, ..., D] -> x + tanh(x @ kernel)."""

    class Params(Cell.Params):
        dim: int = 4
        trainable: bool = True

        def weights(self) -> dict[str, Weight]:
            return {"kernel": Weight((self.dim, self.dim), normal(0.5), self.trainable)}

    kernel: tf.Variable

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        return inputs + tf.tanh(tf.matmul(inputs, context.cast(self.kernel)))


class Scale(Cell):
    """x [B, ..., D] -> x times a weight each feature, which starts at 1."""

    class Params(Cell.Params):
        dim: int = 4

        def weights(self) -> dict[str, Weight]:
            return {"scale": Weight((self.dim,), constant(1.0))}

    scale: tf.Variable

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        return inputs * context.cast(self.scale)


class Norm(Cell):
    """x [B, ..., D] -> BatchNorm of it."""

    class Params(Cell.Params):
        dim: int = 4
        momentum: float = 0.9

        def children(self) -> dict[str, Layer.Params]:
            return {"norm": BatchNorm.Params(model_dim=self.dim, momentum=self.momentum)}

    norm: BatchNorm

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        return self.norm(inputs, context)


class SquareLoss(Cell):
    """x [B, ..., D] -> the sum of squared distances to 'y', and the number of examples."""

    class Params(Cell.Params):
        keys = ["y"]

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        difference = tf.cast(inputs - context.batch["y"], tf.float32)
        count = tf.cast(tf.shape(inputs)[0], tf.float32)
        return {"loss": tf.reduce_sum(difference**2), "weight": count}


class Recorder(Optimizer):
    """Moves nothing; its slot 'gradient' holds the gradient of the last step."""

    @property
    def slot_names(self) -> tuple[str, ...]:
        return ("gradient",)

    def update(
        self,
        variable: tf.Variable,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Variable],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        slots["gradient"].assign(gradient)


def dense_cells(count: int = 4) -> dict[str, Layer.Params]:
    """`count` cells: a source, dense layers and a loss."""
    layers = {f"dense_{i}": Dense.Params() for i in range(count - 2)}
    return {"source": Source.Params(), **layers, "loss": SquareLoss.Params()}


def normalised_cells() -> dict[str, Layer.Params]:
    """Six cells, two of them with the state of a BatchNorm."""
    return {
        "source": Source.Params(),
        "norm_0": Norm.Params(),
        "dense_0": Dense.Params(),
        "norm_1": Norm.Params(),
        "dense_1": Dense.Params(),
        "loss": SquareLoss.Params(),
    }


def dense_batch(size: int, seed: int = 0) -> Batch:
    numbers = np.random.default_rng(seed)
    return {name: numbers.normal(size=(size, 4)).astype(np.float32) for name in ("x", "y")}


def make_learner(
    optimizer: Optimizer.Params | None = None, rate: float = 0.1, **values: Any
) -> Learner:
    """Gradient descent, unless told otherwise."""
    return Learner.Params(
        optimizer=Momentum.Params() if optimizer is None else optimizer,
        schedule=Constant.Params(value=rate),
        **values,
    ).build()


def make_pipeline(
    cells: Cells,
    num_stages: int = 1,
    num_micro_batches: int = 1,
    schedule: str = "gpipe",
    remat: str = "none",
    stages_per_device: int = 1,
    *,
    partition: list[int] | None = None,
    learner: Learner | None = None,
    micro_batch: Mapping[str, Spec] | None = None,
    debugging: Mapping[str, bool] | None = None,
    jit_compile: bool = False,
    num_replicas: int = 1,
    shards_optimizer: bool = True,
    **values: Any,
) -> Pipeline:
    """A pipeline on this process's CPU devices; `values` go to the builder."""
    debugging = debugging or {}
    params = Pipeline.Params(
        num_stages=num_stages,
        num_micro_batches=num_micro_batches,
        stages_per_device=stages_per_device,
        partition=partition,
        **debugging,
        jit_compile=jit_compile,
        num_replicas=num_replicas,
        shards_optimizer=shards_optimizer,
        device_memory="1TiB" if remat == "auto" else None,
    )
    params.override("schedule", schedule, text=True)
    params.override("remat", remat, text=True)
    return params.build(
        cells=cells,
        learner=learner or make_learner(),
        devices=[f"/CPU:{device}" for device in range(params.num_devices())],
        micro_batch=micro_batch or {},
        **{"seed": SEED, **values},
    )


def make_recorder(cells: Cells, *args: Any, **kwargs: Any) -> Pipeline:
    """A pipeline that keeps its weights and shows its gradients: see `gradients_of`."""
    return make_pipeline(cells, *args, learner=make_learner(Recorder.Params()), **kwargs)


def gradients_of(pipeline: Pipeline) -> dict[str, np.ndarray]:
    """Weight path -> gradient of the last step of a pipeline that `make_recorder` made."""
    return {name.removesuffix("/gradient"): slot.numpy() for name, slot in pipeline.slots.items()}


def weights_of(pipeline: Pipeline) -> dict[str, np.ndarray]:
    return {path: variable.numpy() for path, variable in pipeline.weights.items()}


@dataclasses.dataclass(frozen=True)
class Reference:
    """A step on one device.

    Attributes:
      sums: what the last cell returns, over the mini-batch.
      gradients: of loss / weight, by path of the trainable weight.
      fixed: weights that the learner does not move, frozen ones and state, as the step leaves them.
    """

    sums: dict[str, float]
    gradients: dict[str, np.ndarray]
    fixed: dict[str, np.ndarray]

    @property
    def loss(self) -> float:
        return self.sums["loss"] / self.sums["weight"]

    @property
    def grad_norm(self) -> float:
        return float(
            np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in self.gradients.values()))
        )


def reference_step(
    cells: Cells,
    batch: Batch,
    *,
    step: int = 1,
    compute_dtype: tf.DType = tf.float32,
    num_micro_batches: int = 1,
    weights: Mapping[str, np.ndarray] | None = None,
) -> Reference:
    """One step of `cells` under an eager tape, with the whole mini-batch or slice after slice.

    Weights, and state, start from `weights`, or as they are drawn for the seed.
    """
    layers, variables = _built(cells, weights)
    trainable = {path: v for path, v in variables.items() if v.trainable}
    gradients = {path: np.zeros(v.shape, np.float32) for path, v in trainable.items()}
    sums: dict[str, float] = {}
    statistics: dict[str, dict[str, tf.Tensor]] = {}
    for micro_batch in split_batch(batch, num_micro_batches):
        context = Context(
            training=True,
            step=step,
            seed=SEED,
            first_example=micro_batch.first_example,
            compute_dtype=compute_dtype,
            batch={name: tf.constant(array) for name, array in micro_batch.entries.items()},
            statistics=statistics,  # Which adds up what the slices report.
        )
        with tf.GradientTape() as tape:
            outputs = _outputs(layers, context)
        zero = tf.UnconnectedGradients.ZERO
        found = tape.gradient(outputs["loss"], trainable, unconnected_gradients=zero)
        for name, value in outputs.items():
            sums[name] = sums.get(name, 0.0) + float(value)
        for path, gradient in found.items():
            gradients[path] += tf.convert_to_tensor(gradient).numpy()
    for path, layer in stateful_layers(layers).items():
        if path in statistics:
            update_state(layer, statistics[path])
    return Reference(
        sums,
        {path: total / sums["weight"] for path, total in gradients.items()},
        {path: v.numpy() for path, v in variables.items() if not v.trainable},
    )


def reference_evaluation(
    cells: Cells, batch: Batch, weights: Mapping[str, np.ndarray] | None = None
) -> dict[str, float]:
    """What the last of `cells` returns for a whole batch outside training, on one device."""
    layers, _ = _built(cells, weights)
    context = Context(seed=SEED, batch={name: tf.constant(array) for name, array in batch.items()})
    return {name: float(value) for name, value in _outputs(layers, context).items()}


def _built(
    cells: Cells, weights: Mapping[str, np.ndarray] | None
) -> tuple[list[Layer], dict[str, tf.Variable]]:
    """The layers on one device, and path -> variable."""
    scope = Scope(seed=SEED)
    layers = [params.build(scope.child(name)) for name, params in cells.items()]
    for path, value in (weights or {}).items():
        scope.variables[path].assign(value)
    return layers, scope.variables


def _outputs(layers: list[Layer], context: Context) -> Any:
    outputs: Any = None
    for layer in layers:
        outputs = layer(outputs, context)
    return outputs


def assert_equal_arrays(
    found: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    rtol: float = 1e-5,
    atol: float = 1e-7,
) -> None:
    """Equal keys and close values; the message names the key."""
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=atol, err_msg=name)


# ------------------------------------------------------------------ a small Transformer


def transformer(**values: Any) -> TransformerModel.Params:
    """Two encoder layers and a decoder layer, dropout everywhere, one table for all three uses."""
    return TransformerModel.Params(
        **{
            "vocabulary_size": 29,
            "model_dim": 16,
            "ffn_dim": 32,
            "num_heads": 2,
            "num_encoder_layers": 2,
            "num_decoder_layers": 1,
            "dropout": 0.1,
            "attention_dropout": 0.1,
            "feed_forward_dropout": 0.1,
            "label_smoothing": 0.1,
            "shared_tables": SharedTables.all,
            **values,
        }
    )


TRANSLATION_MICRO_BATCH = {
    "source_ids": Spec((4, 6), "int32"),
    "target_ids": Spec((4, 7), "int32"),
    "target_labels": Spec((4, 7), "int32"),
    "target_weights": Spec((4, 7)),
}


def translation_signature() -> dict[str, tf.TensorSpec]:
    """Open in examples and time, so that no batch is traced anew."""
    return {
        name: tf.TensorSpec([None, None], spec.dtype)
        for name, spec in TRANSLATION_MICRO_BATCH.items()
    }


def translation_batch(size: int, seed: int = 0, vocabulary_size: int = 29) -> Batch:
    """Sentences of different lengths, padded with 0 to the longest."""
    numbers = np.random.default_rng(seed)
    source = _ragged(numbers, size, 7, vocabulary_size)
    labels = _ragged(numbers, size, 6, vocabulary_size)
    ids = np.concatenate([np.full((size, 1), 2), labels[:, :-1]], axis=1) * (labels > 0)
    return {
        "source_ids": source.astype(np.int32),
        "target_ids": ids.astype(np.int32),
        "target_labels": labels.astype(np.int32),
        "target_weights": (labels > 0).astype(np.float32),
    }


def _ragged(
    numbers: np.random.Generator, size: int, longest: int, vocabulary_size: int
) -> np.ndarray:
    lengths = numbers.integers(1, longest + 1, size)
    ids = numbers.integers(4, vocabulary_size, (size, lengths.max()))
    return ids * (np.arange(lengths.max()) < lengths[:, None])
