"""What may cross between stages, and what a stage says of a cell that cannot be traced."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.errors import UserError
from lingpipe.pipeline.errors import CellError, PipelineError
from lingpipe.pipeline.micro_batch import BatchError, MicroBatch
from tests.pipeline.small_models import (
    EVERY_SETTING,
    Cell,
    Cells,
    Dense,
    Scale,
    Source,
    SquareLoss,
    assert_equal_arrays,
    dense_batch,
    dense_cells,
    gradients_of,
    make_pipeline,
    make_recorder,
    reference_step,
)

# ------------------------------------------------------------------ boundaries

# A sender makes one of these of a scaled x [B, 4], its receiver reads it.
SENDS: dict[str, Callable[[tf.Tensor], Any]] = {
    "one tensor": lambda x: x,
    "a tuple of two": lambda x: (x, tf.sin(x)),
    "a list of three": lambda x: [x, x * 2, tf.cos(x)],
    "five": lambda x: (x, x + 1, x + 2, x + 3, x + 4),
    "a nested dict": lambda x: {"a": {"b": x, "c": [x * x]}, "d": (tf.sin(x),)},
    "ids": lambda x: {"x": x, "ids": tf.cast(x > 0, tf.int32)},
    "a mask": lambda x: {"x": x, "mask": x > 0},
    "a shape": lambda x: {"x": x, "shape": tf.shape(x)},
    "numbers no one uses": lambda x: {"x": x, "unused": tf.exp(x), "unused ids": tf.argmax(x, 1)},
    "a tensor twice": lambda x: (x, x),
    "another size": lambda x: {"x": x, "row": tf.reduce_mean(x, axis=0)},
    "bfloat16": lambda x: {"x": x, "half": tf.cast(x, tf.bfloat16)},
}


class Send(Cell):
    """x -> what `SENDS` says."""

    class Params(Cell.Params):
        kind: str = ""

    params: Params

    def __call__(self, inputs: tf.Tensor, context: Context) -> Any:
        return SENDS[self.params.kind](inputs)


class Receive(Cell):
    """Any structure -> the sum of what is in it as floats [B, 4], unless it goes unused."""

    def __call__(self, inputs: Any, context: Context) -> tf.Tensor:
        tensors = dict(enumerate(tf.nest.flatten(inputs)))
        if isinstance(inputs, dict):
            tensors = {name: inputs[name] for name in inputs if "unused" not in name}
        floats = [tf.cast(x, tf.float32) for x in tf.nest.flatten(tensors) if x.dtype != tf.int32]
        total = sum(floats[1:], floats[0])
        if isinstance(inputs, dict) and "ids" in inputs:
            table = tf.constant([1.0, 3.0])
            total *= tf.gather(table, inputs["ids"])
        if isinstance(inputs, dict) and "shape" in inputs:
            total *= tf.cast(inputs["shape"][1], tf.float32)
        return total


@pytest.mark.parametrize("schedule", ("gpipe", "zb_h1"))
@pytest.mark.parametrize("kind", SENDS)
def test_p08_any_structure_crosses_a_boundary(kind: str, schedule: str) -> None:
    cells = {
        "source": Source.Params(),
        "scale": Scale.Params(),
        "send": Send.Params(kind=kind),
        "receive": Receive.Params(),
        "dense": Dense.Params(),
        "loss": SquareLoss.Params(),
    }
    batch = dense_batch(5)
    # The mean over a micro-batch is not that of the mini-batch.
    num_micro_batches = 1 if kind == "another size" else 2
    pipeline = make_recorder(cells, 2, num_micro_batches, schedule, partition=[3, 3])
    result = pipeline.train_step(batch)
    expected = reference_step(cells, batch)
    assert result.loss == pytest.approx(expected.loss, rel=1e-5)
    assert_equal_arrays(gradients_of(pipeline), expected.gradients, atol=1e-6)
    assert pipeline.evaluate_step(batch)["loss"] == pytest.approx(expected.sums["loss"], rel=1e-5)
    pipeline.close()


class Ids(Cell):
    """None -> the ids of the batch, nothing else."""

    class Params(Cell.Params):
        keys = ["ids"]

    def __call__(self, inputs: None, context: Context) -> tf.Tensor:
        return context.batch["ids"] + 1


class Look(Cell):
    """Ids -> floats, by a table of constants."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        return tf.one_hot(inputs, 4)


