"""The store of checkpoints: what comes back, which is found, and how many are kept."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.errors import UserError
from lingpipe.runtime.checkpoint import Better, CheckpointStore
from tests.runtime.small_checkpoints import STATE, hidden, save, tensors, variables


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "run" / "checkpoints", keep_last=3)


def test_what_is_saved_comes_back(store: CheckpointStore) -> None:
    save(store, 100)
    target = variables()
    saved = CheckpointStore(store.path(100).parent).restore_into("last", target)
    for name, value in tensors(100).items():
        np.testing.assert_array_equal(target[name].numpy(), value)
    assert (saved.step, saved.state, saved.metric) == (100, STATE, None)
    assert saved.tensors["weights/a/kernel"].shape == (3, 4)
    assert saved.tensors["weights/a/kernel"].dtype == "float32"
    assert saved.path.name == "step-00000100"


def test_tensorflow_reads_the_bundle_by_plain_names(store: CheckpointStore) -> None:
    saved = store.save(7, tensors(7), {})
    reader = tf.train.load_checkpoint(str(saved.bundle))
    assert reader.get_variable_to_shape_map() == {
        "weights/a/kernel": [3, 4],
        "weights/a/bias": [4],
        "slots/a/kernel/m": [3, 4],
    }
    np.testing.assert_array_equal(reader.get_tensor("weights/a/bias"), tensors(7)["weights/a/bias"])


def test_variables_tensors_and_arrays_of_any_dtype_can_be_saved(store: CheckpointStore) -> None:
    values = {
        "weights/v": tf.Variable([1.5, 2.5]),
        "weights/t": tf.constant([[1, 2]], tf.int64),
        "weights/b": tf.constant([1.0, 3.0], tf.bfloat16),
        "weights/n": np.float64(0.1) * np.ones([]),
        "weights/empty": np.zeros([0, 3], np.float32),
    }
    store.save(1, values, {})
    target = {name: tf.Variable(tf.zeros_like(value)) for name, value in values.items()}
    store.restore_into(1, target)
    for name, value in values.items():
        np.testing.assert_array_equal(target[name].numpy(), np.asarray(value))
        assert target[name].dtype == tf.as_dtype(value.dtype)


@pytest.mark.parametrize("devices_after", [1, 2, 4])
def test_tensors_of_four_devices_come_back_on_any_number(
    store: CheckpointStore, devices_after: int
) -> None:
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    values: dict[str, tf.Variable] = {}
    target: dict[str, tf.Variable] = {}
    for index in range(8):
        with tf.device(devices[index % 4]):
            values[f"weights/{index}"] = tf.Variable([float(index)])
        with tf.device(devices[index % devices_after]):
            target[f"weights/{index}"] = tf.Variable([-1.0])
    homes = {name: variable.device for name, variable in target.items()}
    store.save(1, values, {})
    with tf.device(devices[1]):
        store.restore_into("last", target)
    for index, (name, variable) in enumerate(target.items()):
        assert variable.numpy() == [index]
        assert variable.device == homes[name]


def test_the_checkpoint_does_not_follow_later_changes_of_a_variable(store: CheckpointStore) -> None:
    variable = tf.Variable([1.0])
    store.save(1, {"weights/v": variable}, {})
    variable.assign([2.0])
    store.restore_into("last", {"weights/v": variable})
    assert variable.numpy() == [1.0]


def test_floats_in_the_state_come_back_to_the_bit(store: CheckpointStore) -> None:
    state = {"values": [0.1, 1e-300, 1 / 3, 2**53 + 1], "deep": {"": {"x": [None, True, "é\n"]}}}
    store.save(1, tensors(1), state)
    assert store.read_state("last").state == state


@pytest.mark.parametrize(
    "state",
    [
        {"pair": (1, 2)},
        {"by_number": {1: 2}},
        {"x": float("nan")},
        {"x": np.float32(1)},
        {"x": {1}},
    ],
    ids=repr,
)
def test_a_state_that_json_would_change_is_refused_before_anything_is_written(
    store: CheckpointStore, state: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match="The state of a checkpoint"):
        store.save(1, tensors(1), state)
    assert store.steps() == []


def test_a_step_saved_again_is_replaced(store: CheckpointStore) -> None:
    save(store, 5)
    store.save(5, {"weights/other": np.ones([2], np.float32)}, {"cursor": 99})
    assert store.steps() == [5]
    assert store.read_state(5).state == {"cursor": 99}
    assert list(store.read_state(5).tensors) == ["weights/other"]
    assert hidden(store, 5) == []


@pytest.mark.parametrize(("step", "values"), [(-1, tensors(1)), (1, {})])
def test_a_save_of_nothing_or_before_the_start_is_refused(
    store: CheckpointStore, step: int, values: dict[str, np.ndarray]
) -> None:
    with pytest.raises(ValueError, match=r"must be at least 0, and there must be tensors"):
        store.save(step, values, {})


def test_an_empty_store_has_nothing(store: CheckpointStore) -> None:
    assert (store.steps(), store.latest(), store.best()) == ([], None, None)
    with pytest.raises(UserError, match=r"There is no checkpoint in .*run/checkpoints"):
        store.restore_into("last", variables())
    with pytest.raises(UserError, match=r"no checkpoint of step 3 .*; there is none at all"):
        store.read_state(3)


def test_an_unknown_step_lists_those_there_are(store: CheckpointStore) -> None:
    save(store, 100, 200)
    with pytest.raises(UserError, match=r"no checkpoint of step 150 in .*; there are: 100, 200\."):
        store.restore_into(150, variables())
    with pytest.raises(UserError, match=r"'lsat' is no checkpoint; use last, best or a step"):
        store.read_state("lsat")


@pytest.mark.parametrize("word", ["9" * 5000, "1" * 19, "\u0663", "-1", "1_0", " 1", ""])
def test_what_only_looks_like_a_step_is_none(store: CheckpointStore, word: str) -> None:
    """Python would read an Arabic three as 3, and refuses 5,000 digits with an error of its own."""
    save(store, 3)
    with pytest.raises(UserError, match="is no checkpoint; use last, best or a step"):
        store.read_state(word)


def test_a_step_may_be_given_as_a_number_or_its_digits(store: CheckpointStore) -> None:
    save(store, 100, 200)
    assert store.read_state(100).step == store.read_state("100").step == 100
    assert store.path(100).name == "step-00000100"


def test_best_needs_a_metric(store: CheckpointStore) -> None:
    save(store, 100)
    assert store.best() is None
    with pytest.raises(UserError, match=r"has a metric yet, so none is the best; use last"):
        store.read_state("best")


def test_steps_of_more_than_eight_digits_sort_by_number(store: CheckpointStore) -> None:
    save(store, 99_999_999, 100_000_000)
    assert store.steps() == [99_999_999, 100_000_000]
    assert store.latest() == 100_000_000


def test_other_files_in_the_folder_are_left_alone(store: CheckpointStore) -> None:
    save(store, 1)
    notes = store.path(1).parent / "notes.txt"
    notes.write_text("mine")
    (notes.parent / "step-7").mkdir()
    save(store, 2, 3, 4, 5)
    assert store.steps() == [3, 4, 5]
    assert notes.read_text() == "mine"
    assert (notes.parent / "step-7").exists()


def test_keep_n_means_n(tmp_path: Path) -> None:
    for keep_last in (1, 2, 5):
        store = CheckpointStore(tmp_path / str(keep_last), keep_last=keep_last)
        for step in range(1, 8):
            save(store, step)
            assert store.steps() == list(range(max(1, step - keep_last + 1), step + 1))


@pytest.mark.parametrize(
    ("keep_last", "keep_best", "better", "kept"),
    [
        (2, 1, Better.lower, [2, 5, 6]),
        (2, 1, Better.higher, [4, 5, 6]),
        (2, 0, Better.lower, [5, 6]),
        (2, 2, Better.lower, [2, 5, 6]),  # 5 is the second best and among the last.
        (2, 3, Better.lower, [1, 2, 5, 6]),
        (6, 1, Better.lower, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_the_best_are_kept_besides(
    tmp_path: Path, keep_last: int, keep_best: int, better: Better, kept: list[int]
) -> None:
    store = CheckpointStore(tmp_path, keep_last, keep_best, better)
    for step, metric in enumerate([3.0, 1.0, 4.0, 9.0, 2.0, 6.0], start=1):
        store.save(step, tensors(step), {}, metric)
    assert store.steps() == kept
    assert store.best() == (2 if better is Better.lower and keep_best else kept[0])


def test_of_equals_the_earliest_is_the_best(tmp_path: Path) -> None:
    for better in Better:
        store = CheckpointStore(tmp_path / better.value, better=better)
        for step in (1, 2, 3):
            store.save(step, tensors(step), {}, metric=0.5)
        assert store.best() == 1


def test_a_metric_may_come_later(store: CheckpointStore) -> None:
    for step, metric in ((1, 1.0), (2, None), (3, 3.0), (4, None), (5, None)):
        store.save(step, tensors(step), STATE, metric)
    assert store.steps() == [1, 3, 4, 5]
    store.set_metric(5, 0.5)
    assert store.steps() == [3, 4, 5]
    assert store.best() == 5
    saved = store.restore_into("best", variables())
    assert (saved.step, saved.metric, saved.state) == (5, 0.5, STATE)
    with pytest.raises(UserError, match=r"no checkpoint of step 1 .*there are: 3, 4, 5"):
        store.set_metric(1, 0.1)


def test_a_metric_can_be_changed_and_taken_away(store: CheckpointStore) -> None:
    save(store, 1, 2)
    store.set_metric(1, 1.0)
    store.set_metric(2, 2.0)
    store.set_metric(1, 3.0)
    assert store.best() == 2
    store.set_metric(2, None)
    assert store.best() == 1


@pytest.mark.parametrize("metric", [float("nan"), float("inf"), float("-inf")])
def test_a_metric_that_is_not_finite_is_never_the_best(
    store: CheckpointStore, metric: float, caplog: pytest.LogCaptureFixture
) -> None:
    store.save(1, tensors(1), {}, metric=5.0)
    store.save(2, tensors(2), {}, metric=metric)
    assert store.best() == 1
    assert store.read_state(2).metric is None
    assert "The metric of step 2 is" in caplog.text


def test_the_one_just_saved_is_kept_even_if_later_ones_exist(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep_last=2)
    save(store, 10, 20, 5)
    assert store.steps() == [5, 10, 20]


def test_going_back_discards_what_came_after(store: CheckpointStore) -> None:
    save(store, 10, 20, 30)
    assert store.discard_after(15) == [20, 30]
    assert store.latest() == 10
    assert store.discard_after(15) == []


@pytest.mark.parametrize(("keep_last", "keep_best"), [(0, 1), (3, -1)])
def test_keeping_none_is_refused(tmp_path: Path, keep_last: int, keep_best: int) -> None:
    with pytest.raises(ValueError, match=rf"keep_last \({keep_last}\) must be at least 1"):
        CheckpointStore(tmp_path, keep_last, keep_best)
