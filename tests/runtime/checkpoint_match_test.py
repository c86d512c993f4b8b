"""What is restored, and what is said, when names or shapes differ."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.runtime.checkpoint import CheckpointStore
from lingpipe.runtime.checkpoint_folder import CheckpointError
from tests.runtime.small_checkpoints import save, variables


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "run" / "checkpoints", keep_last=3)


def test_weights_can_be_restored_without_the_slots(store: CheckpointStore) -> None:
    save(store, 3)
    target = variables("weights/a/kernel", "weights/a/bias")
    store.restore_into("last", target)
    np.testing.assert_array_equal(target["weights/a/bias"].numpy(), [-3.0] * 4)


def test_all_that_does_not_fit_is_told_at_once_and_nothing_changes(store: CheckpointStore) -> None:
    save(store, 3)
    target = {
        "weights/a/kernel": tf.Variable(tf.zeros([3, 5])),
        "weights/a/bais": tf.Variable(tf.zeros([4])),
        "slots/a/kernel/m": tf.Variable(tf.zeros([3, 4])),
    }
    with pytest.raises(CheckpointError) as caught:
        store.restore_into("last", target)
    text = str(caught.value)
    assert f"Checkpoint {store.path(3)} does not fit this model" in text
    assert "weights/a/kernel: float32[3, 4] in the checkpoint, float32[3, 5] in the model" in text
    assert "not in the checkpoint:\n    weights/a/bais (nearest: weights/a/bias)" in text
    assert "only in the checkpoint:\n    weights/a/bias (nearest: weights/a/bais)" in text
    assert not any(np.any(variable.numpy()) for variable in target.values())


def test_without_strict_what_both_have_is_restored_and_the_rest_is_told(
    store: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    save(store, 3)
    target = {**variables("weights/a/kernel"), "weights/new": tf.Variable([7.0])}
    store.restore_into("last", target, strict=False)
    np.testing.assert_array_equal(target["weights/a/kernel"].numpy(), np.full([3, 4], 3.0))
    assert target["weights/new"].numpy() == [7.0]
    assert (
        "left as they were: weights/new; only in it, and not used: weights/a/bias." in caplog.text
    )


def test_without_strict_another_shape_is_still_refused(store: CheckpointStore) -> None:
    save(store, 3)
    target = {"weights/a/bias": tf.Variable(tf.zeros([4], tf.bfloat16))}
    with pytest.raises(CheckpointError, match=r"float32\[4\] in the checkpoint, bfloat16\[4\]"):
        store.restore_into("last", target, strict=False)
