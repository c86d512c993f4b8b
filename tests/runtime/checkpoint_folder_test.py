"""A damaged checkpoint is noticed, named and passed over, whatever the damage."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingpipe.runtime import checkpoint
from lingpipe.runtime.checkpoint import CheckpointStore
from lingpipe.runtime.checkpoint_folder import CheckpointError, DamagedCheckpointError
from tests.runtime.small_checkpoints import save, tensors, variables


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "run" / "checkpoints", keep_last=3)


def flip(path: Path, offset: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1 << bit
    path.write_bytes(content)


def damage(kind: str, folder: Path) -> None:
    data, index, state = (
        folder / name for name in ("tensors.data-00000-of-00001", "tensors.index", "state.json")
    )
    match kind:
        case "data cut short":
            os.truncate(data, data.stat().st_size - 1)
        case "data empty":
            os.truncate(data, 0)
        case "bit of data":
            flip(data, offset=data.stat().st_size // 2)
        case "bit of index":
            flip(index, offset=10)
        case "data missing":
            data.unlink()
        case "index missing":
            index.unlink()
        case "data is a folder":
            data.unlink()
            data.mkdir()
        case "state cut short":
            os.truncate(state, 100)
        case "digit of state":
            state.write_text(state.read_text().replace('"cursor": 12', '"cursor": 13'))
        case "state missing":
            state.unlink()
        case "state is a list":
            state.write_text("[1, 2]")


DAMAGES = {
    "data cut short": r"tensors.data-00000-of-00001 has \d+ bytes instead of \d+",
    "data empty": r"tensors.data-00000-of-00001 has 0 bytes instead of",
    "bit of data": r"content of tensors.data-00000-of-00001 does not match its checksum",
    "bit of index": r"content of tensors.index does not match its checksum",
    "data missing": r"tensors.data-00000-of-00001 is missing",
    "index missing": r"tensors.index is missing",
    "data is a folder": r"tensors.data-00000-of-00001 (has|cannot be read)",
    "state cut short": r"state.json is cut short or garbled",
    "digit of state": r"state.json does not match its checksum",
    "state missing": r"state.json is missing",
    "state is a list": r"state.json is cut short or garbled",
}


@pytest.mark.parametrize("is_reopened", [True, False])
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(
    store: CheckpointStore, kind: str, is_reopened: bool, caplog: pytest.LogCaptureFixture
) -> None:
    save(store, 100, 200)
    damage(kind, store.path(200))
    if is_reopened:
        store = CheckpointStore(store.path(100).parent)
    assert store.latest() == 100
    assert f"Checkpoint {store.path(200)} is damaged" in caplog.text
    target = variables()
    assert store.restore_into("last", target).step == 100
    assert np.all(target["weights/a/kernel"].numpy() == 100)
    with pytest.raises(DamagedCheckpointError, match=DAMAGES[kind]):
        store.restore_into(200, target)
    assert store.steps() == [100, 200]


def test_every_flipped_bit_of_a_small_checkpoint_is_noticed(store: CheckpointStore) -> None:
    save(store, 1)
    for path in sorted(store.path(1).iterdir()):
        content = path.read_bytes()
        for offset in range(0, len(content), 7 if path.name != "state.json" else 3):
            flip(path, offset, bit=offset % 8)
            with pytest.raises(DamagedCheckpointError, match=rf"{path.name}"):
                store.read_state(1)
            path.write_bytes(content)
    assert store.read_state(1).step == 1


def test_a_damaged_best_is_passed_over(
    store: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    for step, metric in ((1, 2.0), (2, 1.0), (3, 3.0)):
        store.save(step, tensors(step), {}, metric)
    damage("bit of data", store.path(2))
    assert store.best() == 1
    assert f"{store.path(2)} is damaged" in caplog.text
    damage("state missing", store.path(1))
    assert store.best() == 3


def test_a_run_never_starts_anew_over_checkpoints_that_are_all_damaged(
    store: CheckpointStore,
) -> None:
    save(store, 1, 2)
    damage("data missing", store.path(1))
    damage("state cut short", store.path(2))
    with pytest.raises(DamagedCheckpointError) as caught:
        store.latest()
    assert "step-00000001 is damaged" in str(caught.value)
    assert "step-00000002 is damaged" in str(caught.value)
    assert "No valid checkpoint is left" in str(caught.value)


def test_damaged_checkpoints_take_no_place_and_are_replaced_when_reached_again(
    tmp_path: Path,
) -> None:
    store = CheckpointStore(tmp_path, keep_last=2)
    save(store, 100, 200)
    damage("bit of data", store.path(200))
    assert store.latest() == 100
    save(store, 150)
    assert store.steps() == [100, 150, 200]
    save(store, 200)
    assert store.steps() == [150, 200]
    assert store.latest() == 200


def test_tensorflows_own_checksum_is_asked_too(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, 1)
    damage("bit of data", store.path(1))
    monkeypatch.setattr(checkpoint, "check_contents", lambda saved: None)
    with pytest.raises(DamagedCheckpointError, match=r"step-00000001 is damaged: .*hecksum"):
        CheckpointStore(store.path(1).parent).restore_into(1, variables())


def test_contents_are_read_for_checking_only_once(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, 1)
    reopened = CheckpointStore(store.path(1).parent)
    reads: list[int] = []
    monkeypatch.setattr(checkpoint, "check_contents", lambda saved: reads.append(saved.step))
    assert reopened.latest() == 1
    reopened.restore_into("last", variables())
    assert reads == [1]


def test_a_checkpoint_of_a_newer_version_is_no_damage(store: CheckpointStore) -> None:
    save(store, 1)
    path = store.path(1) / "state.json"
    body = json.loads(path.read_text())
    del body["checksum"]
    body["format"] = 2
    body["checksum"] = checkpoint_checksum(body)
    path.write_text(json.dumps(body))
    with pytest.raises(CheckpointError, match=r"has format 2; this version of lingpipe reads form"):
        store.latest()


def checkpoint_checksum(body: dict[str, Any]) -> str:

    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
