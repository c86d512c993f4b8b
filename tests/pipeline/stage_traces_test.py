"""Leaves go from the stage that makes them straight to those that read them, and nowhere else.

Losses and gradients are those of a plain tape; what went where is seen at the mailboxes.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.errors import PipelineError
from lingpipe.pipeline.mailboxes import Mailboxes, Parcel
from lingpipe.pipeline.stage import Stage
from tests.pipeline.small_models import (
    EVERY_SETTING,
    Batch,
    Cell,
    Cells,
    Dense,
    Scale,
    SquareLoss,
    assert_equal_arrays,
    dense_batch,
    gradients_of,
    make_pipeline,
    make_recorder,
    reference_step,
)

State = dict[str, tf.Tensor]


class Start(Scale):
    """None -> some of the entries: "x" and "skip" [B, 4], "ids" int32 [B], "shown" bool [B, 4]."""

    class Params(Scale.Params):
        makes: list[str] = ["x", "skip"]

        def batch_keys(self) -> tuple[str, ...]:
            return ("x", "ids")

    params: Params

    def __call__(self, inputs: None, context: Context) -> State:
        x = super().__call__(context.cast(context.batch["x"]), context)
        ids = context.batch["ids"] + 1
        made = {"x": x, "skip": tf.sin(x), "ids": ids, "shown": x > 0}
        return {name: made[name] for name in self.params.makes}


class Mix(Dense):
    """Writes what a dense layer makes of the sum of some entries; hands on the others."""

    class Params(Dense.Params):
        reads: list[str] = ["x"]
        writes: str = "x"
        drops: list[str] = []

    params: Params

    def __call__(self, inputs: State, context: Context) -> State:
        terms = []
        for name in self.params.reads:
            entry = inputs[name]
            terms.append(context.cast(tf.one_hot(entry, 4) if entry.shape.rank == 1 else entry))
        made = super().__call__(tf.add_n(terms), context)
        rest = {name: entry for name, entry in inputs.items() if name not in self.params.drops}
        return {**rest, self.params.writes: made}


class End(SquareLoss):
    """The squared distances of "x" to 'y'."""

    def __call__(self, inputs: State, context: Context) -> State:
        return super().__call__(tf.cast(inputs["x"], tf.float32), context)


def cells_of(*middle: Layer.Params, makes: tuple[str, ...] = ("x", "skip")) -> Cells:
    named = {f"cell_{i}": params for i, params in enumerate(middle)}
    return {"start": Start.Params(makes=list(makes)), **named, "end": End.Params()}


def mix(*reads: str, writes: str = "x", drops: tuple[str, ...] = ()) -> Layer.Params:
    return Mix.Params(reads=list(reads), writes=writes, drops=list(drops))


def batch_of(size: int = 6, seed: int = 0) -> Batch:
    ids = np.random.default_rng(seed).integers(0, 3, size).astype(np.int32)
    return {**dense_batch(size, seed), "ids": ids}


def checked(cells: Cells, *args: Any, **kwargs: Any) -> Pipeline:
    """A pipeline after a step whose loss and gradients were those of a tape."""
    pipeline = make_recorder(cells, *args, **kwargs)
    result = pipeline.train_step(batch_of())
    expected = reference_step(cells, batch_of())
    assert result.loss == pytest.approx(expected.loss, rel=1e-5)
    assert_equal_arrays(gradients_of(pipeline), expected.gradients, atol=1e-6)
    return pipeline


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[tuple[str, int, int], int]]:
    """(what, sender, receiver) -> number of tensors in such a parcel."""
    found: dict[tuple[str, int, int], int] = {}
    put = Mailboxes.put

    def spying(boxes: Mailboxes, parcel: Parcel, value: Any) -> None:
        found[parcel[:3]] = len(value)
        put(boxes, parcel, value)

    monkeypatch.setattr(Mailboxes, "put", spying)
    yield found


def crossings(*pairs: str, gradients: tuple[str, ...] | None = None) -> dict:
    """The parcels of pairs of stages such as "01" or "03 2": one tensor, or as many as it says.

    Gradients go the other way, of the same pairs unless others are given.
    """
    wanted = {}
    for pair in pairs:
        wanted["inputs", int(pair[0]), int(pair[1])] = int(pair[2:] or 1)
    for pair in pairs if gradients is None else gradients:
        wanted["gradients", int(pair[1]), int(pair[0])] = int(pair[2:] or 1)
    return wanted


def forwards(*pairs: str) -> dict:
    """The parcels of a pass without gradients."""
    return crossings(*pairs, gradients=())


# ------------------------------------------------------------------ skips

U_NET = cells_of(mix("x"), mix("x"), mix("x", "skip"))


@pytest.mark.parametrize("setting", EVERY_SETTING, ids=str)
def test_a_skipped_leaf_never_enters_the_stages_between(
    setting: tuple[str, str, int], sent: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[int, set[tuple[int, int]]] = {k: set() for k in range(4)}
    forward, infer = Stage.forward, Stage.infer

    def spying(stage: Stage, leaves: list, *rest: Any) -> tuple[list, list]:
        made, kept = forward(stage, leaves, *rest)
        given[stage.index].add((len(leaves), len(made)))
        return made, kept

    def spying_too(stage: Stage, inference: Any, leaves: list, *rest: Any) -> list:
        made = infer(stage, inference, leaves, *rest)
        given[stage.index].add((len(leaves), len(made)))
        return made

    monkeypatch.setattr(Stage, "forward", spying)
    monkeypatch.setattr(Stage, "infer", spying_too)
    pipeline = checked(U_NET, 4, 3, *setting, partition=[1, 1, 1, 2])
    assert sent == crossings("01", "12", "23", "03")
    sums = pipeline.evaluate_step(batch_of())
    assert sums["loss"] == pytest.approx(reference_step(U_NET, batch_of()).sums["loss"], rel=1e-5)
    assert given == {0: {(0, 2)}, 1: {(1, 1)}, 2: {(1, 1)}, 3: {(2, 2)}}
    for stage in pipeline.stages[1:3]:  # The weight is cast or not, the rest is x alone.
        assert sum(spec.shape[0] is None for spec in stage._training.forward.signature) == 1
    pipeline.close()


@pytest.mark.parametrize("setting", EVERY_SETTING, ids=str)
def test_gradients_of_several_readers_and_the_own_use_add_up(
    setting: tuple[str, str, int], sent: dict
) -> None:
    """Stage 0 makes skip and reads it; stages 1, 2 and 3 read it again."""
    first, others = mix("x", "skip"), [mix("x", "skip") for _ in range(3)]
    pipeline = checked(cells_of(first, *others), 4, 3, *setting, partition=[2, 1, 1, 2])
    assert sent == crossings("01 2", "12", "23", "02", "03")
    pipeline.close()


@pytest.mark.parametrize("schedule", ("gpipe", "1f1b", "zb_h1"))
def test_the_order_in_which_gradients_arrive_changes_no_bit(schedule: str) -> None:
    cells = cells_of(*[mix("x", "skip") for _ in range(6)])
    pipeline = make_recorder(cells, 4, 6, schedule)
    found = []
    for _ in range(8):
        pipeline.train_step(batch_of(12))
        found.append(gradients_of(pipeline))
    for gradients in found[1:]:
        assert_equal_arrays(gradients, found[0], rtol=0, atol=0)
    pipeline.close()


def test_stages_on_one_device_send_each_other_leaves_too(sent: dict) -> None:
    """Stages 0 and 2 lie on one device, and 1 and 3."""
    cells = cells_of(mix("x"), mix("x", "skip"), mix("x"))
    pipeline = checked(cells, 4, 4, "interleaved", "none", 2, partition=[1, 1, 1, 2])
    assert sent == crossings("01", "12", "23", "02")
    pipeline.close()


@pytest.mark.parametrize("remat", ("none", "layer", "stage"))
@pytest.mark.parametrize("schedule", ("1f1b", "zb_h1"))
def test_ids_and_masks_skip_and_no_gradient_comes_back(
    schedule: str, remat: str, sent: dict
) -> None:
    cells = cells_of(mix("x"), mix("x", "shown"), mix("ids", "x"), makes=("x", "ids", "shown"))
    pipeline = checked(cells, 4, 3, schedule, remat, partition=[1, 1, 1, 2])
    assert sent == crossings("01", "12", "23", "02", "03", gradients=("01", "12", "23"))
    pipeline.close()


@pytest.mark.parametrize("remat", ("none", "layer", "stage", "auto"))
def test_leaves_skip_in_bfloat16(remat: str, sent: dict) -> None:
    cells = cells_of(mix("x"), mix("x", "skip"), mix("x", "skip"))
    pipeline = make_recorder(
        cells, 4, 3, "1f1b", remat, partition=[1, 1, 1, 2], compute_dtype=tf.bfloat16
    )
    result = pipeline.train_step(batch_of())
    assert sent == crossings("01", "12", "23", "02", "03")
    expected = reference_step(cells, batch_of(), compute_dtype=tf.bfloat16)
    assert result.loss == pytest.approx(expected.loss, rel=0.02)
    for name, gradient in gradients_of(pipeline).items():
        distance = np.linalg.norm(gradient - expected.gradients[name])
        assert distance < 0.03 * np.linalg.norm(expected.gradients[name]), name
    pipeline.close()


def test_two_stages_send_one_parcel_each_way(sent: dict) -> None:
    checked(U_NET, 2, 3, partition=[2, 3]).close()
    assert sent == crossings("01 2")


@pytest.mark.parametrize("setting", EVERY_SETTING[::3], ids=str)
def test_a_stage_may_read_nothing_of_what_the_one_before_made(
    setting: tuple[str, str, int], sent: dict
) -> None:
    """Stages 1 and 2 read the leaves of stage 0 side by side; stage 3 joins what they made."""
    left, right = mix("x", writes="left", drops=("x",)), mix("skip", writes="right")
    cells = cells_of(left, right, mix("left", "right"))
    checked(cells, 4, 3, *setting, partition=[1, 1, 1, 2]).close()
    assert sent == crossings("01", "02", "13", "23")


# ------------------------------------------------------------------ what nobody reads


@pytest.mark.parametrize("remat", ("none", "layer", "stage"))
@pytest.mark.parametrize("schedule", ("gpipe", "zb_h1"))
def test_what_nobody_reads_is_neither_made_nor_sent(schedule: str, remat: str, sent: dict) -> None:
    """Stage 1 puts aside what it makes of skip, for nobody, so that skip is not read either."""
    cells = cells_of(mix("skip", writes="aside"), mix("x"), mix("x"))
    pipeline = checked(cells, 4, 3, schedule, remat, partition=[1, 1, 1, 2])
    assert sent == crossings("02", "23")
    made = [stage.interfaces[None].leaves.makes for stage in pipeline.stages[:3]]
    assert [len(leaves) for leaves in made] == [1, 0, 1]
    sent.clear()
    pipeline.evaluate_step(batch_of())
    assert sent == forwards("02", "23")
    pipeline.close()


class Halt(Cell):
    """Adds skip to x, in such a way that it gets no gradient."""

    def __call__(self, inputs: State, context: Context) -> State:
        return {**inputs, "x": inputs["x"] + tf.stop_gradient(inputs["skip"])}


@pytest.mark.parametrize("remat", ("none", "layer"))
def test_a_gradient_that_is_never_given_is_not_waited_for(remat: str, sent: dict) -> None:
    """Stage 1 makes skip by a weight; stage 2 reads it, and gives no gradient for it."""
    cells = cells_of(mix("x", writes="skip"), Halt.Params(), mix("x"), makes=("x",))
    pipeline = checked(cells, 4, 3, "1f1b", remat, partition=[1, 1, 1, 2])
    assert sent == crossings("01", "02", "12", "23", gradients=("02", "23"))
    assert pipeline.stages[1].interfaces[None].leaves.takes == ()
    pipeline.close()


class Gate(Cell):
    """Leaves x where "row" is 1."""

    def __call__(self, inputs: State, context: Context) -> State:
        return {**inputs, "x": inputs["x"] * inputs["row"]}


class Row(Cell):
    """Adds "row" [B, 1], floats 0 or 1 made of the batch's ids."""

    class Params(Cell.Params):
        keys = ["ids"]

    def __call__(self, inputs: State, context: Context) -> State:
        row = context.cast(context.batch["ids"][:, None] > 0)
        return {**inputs, "row": row}