@pytest.mark.parametrize("schedule", ("gpipe", "zb_h1"))
@pytest.mark.parametrize("remat", ("none", "layer", "stage"))
def test_p08_a_boundary_of_ids_alone_has_no_gradient_to_send_back(
    remat: str, schedule: str
) -> None:
    cells = {
        "ids": Ids.Params(),
        "look": Look.Params(),
        "dense": Dense.Params(),
        "loss": SquareLoss.Params(),
    }
    batch = {"ids": np.array([0, 1, 2], np.int32), "y": dense_batch(3)["y"]}
    pipeline = make_recorder(cells, 3, 2, schedule, remat, partition=[1, 2, 1])
    pipeline.train_step(batch)
    assert_equal_arrays(gradients_of(pipeline), reference_step(cells, batch).gradients, atol=1e-6)
    pipeline.close()


class Fork(Cell):
    """x -> {'x', 'skip'}: a copy to pass along."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> dict[str, tf.Tensor]:
        return {"x": inputs, "skip": tf.sin(inputs)}


class Along(Dense):
    """{'x', 'skip'} -> the same, with x changed and the rest passed on."""

    def __call__(self, inputs: dict[str, tf.Tensor], context: Context) -> dict[str, tf.Tensor]:
        return {**inputs, "x": super().__call__(inputs["x"], context)}


class Join(Cell):
    """{'x', 'skip'} -> x * skip."""

    def __call__(self, inputs: dict[str, tf.Tensor], context: Context) -> tf.Tensor:
        return inputs["x"] * inputs["skip"]


@pytest.mark.parametrize("setting", EVERY_SETTING, ids=str)
def test_p12_a_connection_may_skip_stages(setting: tuple[str, str, int]) -> None:
    cells = {
        "source": Source.Params(),
        "scale": Scale.Params(),
        "fork": Fork.Params(),
        "along_1": Along.Params(),
        "along_2": Along.Params(),
        "join": Join.Params(),
        "loss": SquareLoss.Params(),
    }
    batch = dense_batch(6)
    pipeline = make_recorder(cells, 4, 3, *setting, partition=[3, 1, 1, 2])
    result = pipeline.train_step(batch)
    expected = reference_step(cells, batch)
    assert result.loss == pytest.approx(expected.loss, rel=1e-5)
    assert_equal_arrays(gradients_of(pipeline), expected.gradients, atol=1e-6)
    pipeline.close()


# ------------------------------------------------------------------ cells that cannot be traced


class Raises(Cell):
    """Raises what its params say while it is traced."""

    class Params(Cell.Params):
        kind: str = "shape"
        only_training: bool = False

    params: Params

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        kind = self.params.kind
        if self.params.only_training and not context.training:
            return inputs
        if kind == "shape":
            return tf.matmul(inputs, tf.zeros([3, 2]))
        errors = {"user": BatchError("mine"), "key": KeyError("k"), "stop": KeyboardInterrupt()}
        raise errors[kind]


def with_a_fault(kind: str, **values: Any) -> Cells:
    return {
        "source": Source.Params(),
        "dense": Dense.Params(),
        "fine": Scale.Params(),
        "faulty": Raises.Params(kind=kind, **values),
        "last": Scale.Params(),
        "loss": SquareLoss.Params(),
    }


@pytest.mark.parametrize("remat", ("none", "layer", "stage"))
def test_a_shape_error_names_stage_cell_and_device(remat: str) -> None:
    pipeline = make_pipeline(with_a_fault("shape"), 3, 2, remat=remat)
    words = (
        r"Stage 1 \(cell faulty, device /CPU:1\) failed in the trace of its training pass: "
        r"ValueError: Dimensions must be equal, but are 4 and 3"
    )
    with pytest.raises(PipelineError, match=words) as failure:
        pipeline.train_step(dense_batch(4))
    assert isinstance(failure.value.__cause__, ValueError)
    with pytest.raises(PipelineError, match="cell faulty.*trace of its evaluation pass"):
        pipeline.evaluate_step(dense_batch(4))


def test_a_fault_in_training_leaves_evaluation_alone() -> None:
    pipeline = make_pipeline(with_a_fault("key", only_training=True), 3, 2)
    assert pipeline.evaluate_step(dense_batch(4))["weight"] == 4
    with pytest.raises(PipelineError, match="cell faulty.*: KeyError: 'k'"):
        pipeline.train_step(dense_batch(4))
    assert pipeline.evaluate_step(dense_batch(4))["weight"] == 4
    pipeline.close()


def test_mistakes_of_the_user_and_interruptions_pass_as_they_are() -> None:
    with pytest.raises(BatchError, match="^mine$"):
        make_pipeline(with_a_fault("user"), 3).train_step(dense_batch(4))
    with pytest.raises(KeyboardInterrupt):
        make_pipeline(with_a_fault("stop"), 3).train_step(dense_batch(4))


class NoGradient(Cell):
    """x -> x through an operation that has no gradient."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        return tf.raw_ops.RandomGammaGrad(alpha=inputs**2 + 1, sample=inputs**2)


