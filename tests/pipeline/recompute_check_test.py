"""A cell that is not the same when it is computed again is found and named."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.pipeline.recompute_check import ImpureCellError, fingerprint
from tests.pipeline.small_models import (
    Cell,
    Dense,
    Source,
    SquareLoss,
    dense_batch,
    dense_cells,
    gradients_of,
    make_recorder,
    weights_of,
)


class Noisy(Cell):
    """Draws from a generator with state: another number at every call."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        return inputs * tf.random.uniform(tf.shape(inputs))


VERIFY = {"verify_recompute": True}
NOISY_CELLS = {
    "source": Source.Params(),
    "dense_0": Dense.Params(),
    "noisy_0": Noisy.Params(),
    "dense_1": Dense.Params(),
    "noisy_1": Noisy.Params(),
    "loss": SquareLoss.Params(),
}


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb_h1"])
@pytest.mark.parametrize("remat", ["layer", "stage"])
def test_the_first_impure_cell_is_named(schedule: str, remat: str) -> None:
    pipeline = make_recorder(NOISY_CELLS, 2, 2, schedule, remat, partition=[5, 1], debugging=VERIFY)
    before = weights_of(pipeline)
    with pytest.raises(ImpureCellError, match=r"Stage 0 \(cell noisy_0, .* returned other values"):
        pipeline.train_step(dense_batch(4))
    for path, value in weights_of(pipeline).items():
        np.testing.assert_array_equal(value, before[path])
    pipeline.close()


def test_a_state_that_auto_remat_would_have_to_repeat_is_kept_instead() -> None:
    """Random numbers of a generator with state are residuals, so that nothing is impure."""
    pipeline = make_recorder(NOISY_CELLS, 2, 2, "gpipe", "auto", partition=[5, 1], debugging=VERIFY)
    pipeline.train_step(dense_batch(4))
    pipeline.close()


@pytest.mark.parametrize("remat", ["none", "layer", "stage", "auto"])
@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
def test_pure_cells_pass_and_give_the_same_gradients(remat: str, schedule: str) -> None:
    gradients = []
    for verify in (False, True):
        pipeline = make_recorder(
            dense_cells(6), 2, 3, schedule, remat, debugging={"verify_recompute": verify}
        )
        pipeline.train_step(dense_batch(6))
        gradients.append(gradients_of(pipeline))
        pipeline.close()
    for path, gradient in gradients[0].items():
        np.testing.assert_array_equal(gradient, gradients[1][path])


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16, tf.float64, tf.int32])
def test_a_fingerprint_sees_every_bit_and_place(dtype: tf.DType) -> None:
    numbers = tf.cast(tf.reshape(tf.range(12), [3, 4]), dtype)
    first = int(fingerprint([numbers]))
    assert int(fingerprint([tf.identity(numbers)])) == first
    assert int(fingerprint([tf.reverse(numbers, [0])])) != first
    changed = tf.tensor_scatter_nd_add(numbers, [[2, 3]], tf.cast([1], dtype))
    assert int(fingerprint([changed])) != first
    assert int(fingerprint([numbers, numbers])) != int(fingerprint([numbers]))


def test_a_fingerprint_tells_zeros_of_both_signs_apart_and_nan_from_nan() -> None:
    assert int(fingerprint([tf.constant([0.0])])) != int(fingerprint([tf.constant([-0.0])]))
    nan = tf.constant([np.nan])
    assert int(fingerprint([nan])) == int(fingerprint([tf.identity(nan)]))
    assert int(fingerprint([tf.constant([True, False])])) != int(
        fingerprint([tf.constant([False, True])])
    )
