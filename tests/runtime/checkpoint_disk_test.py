"""A disk that is full or may not be written: named, and the checkpoint before is intact."""

import os
import resource
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.errors import UserError
from lingpipe.runtime import checkpoint
from lingpipe.runtime.checkpoint import CheckpointStore
from tests.runtime.small_checkpoints import STATE, hidden, save, tensors, variables


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "run" / "checkpoints", keep_last=3)


@pytest.fixture(name="small_files")
def _small_files() -> Iterator[None]:
    """No file may grow beyond 100 kB, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_files")
def test_a_file_that_cannot_grow_is_named_and_the_checkpoint_before_is_intact(
    store: CheckpointStore,
) -> None:
    save(store, 100)
    big = {"weights/big": np.ones([200_000], np.float32)}
    with pytest.raises(
        UserError,
        match=r"Cannot save checkpoint .*step-00000200: .*File too large.*step 100 is int",
    ):
        store.save(200, big, {})
    assert store.steps() == [100]
    assert hidden(store, 100) == []
    assert store.restore_into("last", variables()).step == 100


@pytest.mark.parametrize("function", ["write_bundle", "seal"])
def test_a_full_disk_is_named_and_the_checkpoint_before_is_intact(
    store: CheckpointStore, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, 100)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device", "/disk/file")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, function, full)
        with pytest.raises(
            UserError,
            match=r"step-00000200: /disk/file: No space left on device. The checkpoint of",
        ):
            save(store, 200)
    assert store.steps() == [100]
    assert hidden(store, 100) == []
    save(store, 200)
    assert store.latest() == 200


def test_a_full_disk_while_replacing_leaves_the_old_one(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, 100)
    rename = os.rename

    def full(source: Path, target: Path) -> None:
        if Path(source).name.startswith(".tmp-"):
            raise OSError(28, "No space left on device", str(target))
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        with pytest.raises(UserError, match=r"No space left on device"):
            store.save(100, tensors(1), {})
    assert store.read_state("last").state == STATE
    save(store, 100)
    assert hidden(store, 100) == []


@pytest.fixture(name="read_only")
def _read_only() -> Iterator[CheckpointStore]:
    """A store in a folder that may not be written; root, who may write anywhere, steps down."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        store = CheckpointStore(Path(name) / "checkpoints", keep_last=1)
        save(store, 100)
        os.chmod(store.path(100), 0o555)
        os.chmod(store.path(100).parent, 0o555)
        user = os.geteuid()
        try:
            if user == 0:
                _step_down()
            yield store
        finally:
            if user == 0:
                os.seteuid(0)
            for path in (store.path(100).parent, store.path(100)):
                os.chmod(path, stat.S_IRWXU)


def _step_down() -> None:
    """Becomes "nobody"; in a sandbox whose only user is root there is nobody to become."""
    try:
        os.seteuid(65534)
    except OSError:
        pytest.skip("this sandbox knows no user but root, who may write anywhere")


def test_a_read_only_folder_is_named_and_can_still_be_read(read_only: CheckpointStore) -> None:
    with pytest.raises(UserError, match=r"Cannot save checkpoint .*step-00000200: .*ermission den"):
        save(read_only, 200)
    with pytest.raises(UserError, match=r"Cannot set the metric of checkpoint .*ermission denied"):
        read_only.set_metric(100, 1.0)
    assert read_only.steps() == [100]
    assert read_only.restore_into("last", variables()).step == 100


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    store = CheckpointStore(tmp_path / "run" / "checkpoints")
    with pytest.raises(UserError, match=r"Cannot (save checkpoint|read) .*run.*: .*ot a directory"):
        save(store, 1)


def test_a_lost_worker_is_not_taken_for_a_fault_of_the_disk(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*args: Any, **kwargs: Any) -> None:
        raise tf.errors.UnavailableError(None, None, "worker/1 is gone")

    monkeypatch.setattr(checkpoint, "write_bundle", lost)
    with pytest.raises(tf.errors.UnavailableError, match=r"worker/1 is gone"):
        save(store, 1)
    assert store.steps() == []
