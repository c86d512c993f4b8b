"""A step that fails says where, moves nothing, hangs nothing and keeps nothing alive."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.initializers import constant
from lingpipe.base.layer import Weight
from lingpipe.learner.learner import Learner
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.errors import PipelineError
from lingpipe.pipeline.executor import Executor, Share
from lingpipe.pipeline.interface import Interface
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.routes import StageLeaves, find_routes
from lingpipe.pipeline.schedule import Schedule
from lingpipe.pipeline.schedules import gpipe, one_forward_one_backward, zb_h1
from tests.pipeline.small_models import (
    Batch,
    Cell,
    Cells,
    Dense,
    Source,
    SquareLoss,
    assert_equal_arrays,
    dense_batch,
    dense_cells,
    make_learner,
    make_pipeline,
    weights_of,
)

POISONED = 17.0  # The value at which a `Fragile` cell fails.


class Fragile(Cell):
    """x [B, 4] -> x, but fails at a poisoned example, in the way that its params say."""

    class Params(Cell.Params):
        keys = ["poison"]
        way: str = "assert"

        def weights(self) -> dict[str, Weight]:
            return {"scale": Weight((4,), constant(1.0))} if self.way == "weight" else {}

    params: Params
    scale: tf.Variable

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        poison = context.batch["poison"]
        if self.params.way == "assert":
            tf.debugging.assert_none_equal(poison, POISONED, message="poisoned example")
            return inputs
        if self.params.way == "backward":
            return fails_backward(inputs, poison)
        if self.params.way == "weight":
            return inputs * fails_backward(tf.convert_to_tensor(self.scale), poison)
        return inputs + tf.reshape(run_in_python(self.params.way, poison), [-1, 1])


def run_in_python(way: str, poison: tf.Tensor) -> tf.Tensor:
    """Zeros [B], unless one is poisoned: then it raises, or sleeps, in Python."""
    errors: dict[str, BaseException] = {
        "python": RuntimeError("poisoned example"),
        "interrupt": KeyboardInterrupt("poisoned example"),
        "exit": SystemExit("poisoned example"),
    }

    def look(values: np.ndarray) -> np.ndarray:
        if POISONED in values:
            if way == "sleep":
                time.sleep(0.5)
            else:
                raise errors[way]
        return np.zeros_like(values)

    return tf.numpy_function(look, [poison], tf.float32)


@tf.custom_gradient
def fails_backward(
    inputs: tf.Tensor, poison: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, None]]]:
    """x, whose gradient fails at a poisoned example."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        message = "poisoned example"
        check = tf.debugging.assert_none_equal(poison, POISONED, message=message)
        with tf.control_dependencies([check]):
            return tf.identity(upstream), None

    return tf.identity(inputs), gradient


def fragile_cells(way: str) -> Cells:
    return {
        "source": Source.Params(),
        "dense_0": Dense.Params(),
        "fragile": Fragile.Params(way=way),
        "dense_1": Dense.Params(),
        "loss": SquareLoss.Params(),
    }


def fragile_batch(poisoned_micro_batch: int | None, seed: int = 0) -> Batch:
    """Eight examples, two for each of four micro-batches."""
    poison = np.zeros(8, np.float32)
    if poisoned_micro_batch is not None:
        poison[2 * poisoned_micro_batch + 1] = POISONED
    return {**dense_batch(8, seed), "poison": poison}


def make_fragile(way: str, schedule: str = "gpipe", remat: str = "none") -> Pipeline:
    """Four stages, the fragile cell alone on stage 2; two of them on a device if interleaved."""
    per_device = 2 if schedule == "interleaved" else 1
    partition = [1, 1, 1, 2]
    return make_pipeline(fragile_cells(way), 4, 4, schedule, remat, per_device, partition=partition)