def test_a_float_mask_made_of_ids_gets_no_gradient(sent: dict) -> None:
    cells = cells_of(Row.Params(), mix("x"), Gate.Params(), mix("x"), makes=("x",))
    pipeline = checked(cells, 4, 3, partition=[2, 1, 1, 2])
    assert sent == crossings("01", "12", "23", "02", gradients=("01", "12", "23"))
    pipeline.close()


# ------------------------------------------------------------------ cells that only look


class Look(Cell):
    """Asserts that no x is as large as a limit; hands on its state as it is."""

    class Params(Cell.Params):
        plain: bool = True

    params: Params

    def __call__(self, inputs: State, context: Context) -> State:
        check = tf.debugging.assert_less(inputs["x"], 1e3, message="too large")
        if self.params.plain:
            return dict(inputs)
        with tf.control_dependencies([check]):
            return {**inputs, "x": tf.identity(inputs["x"])}


@pytest.mark.parametrize("remat", ("none", "layer", "stage"))
@pytest.mark.parametrize("plain", (True, False))
def test_a_stage_that_only_asserts_still_does(plain: bool, remat: str, sent: dict) -> None:
    cells = cells_of(mix("x"), Look.Params(plain=plain), mix("x", "skip"))
    pipeline = checked(cells, 4, 2, "1f1b", remat, partition=[1, 1, 1, 2])
    if plain:  # Then stage 2 reads x, to look at it, and makes nothing.
        gradients = ("01", "13", "03")
        assert sent == crossings("01", "12", "13", "03", gradients=gradients)
    else:
        assert sent == crossings("01", "12", "23", "03")
    bad = batch_of()
    bad["x"][4] = 1e6
    for step in (pipeline.train_step, pipeline.evaluate_step):
        with pytest.raises(PipelineError, match=r"Stage 2 .*forward pass.*too large"):
            step(bad)
    assert pipeline.train_step(batch_of()).step == 2
    pipeline.close()