def test_an_operation_without_gradient_names_the_stage() -> None:
    cells = {**dense_cells(4), "dense_1": NoGradient.Params()}
    with pytest.raises(
        PipelineError,
        match=r"Stage 1 \(cells dense_1 .. loss, .*training pass: LookupError: .*RandomGammaGrad",
    ):
        make_pipeline(cells, 2).train_step(dense_batch(4))


def test_cells_may_have_names_that_operations_may_not() -> None:
    cells = {re.sub("_", " é:", f"_{name}"): params for name, params in dense_cells(4).items()}
    pipeline = make_pipeline(cells, 2)
    assert pipeline.train_step(dense_batch(4)).loss > 0
    pipeline.close()


# ------------------------------------------------------------------ the last cell


class Returns(Cell):
    """x -> what `RETURNS` says."""

    class Params(Cell.Params):
        kind: str = ""

    params: Params

    def __call__(self, inputs: tf.Tensor, context: Context) -> Any:
        return RETURNS[self.params.kind](inputs)


RETURNS: dict[str, Callable[[tf.Tensor], Any]] = {
    "tensor": tf.reduce_sum,
    "no weight": lambda x: {"loss": tf.reduce_sum(x), "wait": tf.ones([])},
    "vector": lambda x: {"loss": tf.reduce_sum(x, axis=1), "weight": tf.ones([])},
    "bool": lambda x: {"loss": tf.reduce_sum(x), "weight": tf.ones([]), "ok": tf.constant(True)},
    "integer": lambda x: {"loss": tf.size(x), "weight": tf.ones([])},
    "complex": tf.signal.rfft,
}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("tensor", "must return a dict with at least 'loss' and 'weight'.*; it returns .*Tensor"),
        ("no weight", r"at least 'loss' and 'weight'.*; it returns a dict of \['loss', 'wait'\]"),
        ("vector", r"must return numbers, .*'loss' is .*shape=\(None,\).*Use tf.reduce_sum"),
        ("bool", "must return numbers, .*'ok' is .*bool"),
        ("integer", "must return a floating 'loss', not int32"),
        ("complex", "returns a complex64 tensor .* as real numbers"),
    ],
)
def test_a_last_cell_that_returns_no_sums_is_refused(kind: str, words: str) -> None:
    cells = {"source": Source.Params(), "dense": Dense.Params(), "end": Returns.Params(kind=kind)}
    where = r"Stage 1 \(cell end, device /CPU:1\)"
    for step in ("train_step", "evaluate_step"):
        pipeline = make_pipeline(cells, 2, partition=[1, 2])
        with pytest.raises(CellError, match=f"{where}.*{words}") as refusal:
            getattr(pipeline, step)(dense_batch(2))
        assert isinstance(refusal.value, UserError)


# ------------------------------------------------------------------ what is kept


@pytest.mark.parametrize(("remat", "tensors"), (("none", 6), ("layer", 3), ("stage", 1)))
def test_a_stage_keeps_what_its_rematerialisation_says(remat: str, tensors: int) -> None:
    """Of three dense cells: the input of each and its tanh, the inputs alone, or the first one."""
    pipeline = make_pipeline(dense_cells(6), 3, 2, remat=remat, partition=[1, 3, 2])
    batch = dense_batch(4)
    pipeline.train_step(batch)
    stage = pipeline.stages[1]
    assert list(stage.cells) == ["dense_0", "dense_1", "dense_2"]
    _, kept = stage.forward([tf.constant(batch["x"])], MicroBatch(0, {}), 1)
    floats = [tensor for tensor in kept if tensor.dtype == tf.float32]
    assert len(floats) == tensors
    assert all(tensor.shape == (4, 4) for tensor in floats)
    pipeline.close()


@pytest.mark.parametrize("remat", ("none", "layer", "stage"))
def test_between_the_parts_of_its_backward_pass_a_stage_keeps_what_its_weights_need(
    remat: str,
) -> None:
    """Of three dense cells: the input of each, and the gradient before its tanh."""
    pipeline = make_pipeline(dense_cells(7), 3, 2, "zb_h1", remat, partition=[2, 3, 2])
    batch = dense_batch(4)
    pipeline.train_step(batch)
    stage = pipeline.stages[1]
    (made,), kept = stage.forward([tf.constant(batch["x"])], MicroBatch(0, {}), 1)
    (gradient,), kept = stage.backward_input(kept, [tf.ones_like(made)])
    assert gradient.shape == (4, 4)
    floats = [tensor for tensor in kept if tensor.dtype == tf.float32]
    assert [tensor.shape for tensor in floats] == [(4, 4)] * 6
    assert all(np.all(sum_.numpy() == 0) for sum_ in stage.accumulators.values())
    assert stage.backward_weight(kept) is None  # type: ignore[func-returns-value]
    assert all(np.all(sum_.numpy() != 0) for sum_ in stage.accumulators.values())
    pipeline.close()