@pytest.mark.parametrize(
    ("way", "schedule", "remat", "phase"),
    [
        ("assert", "gpipe", "none", "forward"),
        ("assert", "1f1b", "stage", "forward"),
        ("python", "gpipe", "layer", "forward"),
        ("python", "1f1b", "none", "forward"),
        ("interrupt", "gpipe", "none", "forward"),
        ("exit", "gpipe", "none", "forward"),
        ("backward", "gpipe", "none", "backward"),
        ("backward", "1f1b", "stage", "backward"),
        ("assert", "interleaved", "stage", "forward"),
        ("backward", "interleaved", "none", "backward"),
        ("python", "zb_h1", "none", "forward"),
        ("backward", "zb_h1", "none", "backward_input"),
        ("backward", "zb_h1", "layer", "backward_input"),
        ("weight", "zb_h1", "none", "backward_weight"),
        ("weight", "zb_h1", "layer", "backward_weight"),
        ("weight", "1f1b", "none", "backward"),
    ],
)
def test_p10_a_failure_says_where_moves_nothing_and_the_next_step_runs(
    way: str, schedule: str, remat: str, phase: str
) -> None:
    pipeline, untouched = make_fragile(way, schedule, remat), make_fragile(way, schedule, remat)
    for each in (pipeline, untouched):
        each.train_step(fragile_batch(None))
    before = weights_of(pipeline)
    start = time.perf_counter()
    device = 0 if schedule == "interleaved" else 2
    words = (
        rf"Stage 2 \(cell fragile, device /CPU:{device}\) failed in the {phase} pass of "
        r"micro-batch 3: \w+Error: .*poisoned example"
    )
    with pytest.raises(PipelineError, match=words) as failure:
        pipeline.train_step(fragile_batch(3))
    assert time.perf_counter() - start < 2.0
    assert "function_node" not in str(failure.value)
    assert isinstance(failure.value.__cause__, tf.errors.OpError)
    assert pipeline.step == 1
    assert_equal_arrays(weights_of(pipeline), before, rtol=0, atol=0)
    # What the failed step accumulated is gone.
    batch = fragile_batch(None, seed=1)
    assert pipeline.train_step(batch) == untouched.train_step(batch)
    assert_equal_arrays(weights_of(pipeline), weights_of(untouched), rtol=0, atol=0)
    pipeline.close()
    untouched.close()


@pytest.mark.parametrize("schedule", ("1f1b", "interleaved", "zb_h1"))
@pytest.mark.parametrize("micro_batch", (0, 1, 2))
def test_whichever_micro_batch_fails_nothing_hangs(micro_batch: int, schedule: str) -> None:
    pipeline = make_fragile("assert", schedule)
    for _ in range(3):
        with pytest.raises(PipelineError, match=f"micro-batch {micro_batch}: .*poisoned"):
            pipeline.train_step(fragile_batch(micro_batch))
        with pytest.raises(PipelineError, match=f"forward pass of micro-batch {micro_batch}"):
            pipeline.evaluate_step(fragile_batch(micro_batch))
    assert pipeline.train_step(fragile_batch(None)).step == 1
    pipeline.close()


@pytest.fixture
def no_callbacks() -> Iterator[None]:
    """Python loses an interruption that comes while a garbage collection calls somebody back.

    Hypothesis's plugin is called back, to time collections.
    """
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = callbacks


@pytest.mark.usefixtures("no_callbacks")
@pytest.mark.parametrize("schedule", ("gpipe", "interleaved", "zb_h1"))
def test_p10_control_c_ends_a_step_and_the_next_one_runs(schedule: str) -> None:
    pipeline, untouched = make_fragile("sleep", schedule), make_fragile("sleep", schedule)
    for each in (pipeline, untouched):
        each.train_step(fragile_batch(None))
    before = weights_of(pipeline)
    timer = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
    start = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        pipeline.train_step(fragile_batch(0))
    assert time.perf_counter() - start < 2.0
    assert_equal_arrays(weights_of(pipeline), before, rtol=0, atol=0)
    batch = fragile_batch(None, seed=1)
    assert pipeline.train_step(batch) == untouched.train_step(batch)
    assert_equal_arrays(weights_of(pipeline), weights_of(untouched), rtol=0, atol=0)
    pipeline.close()
    untouched.close()


