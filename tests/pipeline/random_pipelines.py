"""Random lists of cells, batches and settings, each a function of its number alone.

What travels between the cells is a dict: "x" floats [B, T, D], "ids" int32 [B], "hidden" a boolean
mask [B, T], and whatever a cell has put aside for one further down.

Every case trains for a step. A third of them go on: they evaluate a batch of another size, train
for a second step on yet another, and move their weights by a real optimiser in most cases.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer
from lingpipe.hyperparams import REQUIRED
from lingpipe.layers.batch_norm import BatchNorm
from lingpipe.layers.dropout import Dropout
from lingpipe.layers.embedding import Embedding
from lingpipe.layers.transformer import EncoderLayer
from lingpipe.pipeline.builder import Pipeline
from tests.conftest import NUM_DEVICES
from tests.pipeline.plain_optimizers import OPTIMIZERS, RATE, PlainOptimizer
from tests.pipeline.small_models import (
    Batch,
    Cell,
    Dense,
    Scale,
    assert_equal_arrays,
    make_learner,
    make_pipeline,
    reference_evaluation,
    reference_step,
    weights_of,
)

DIM, VOCABULARY = 4, 7
State = dict[str, tf.Tensor]


class Enter(Cell):
    """None -> the state; ids and mask are made from what the batch has."""

    class Params(Cell.Params):
        keys = ["x", "ids", "lengths"]

    def __call__(self, inputs: None, context: Context) -> State:
        x, lengths = context.batch["x"], context.batch["lengths"]
        hidden = tf.range(tf.shape(x)[1])[None] >= lengths[:, None]
        return {"x": x, "ids": context.batch["ids"], "hidden": hidden}


class Apply(Cell):
    """Applies a layer to "x"."""

    class Params(Cell.Params):
        layer: Layer.Params = REQUIRED

        def children(self) -> dict[str, Layer.Params]:
            return {"layer": self.layer}

    layer: Layer

    def __call__(self, inputs: State, context: Context) -> State:
        return {**inputs, "x": self.layer(inputs["x"], context)}


class Twice(Apply):
    """Applies one layer two times."""

    class Params(Apply.Params):
        pass

    def __call__(self, inputs: State, context: Context) -> State:
        return {**inputs, "x": self.layer(self.layer(inputs["x"], context), context)}


class Attend(Apply):
    """Attention among the positions that the mask shows."""

    class Params(Apply.Params):
        pass

    def __call__(self, inputs: State, context: Context) -> State:
        x = self.layer(inputs["x"], context, paddings=inputs["hidden"])  # type: ignore[call-arg]
        return {**inputs, "x": x}


class Look(Apply):
    """Adds rows of a table, by the ids that travel with the state, and counts the ids on."""

    class Params(Apply.Params):
        pass

    def __call__(self, inputs: State, context: Context) -> State:
        ids = inputs["ids"]
        x = inputs["x"] + self.layer(ids, context)[:, None]
        return {**inputs, "x": x, "ids": (ids + 1) % VOCABULARY}


class Keep(Cell):
    """Puts "x" aside for a cell further down, or for nobody."""

    class Params(Cell.Params):
        name: str = REQUIRED

    def __call__(self, inputs: State, context: Context) -> State:
        return {**inputs, self.params.name: inputs["x"] * 0.5}


class Add(Cell):
    """Adds what was put aside, and lets go of it."""

    class Params(Cell.Params):
        name: str = REQUIRED

    def __call__(self, inputs: State, context: Context) -> State:
        rest = {name: tensor for name, tensor in inputs.items() if name != self.params.name}
        return {**rest, "x": inputs["x"] + inputs[self.params.name]}


class Frozen(Apply):
    """Applies a layer as outside training: moving averages stay, and nothing is dropped."""

    class Params(Apply.Params):
        pass

    def __call__(self, inputs: State, context: Context) -> State:
        return super().__call__(inputs, dataclasses.replace(context, training=False))


class Plain(Cell):
    """A cell without weights."""

    def __call__(self, inputs: State, context: Context) -> State:
        return {**inputs, "x": tf.sin(inputs["x"]), "hidden": tf.identity(inputs["hidden"])}


class Turn(Cell):
    """Changes shapes and nothing else."""

    def __call__(self, inputs: State, context: Context) -> State:
        x = inputs["x"]
        flat = tf.reshape(x, [tf.shape(x)[0], -1])
        return {**inputs, "x": tf.reshape(flat[:, ::-1], tf.shape(x))}


class WeightedLoss(Cell):
    """Squared distances to "y" where the mask shows, weighted by example."""

    class Params(Cell.Params):
        keys = ["y", "weight"]

    def __call__(self, inputs: State, context: Context) -> State:
        shown = tf.cast(~inputs["hidden"], tf.float32) * context.batch["weight"][:, None]
        distance = tf.reduce_sum((inputs["x"] - context.batch["y"]) ** 2, axis=-1)
        return {"loss": tf.reduce_sum(distance * shown), "weight": tf.reduce_sum(shown)}


@dataclasses.dataclass(frozen=True)
class Case:
    """One random case: what to train, on what, and how it is cut.

    Attributes:
      cells: the model.
      setting: arguments of `make_pipeline`.
      optimizer: what moves the weights, and its slots.
      batches: a mini-batch for each training step.
      evaluated: a batch to evaluate between the steps, where there are two.
    """

    cells: dict[str, Layer.Params]
    setting: dict[str, Any]
    optimizer: PlainOptimizer
    batches: list[Batch]
    evaluated: Batch

    @property
    def num_reference_slices(self) -> int:
        """Micro-batches of the reference: one, unless examples mix in the cells."""
        mixes = any(name.startswith("norm") for name in self.cells)
        return self.num_slices if mixes else 1

    @property
    def num_slices(self) -> int:
        """Micro-batches of a mini-batch, over all replicas."""
        return self.setting["num_micro_batches"] * self.setting["num_replicas"]

    def __str__(self) -> str:
        kinds = ", ".join(name.partition("_")[0] for name in self.cells)
        shapes = ", ".join(str(batch["x"].shape) for batch in self.batches)
        optimizer = type(self.optimizer).__name__
        return f"{self.setting}, {optimizer}, batches {shapes}, cells {kinds}"


def make_case(number: int) -> Case:
    """The case of a number."""
    chance = random.Random(number)
    middle: dict[str, Layer.Params] = {}
    kept: list[str] = []
    for index in range(chance.randint(0, 6)):
        kind = chance.choice(sorted(_KINDS))
        if kind == "add" and not kept:
            kind = "dense"
        name = f"{kind}_{index}"
        if kind == "keep":
            kept.append(name)
        middle[name] = _KINDS[kind](chance, kept.pop(0) if kind == "add" else name)
    cells = {"enter": Enter.Params(), **middle, "loss": WeightedLoss.Params()}
    setting = _setting(chance, len(cells))
    goes_on = number % 3 == 0
    numbers = np.random.default_rng(number)
    evaluated, *batches = (_batch(numbers, chance) for _ in range(3 if goes_on else 2))
    if goes_on and chance.random() < 0.5:
        setting["signature"] = _open_signature(evaluated)
    optimizer = chance.choice(OPTIMIZERS if goes_on else OPTIMIZERS[:1])
    return Case(cells, setting, optimizer(), batches, evaluated)


def check_case(number: int) -> None:
    """Asserts that every step and evaluation is that of one device with the whole mini-batch."""
    case = make_case(number)
    learner = make_learner(case.optimizer.params, rate=RATE)
    pipeline = make_pipeline(case.cells, learner=learner, **case.setting)
    try:
        for step, batch in enumerate(case.batches, start=1):
            if step > 1:
                _check_evaluation(pipeline, case)
            _check_step(pipeline, case, batch, step)
    except AssertionError as error:
        raise AssertionError(f"case {number}: {case}\n{error}") from error
    finally:
        pipeline.close()


def _check_step(pipeline: Pipeline, case: Case, batch: Batch, step: int) -> None:
    """Trains, and holds loss, slots, weights and state against one device and plain NumPy."""
    weights = weights_of(pipeline)
    expected = reference_step(
        case.cells,
        batch,
        step=step,
        weights=weights,
        num_micro_batches=case.num_reference_slices,
    )
    result = pipeline.train_step(batch)
    np.testing.assert_allclose(result.loss, expected.loss, rtol=1e-5)
    largest = max((np.abs(g).max() for g in expected.gradients.values()), default=0.0)
    moved = case.optimizer.move(weights, expected.gradients, step)
    slots = {name: slot.numpy() for name, slot in pipeline.slots.items()}
    assert_equal_arrays(slots, case.optimizer.slots, rtol=1e-4, atol=2e-6 * largest)
    expected_weights = {**expected.fixed, **moved}
    assert_equal_arrays(weights_of(pipeline), expected_weights, rtol=1e-5, atol=2e-6 * largest)


def _check_evaluation(pipeline: Pipeline, case: Case) -> None:
    """Evaluates, which changes nothing."""
    weights = weights_of(pipeline)
    expected = reference_evaluation(case.cells, case.evaluated, weights)
    found = pipeline.evaluate_step(case.evaluated)
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
    assert found["weight"] == expected["weight"]
    assert_equal_arrays(weights_of(pipeline), weights, rtol=0, atol=0)


def _dense(chance: random.Random, shared: bool = False) -> Dense.Params:
    return Dense.Params(
        dim=DIM, trainable=shared or chance.random() > 0.2, share_weights="tied" if shared else None
    )


_KINDS: Mapping[str, Callable[[random.Random, str], Layer.Params]] = {
    "dense": lambda chance, name: Apply.Params(layer=_dense(chance)),
    "tied": lambda chance, name: Apply.Params(layer=_dense(chance, shared=True)),
    "twice": lambda chance, name: Twice.Params(layer=_dense(chance)),
    "scale": lambda chance, name: Apply.Params(layer=Scale.Params(dim=DIM)),
    "dropout": lambda chance, name: Apply.Params(layer=Dropout.Params(rate=0.3)),
    "attend": lambda chance, name: Attend.Params(layer=_attention(chance)),
    "look": lambda chance, name: Look.Params(
        layer=Embedding.Params(
            vocabulary_size=VOCABULARY,
            model_dim=DIM,
            share_weights="table" if chance.random() < 0.5 else None,
        )
    ),
    "norm": lambda chance, name: Apply.Params(layer=_norm(chance)),
    "frozen": lambda chance, name: Frozen.Params(layer=_norm(chance)),
    "plain": lambda chance, name: Plain.Params(),
    "keep": lambda chance, name: Keep.Params(name=name),
    "add": lambda chance, name: Add.Params(name=name),
    "turn": lambda chance, name: Turn.Params(),
}


def _norm(chance: random.Random) -> BatchNorm.Params:
    return BatchNorm.Params(
        model_dim=DIM,
        momentum=chance.choice([0.5, 0.9]),
        use_scale=chance.random() < 0.8,
        use_bias=chance.random() < 0.8,
    )


def _attention(chance: random.Random) -> EncoderLayer.Params:
    params = EncoderLayer.Params(model_dim=DIM, dropout=chance.choice([0.0, 0.2]))
    params.attention.num_heads = 2
    params.feed_forward.hidden_dim = 6
    return params


def _batch(numbers: np.random.Generator, chance: random.Random) -> Batch:
    """Examples of different lengths, some of weight 0, at least one of weight."""
    size, time = chance.randint(1, 9), chance.randint(1, 4)
    weight = numbers.integers(0, 3, size).astype(np.float32)
    weight[numbers.integers(size)] = 1.0
    return {
        "x": numbers.normal(size=(size, time, DIM)).astype(np.float32),
        "y": numbers.normal(size=(size, time, DIM)).astype(np.float32),
        "ids": numbers.integers(0, VOCABULARY, size).astype(np.int32),
        "lengths": numbers.integers(1, time + 1, size).astype(np.int32),
        "weight": weight,
    }


def _open_signature(batch: Batch) -> dict[str, tf.TensorSpec]:
    """Specs of a batch's entries, open in examples and time, so that nothing is traced again."""
    shapes = {name: [None, None, DIM] if name in "xy" else [None] for name in batch}
    return {name: tf.TensorSpec(shapes[name], array.dtype) for name, array in batch.items()}


def _setting(chance: random.Random, num_cells: int) -> dict[str, Any]:
    """Arguments of `make_pipeline`: stages, micro-batches, replicas, schedule, and so on."""
    schedule = chance.choice(["gpipe", "1f1b", "zb_h1", "interleaved"])
    num_stages = chance.randint(1, min(4, num_cells))
    per_device = 2 if schedule == "interleaved" and num_stages % 2 == 0 else 1
    setting = {
        "num_stages": num_stages,
        "num_micro_batches": chance.randint(1, 7),
        "schedule": schedule,
        "remat": chance.choice(["none", "layer", "stage", "auto"]),
        "stages_per_device": per_device,
    }
    if chance.random() < 0.5:
        cuts = sorted(chance.sample(range(1, num_cells), num_stages - 1))
        setting["partition"] = [b - a for a, b in zip([0, *cuts], [*cuts, num_cells], strict=True)]
    setting["num_replicas"] = min(chance.choice([1, 1, 2, 3]), NUM_DEVICES // num_stages)
    setting["shards_optimizer"] = chance.random() < 0.7
    return setting
