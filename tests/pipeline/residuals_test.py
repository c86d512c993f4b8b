"""`remat=auto`: what is kept fits the limit, is what was announced, and changes no bit.

The reference is the same stage that keeps everything.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers.transformer import EncoderLayer
from lingpipe.pipeline.errors import DeviceMemoryError
from lingpipe.pipeline.keeping import Keeping, Rematerialisation
from lingpipe.pipeline.micro_batch import MicroBatch
from lingpipe.pipeline.stage import Stage
from tests.pipeline.random_pipelines import DIM as RANDOM_DIM
from tests.pipeline.random_pipelines import VOCABULARY, Apply, make_case

ROWS, TIME, DIM = 4, 6, 8
AUTO = Rematerialisation.auto


def make_stage(keeping: Keeping, *, split: bool = False, dtype: tf.DType = tf.float32) -> Stage:
    layer = EncoderLayer.Params(model_dim=DIM, dropout=0.2)
    layer.attention.num_heads = 2
    layer.feed_forward.hidden_dim = 16
    cells = {f"layer_{i}": Apply.Params(layer=layer) for i in range(3)}
    stage = Stage(
        1,
        cells,
        "/CPU:0",
        seed=3,
        is_last=False,
        compute_dtype=dtype,
        keeping=keeping,
        splits_backward=split,
    )
    typical = ({"x": tf.TensorSpec([ROWS, TIME, DIM], dtype)}, {})
    stage.trace_training({"x": tf.TensorSpec([None, None, DIM], dtype)}, {}, typical)
    stage.start_step()
    return stage


def run(stage: Stage, rows: int = ROWS, *, split: bool = False) -> tuple[list[np.ndarray], int]:
    """Outputs, input gradients and accumulators of one micro-batch, and the bytes it kept."""
    dtype = tf.nest.flatten(stage.typical_outputs or [tf.TensorSpec([], tf.float32)])[0].dtype
    numbers = np.random.default_rng(0)
    inputs = [tf.cast(numbers.normal(size=(rows, TIME, DIM)), dtype)]
    ends = [tf.cast(numbers.normal(size=(rows, TIME, DIM)), dtype)]
    made, kept = stage.forward(inputs, MicroBatch(0, {}), step=1)
    size = sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in kept)
    if split:
        gradients, rest = stage.backward_input(kept, ends)
        stage.backward_weight(rest)
    else:
        gradients = stage.backward(kept, ends)
    sums = [stage.accumulators[path] for path in sorted(stage.accumulators)]
    return [np.asarray(t) for t in [*made, *gradients, *sums]], size


@functools.cache
def everything() -> tuple[list[np.ndarray], Any]:
    """The results of a stage that computes nothing again, and what it chose."""
    stage = make_stage(Keeping(AUTO))
    return run(stage)[0], stage.residuals


@pytest.mark.parametrize("share", [0.8, 0.5, 0.2, 0.1])
@pytest.mark.parametrize("split", [False, True])
def test_a_limit_is_kept_to_and_no_bit_changes(share: float, split: bool) -> None:
    expected, whole = everything()
    limit = int(whole.all_bytes * share)
    stage = make_stage(Keeping(AUTO, limit=limit), split=split)
    found, size = run(stage, split=split)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert stage.residuals
    assert stage.residuals.kept_bytes == size <= limit
    assert 0 < stage.residuals.share_again < 1


def test_the_less_room_the_more_is_computed_again() -> None:
    _, whole = everything()
    shares = []
    for share in (1.0, 0.7, 0.4, 0.1):
        stage = make_stage(Keeping(AUTO, limit=whole.all_bytes * share))
        assert stage.residuals
        shares.append(stage.residuals.share_again)
    assert shares == sorted(shares)
    assert shares[0] == 0.0


def test_without_recomputation_what_is_kept_is_what_none_keeps() -> None:
    """But for reshaped tensors, which `none` hands over beside those that they are views of."""
    expected, whole = everything()
    none = make_stage(Keeping())
    found, size = run(none)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert whole.all_bytes <= size
    assert whole.share_again == 0.0


def test_the_choice_for_a_typical_micro_batch_serves_any_other() -> None:
    _, whole = everything()
    small = make_stage(Keeping(AUTO, limit=whole.all_bytes // 3))
    reference = make_stage(Keeping())
    for a, b in zip(run(small, rows=1)[0], run(reference, rows=1)[0], strict=True):
        np.testing.assert_array_equal(a, b)


def test_in_bfloat16_what_is_computed_again_is_equal_to_the_bit() -> None:
    limit = everything()[1].all_bytes // 5
    few = make_stage(Keeping(AUTO, limit=limit, verify=True), dtype=tf.bfloat16)
    all_ = make_stage(Keeping(AUTO), dtype=tf.bfloat16)
    for a, b in zip(run(few)[0], run(all_)[0], strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_limit_below_what_must_be_kept_is_refused_with_the_numbers() -> None:
    """The inputs, 4 x 6 x 8 floats, and two numbers that key the dropout."""
    with pytest.raises(DeviceMemoryError, match=r"must keep 784 bytes .* leaves 100\."):
        make_stage(Keeping(AUTO, limit=100))


@pytest.mark.parametrize("number", range(16))
def test_random_cells_keep_little_and_change_no_bit(number: int) -> None:
    """Attention, dropout, BatchNorm, tables, skips: between what all keep and the least."""
    cells = dict(list(make_case(number).cells.items())[1:-1])
    if not cells:
        pytest.skip("The case has no cell between its ends.")
    keepings = [Keeping(AUTO)]
    found = []
    for _ in range(2):
        stage = Stage(1, cells, "/CPU:0", seed=3, is_last=False, keeping=keepings[-1])
        inputs = state_of(ROWS)
        specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, inputs)
        stage.trace_training(specs, {}, (specs, {}))
        stage.start_step()
        interface = stage.interfaces[None]
        flat = tf.nest.flatten(inputs)
        leaves = [flat[i] for i in interface.leaves.reads]
        made, kept = stage.forward(leaves, MicroBatch(0, {}), step=1)
        ends = [tf.ones_like(made[interface.leaves.makes.index(i)]) for i in interface.leaves.takes]
        gradients = stage.backward(kept, ends)
        sums = [stage.accumulators[path] for path in sorted(stage.accumulators)]
        found.append([np.asarray(tensor) for tensor in [*made, *gradients, *sums]])
        assert stage.residuals
        whole = stage.residuals
        keepings.append(Keeping(AUTO, limit=(whole.least_bytes + whole.all_bytes) // 2))
    assert whole.kept_bytes <= keepings[1].limit
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def state_of(rows: int) -> dict[str, tf.Tensor]:
    """What travels between the cells of random pipelines."""
    numbers = np.random.default_rng(0)
    return {
        "x": tf.constant(numbers.normal(size=(rows, 3, RANDOM_DIM)), tf.float32),
        "ids": tf.constant(numbers.integers(0, VOCABULARY, rows), tf.int32),
        "hidden": tf.constant([[False, False, True]] * rows),
    }