@pytest.mark.usefixtures("no_callbacks")
@pytest.mark.parametrize("call", ("train_step", "evaluate_step"))
def test_control_c_while_work_is_handed_out_leaves_no_device_waiting(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One device has its row by then, and waits for the other."""
    pipeline = make_pipeline(dense_cells(4), 2, 2)
    untouched = make_pipeline(dense_cells(4), 2, 2)
    for each in (pipeline, untouched):
        getattr(each, call)(dense_batch(4))
    pool = pipeline._executor._pools[0][1]
    submit = pool.submit

    def slowly(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        return submit(*args)

    monkeypatch.setattr(pool, "submit", slowly)
    with pytest.raises(KeyboardInterrupt):
        getattr(pipeline, call)(dense_batch(4))
    monkeypatch.undo()
    assert pipeline.train_step(dense_batch(4)) == untouched.train_step(dense_batch(4))
    pipeline.close()
    untouched.close()


# ------------------------------------------------------------------ the update


def interrupted_update(pipeline: Pipeline, act: Callable[[], Any], stage: int) -> None:
    """Makes the update of one stage do something first."""
    part = pipeline._learners[0][stage]
    update = part.update

    def changed(*args: Any) -> None:
        act()
        update(*args)
        part.update = update  # type: ignore[method-assign]

    part.update = changed  # type: ignore[method-assign, assignment]


@pytest.mark.usefixtures("no_callbacks")
def test_an_interruption_during_the_update_lets_every_stage_end_it() -> None:
    pipeline, untouched = make_pipeline(dense_cells(5), 3, 2), make_pipeline(dense_cells(5), 3, 2)
    untouched.train_step(dense_batch(4))

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)

    interrupted_update(pipeline, interrupt, stage=2)
    with pytest.raises(KeyboardInterrupt):
        pipeline.train_step(dense_batch(4))
    assert pipeline.step == 1
    assert_equal_arrays(weights_of(pipeline), weights_of(untouched), rtol=0, atol=0)
    assert pipeline.train_step(dense_batch(4, 1)) == untouched.train_step(dense_batch(4, 1))
    pipeline.close()
    untouched.close()


def test_a_failed_update_says_that_weights_may_have_moved() -> None:
    pipeline = make_pipeline(dense_cells(5), 3, 2)

    def fail() -> None:
        raise MemoryError("no room")

    interrupted_update(pipeline, fail, stage=1)
    words = (
        r"Stage 1 \(cells dense_1 .. dense_2, device /CPU:1\) failed in the update \(other stages "
        r"may have been updated: restore the last checkpoint\): MemoryError: no room"
    )
    with pytest.raises(PipelineError, match=words):
        pipeline.train_step(dense_batch(4))
    pipeline.close()


def test_each_waits_for_every_stage_before_it_raises() -> None:
    pipeline = make_pipeline(dense_cells(4), 3)
    ended: list[int] = []

    def work(stage: Any) -> None:
        if stage.index == 0:
            raise ValueError("first")
        time.sleep(0.1)
        ended.append(stage.index)

    with pytest.raises(PipelineError, match=r"Stage 0 .*failed in the work: ValueError: first"):
        Executor([pipeline.stages], range(3)).each(work, "work")
    assert sorted(ended) == [1, 2]
    assert Executor([pipeline.stages], range(3)).each(lambda stage: stage.index, "work") == [
        0,
        1,
        2,
    ]


class BrokenLearner(Learner):
    """Cannot be traced."""

    def apply(self, *args: Any) -> None:
        raise TypeError("no such optimiser")


def test_an_optimiser_that_cannot_be_traced_is_found_out_before_the_first_step() -> None:
    broken = BrokenLearner(make_learner().params)
    with pytest.raises(TypeError, match="no such optimiser"):
        make_pipeline(dense_cells(4), 2, learner=broken)


# ------------------------------------------------------------------ threads and memory


def device_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("device_")]


def test_threads_end_with_their_pipeline() -> None:
    gc.collect()
    before = len(device_threads())
    pipeline = make_pipeline(dense_cells(5), 4, 2)
    pipeline.train_step(dense_batch(4))
    pipeline.evaluate_step(dense_batch(4))
    assert len(device_threads()) == before + 4
    pipeline.close()
    assert len(device_threads()) == before
    forgotten = make_pipeline(dense_cells(5), 4, 2)
    forgotten.train_step(dense_batch(4))
    del forgotten
    gc.collect()
    deadline = time.perf_counter() + 5
    while len(device_threads()) > before and time.perf_counter() < deadline:
        time.sleep(0.01)
    assert len(device_threads()) == before


def test_every_device_has_a_thread_of_its_own_from_the_first_step_on() -> None:
    """One pool for all may hand two waiting devices to one thread, which then waits for itself."""
    pipeline = make_pipeline(dense_cells(5), 4)
    seen: list[list[str]] = []
    for _ in range(3):
        barrier = threading.Barrier(4, timeout=10)

        def work(_: Any, barrier: threading.Barrier = barrier) -> str:
            barrier.wait()
            return threading.current_thread().name

        seen.append(pipeline._executor.each(work, "work"))
    assert seen == [[f"device_{k}_0" for k in range(4)]] * 3
    pipeline.close()


class Thing:
    """Something that crosses a boundary, or that a stage keeps."""


class FakeStage:
    """Stands for a stage; knows how many of the things that it made are alive."""

    def __init__(self, index: int, num_stages: int, fails_at: int | None = None) -> None:
        self.index = index
        self.replica = 0
        self.device = f"/CPU:{index}"
        self.is_last = index == num_stages - 1
        self.jit_compile = False
        self.cells = {f"cell_{index}": None}
        self.sent: list[weakref.ref] = []
        self.kept: list[weakref.ref] = []
        self.live_at_backward: list[tuple[int, int]] = []
        self.live_at_weight: list[int] = []
        self.before: FakeStage | None = None
        self.fails_at = fails_at
        inputs = (0,) if index else ()
        outputs = {"loss": tf.TensorSpec([])}
        leaves = StageLeaves((None,), reads=inputs, makes=(0,), gives=inputs, takes=(0,))
        self.interfaces = {None: Interface(outputs, leaves, (), ())}

    def start_step(self) -> None:
        """Has no weights to prepare."""

    def end_step(self) -> None:
        """Has nothing to free."""

    def forward(self, leaves: Any, micro_batch: Any, step: int) -> tuple[Any, list]:
        del leaves, step
        sent, kept = Thing(), Thing()
        self.sent.append(weakref.ref(sent))
        self.kept.append(weakref.ref(kept))
        return [tf.constant(1.0) if self.is_last else sent], [kept]

    def backward(self, kept: list, gradients: list) -> list:
        del kept, gradients
        received = self.before.live("sent") if self.before else 0
        self.live_at_backward.append((self.live("kept"), received))
        if len(self.live_at_backward) - 1 == self.fails_at:
            raise ValueError("enough")
        return [Thing()]

    def backward_input(self, kept: list, gradients: list) -> tuple[list, list]:
        sent = self.backward(kept, gradients)
        handed_on = Thing()
        self.kept.append(weakref.ref(handed_on))
        return sent, [handed_on]

    def backward_weight(self, kept: list) -> None:
        del kept
        self.live_at_weight.append(self.live("kept"))

    def live(self, what: str) -> int:
        return sum(reference() is not None for reference in getattr(self, what))


def fake_stages(num_stages: int, fails_at: int | None = None) -> list[Any]:
    """Fake stages; the last one fails at a backward pass."""
    stages = [FakeStage(k, num_stages) for k in range(num_stages)]
    stages[-1].fails_at = fails_at
    for before, stage in itertools.pairwise([FakeStage(-1, num_stages), *stages]):
        stage.before = before
    return stages


MICRO_BATCHES = [MicroBatch(m, {}) for m in range(6)]
# Of three stages in a chain, each of which reads and makes one leaf.
ROUTES = find_routes([stage.interfaces[None].leaves for stage in fake_stages(3)])


def test_nothing_that_crossed_a_boundary_outlives_its_use() -> None:
    _, middle, last = stages = fake_stages(3)
    executor = Executor([stages], range(3))
    executor.train([Share(gpipe(3, 6), MICRO_BATCHES)], ROUTES, 1)
    # When the middle stage goes backward it has received all of the first one's tensors, and holds
    # none: not even the last, while it waits for the gradient. (The function at work here has the
    # one that it was given.)
    assert [received for _, received in middle.live_at_backward] == [0] * 6
    assert [kept for kept, _ in middle.live_at_backward] == [5, 4, 3, 2, 1, 0]
    assert [kept for kept, _ in last.live_at_backward] == [0] * 6
    for stage in stages:
        assert stage.live("sent") == stage.live("kept") == 0
    executor.close()


def test_what_weights_need_is_held_from_the_first_to_the_second_part_of_a_backward_pass() -> None:
    _, middle, last = stages = fake_stages(3)
    executor = Executor([stages], range(3))
    executor.train([Share(zb_h1(3, 6), MICRO_BATCHES)], ROUTES, 1)
    # Besides the one at work, the middle stage holds one after its I and one before it; the last
    # stage, two micro-batches behind with its W, two after their I.
    assert middle.live_at_weight == [2, 2, 2, 2, 1, 0]
    assert last.live_at_weight == [2, 2, 2, 2, 1, 0]
    for stage in stages:
        assert stage.live("sent") == stage.live("kept") == 0
    executor.close()


@pytest.mark.parametrize("rule", (gpipe, one_forward_one_backward, zb_h1))
def test_a_failed_step_holds_nothing_once_it_is_handled(rule: Callable[..., Schedule]) -> None:
    stages = fake_stages(3, fails_at=2)
    executor = Executor([stages], range(3))
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(PipelineError):
            executor.train([Share(rule(3, 6), MICRO_BATCHES)], ROUTES, 1)
        assert sum(len(stage.kept) for stage in stages) >= 9
        for stage in stages:
            assert stage.live("sent") == stage.live("kept") == 0
    finally:
        gc.enable()
    executor.close()


def test_p11_a_script_exits_by_itself() -> None:
    script = """
        import time
        from lingpipe.cluster.devices import stage_devices
        stage_devices(3)
        from tests.pipeline.small_models import dense_batch, dense_cells, make_pipeline
        pipelines = [make_pipeline(dense_cells(5), 3, 2) for _ in range(2)]
        for pipeline in pipelines:
            pipeline.train_step(dense_batch(4))
            pipeline.evaluate_step(dense_batch(4))
        print(time.time())
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=120, check=True
    )
    assert time.time() - float(done.stdout) < 5.0
