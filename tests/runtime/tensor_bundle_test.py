"""Bundles in one part or several: the same names and values, readable by TensorFlow."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.runtime.tensor_bundle import read_bundle, reason, write_bundle

VALUES = {f"weights/{index}": np.full([10, 25], index, np.float32) for index in range(7)}


@pytest.mark.parametrize(("bytes_at_once", "files"), [(10**9, 1), (3000, 3), (2500, 4), (1, 7)])
def test_a_bundle_in_parts_reads_as_one(tmp_path: Path, bytes_at_once: int, files: int) -> None:
    infos = write_bundle(tmp_path / "tensors", VALUES, bytes_at_once)
    assert len(list(tmp_path.iterdir())) == files + 1
    read = dict(read_bundle(tmp_path / "tensors", infos, bytes_at_once))
    assert list(read) == sorted(VALUES)
    reader = tf.train.load_checkpoint(str(tmp_path / "tensors"))
    for name, value in VALUES.items():
        np.testing.assert_array_equal(read[name].numpy(), value)
        np.testing.assert_array_equal(reader.get_tensor(name), value)


def test_some_of_the_tensors_can_be_read(tmp_path: Path) -> None:
    infos = write_bundle(tmp_path / "tensors", VALUES)
    read = dict(read_bundle(tmp_path / "tensors", {"weights/3": infos["weights/3"]}))
    assert list(read) == ["weights/3"]


def test_files_do_not_depend_on_the_order_of_the_tensors(tmp_path: Path) -> None:
    for name, items in (("a", list(VALUES.items())), ("b", list(VALUES.items())[::-1])):
        (tmp_path / name).mkdir()
        write_bundle(tmp_path / name / "tensors", dict(items))
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_reasons_are_free_of_the_names_of_operations(tmp_path: Path) -> None:
    with pytest.raises(tf.errors.OpError) as caught:
        write_bundle(tmp_path / "missing" / "folder" / "tensors", VALUES | {"x": np.zeros(1)}, 1)
        (tmp_path / "file").write_text("")
        write_bundle(tmp_path / "file" / "tensors", VALUES)
    assert "function_node" not in reason(caught.value)
    assert "[Op:" not in reason(caught.value)
    assert reason(OSError(28, "No space left on device", "/x")) == "/x: No space left on device"
    assert reason(ValueError("Odd.")) == "Odd"