class Turn(Cell):
    """Hands on its state; the gradient of x changes its sign."""

    def __call__(self, inputs: State, context: Context) -> State:
        @tf.custom_gradient
        def turn(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
            return tf.identity(x), lambda gradient: -gradient

        return {**inputs, "x": turn(inputs["x"])}


@pytest.mark.parametrize("remat", ("none", "layer", "stage"))
@pytest.mark.parametrize("schedule", ("gpipe", "zb_h1"))
def test_a_copy_with_a_gradient_of_its_own_is_kept(schedule: str, remat: str) -> None:
    cells = cells_of(mix("x"), Turn.Params(), mix("x", "skip"))
    checked(cells, 4, 2, schedule, remat, partition=[1, 1, 1, 2]).close()


# ------------------------------------------------------------------ results


@pytest.mark.parametrize("setting", EVERY_SETTING[::3], ids=str)
def test_a_prediction_holds_leaves_of_all_stages(setting: tuple[str, str, int], sent: dict) -> None:
    """The last stage has the loss alone: what it is given was made by stages 0, 1 and 2."""
    cells = cells_of(
        mix("x", writes="a"), mix("a", writes="x"), makes=("x", "skip", "ids", "shown")
    )
    pipeline = make_pipeline(cells, 4, 3, *setting, partition=[1, 1, 1, 1])
    found = pipeline.predict(batch_of(7))
    assert sent == forwards("01", "12", "03 3", "13", "23")
    expected = make_pipeline(cells).predict(batch_of(7))
    assert list(found) == list(expected)
    assert_equal_arrays(found, expected)
    assert {name: array.dtype for name, array in found.items()} == {
        name: array.dtype for name, array in expected.items()
    }
    # Training and evaluation go other ways, and each keeps its own.
    pipeline.evaluate_step(batch_of())
    pipeline.train_step(batch_of())
    assert_equal_arrays(
        pipeline.predict(batch_of(7)), make_after_a_step(cells).predict(batch_of(7))
    )
    pipeline.close()


def make_after_a_step(cells: Cells) -> Pipeline:
    """One stage, after the step that the others did."""
    pipeline = make_pipeline(cells)
    pipeline.train_step(batch_of())
    return pipeline


class Sums(Cell):
    """The state -> sums; the weight was made by the first stage."""

    class Params(Cell.Params):
        keys = ["y"]

    def __call__(self, inputs: State, context: Context) -> State:
        loss = tf.reduce_sum((inputs["x"] - context.batch["y"]) ** 2)
        return {"loss": loss, "weight": inputs["weight"]}


class Count(Cell):
    """Adds the number of examples to the state."""

    def __call__(self, inputs: State, context: Context) -> State:
        return {**inputs, "weight": tf.cast(tf.shape(inputs["x"])[0], tf.float32)}


def test_the_result_may_hold_what_an_earlier_stage_made(sent: dict) -> None:
    cells = {**cells_of(Count.Params(), mix("x"), makes=("x",)), "end": Sums.Params()}
    pipeline = checked(cells, 3, 2, partition=[2, 1, 1])
    assert sent == crossings("01", "12", "02", gradients=("01", "12"))
    assert pipeline.evaluate_step(batch_of())["weight"] == 6
    pipeline.close()


# ------------------------------------------------------------------ memory


def test_a_skipped_leaf_is_free_once_its_last_reader_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last stage goes backward with each micro-batch as soon as it went forward."""
    made: list[weakref.ref] = []
    alive: list[int] = []
    forward, backward = Stage.forward, Stage.backward

    def forward_spy(stage: Stage, *args: Any) -> tuple[list, list]:
        leaves, kept = forward(stage, *args)
        if stage.index == 0:
            made.extend(weakref.ref(leaf) for leaf in leaves)
        return leaves, kept

    def backward_spy(stage: Stage, *args: Any) -> list:
        if stage.is_last:
            passed = made[: 2 * (len(alive) + 1)]
            alive.append(sum(leaf() is not None for leaf in passed))
        return backward(stage, *args)

    pipeline = make_pipeline(U_NET, 4, 3, partition=[1, 1, 1, 2])
    pipeline.train_step(batch_of())
    monkeypatch.setattr(Stage, "forward", forward_spy)
    monkeypatch.setattr(Stage, "backward", backward_spy)
    pipeline.train_step(batch_of())
    assert (len(made), alive) == (6, [0, 0, 0])
    pipeline.close()
