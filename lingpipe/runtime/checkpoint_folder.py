"""One checkpoint on disk: a folder that can tell whether it is whole. Needs no TensorFlow.

    step-00000100/
      tensors.index, tensors.data-00000-of-00001    TensorFlow's tensor bundle
      state.json                                    all the rest, and the checksum of every file

`state.json` is written last, so a folder without it was never finished. It holds the size and the
SHA-256 of every other file and a checksum of its own content; a file that was cut short, lost, or
changed by a single bit is found and named when the checkpoint is read.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lingpipe.base.atomic_file import write_atomically
from lingpipe.errors import UserError

STATE_FILE = "state.json"
BUNDLE = "tensors"  # Prefix of the tensor bundle's files.
FORMAT = 1
_LOST = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO)


class CheckpointError(UserError):
    """A checkpoint that cannot be written or read, does not exist, or does not fit the model."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint whose files are not those that were saved."""


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """Shape and dtype of a saved tensor, such as (3, 4) and "float32"."""

    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class FileInfo:
    """Size and SHA-256, in hexadecimal, of a file."""

    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class SavedState:
    """What a checkpoint says of itself: everything but the values of its tensors.

    Attributes:
      step: updates made when it was saved.
      state: what the saver put in: data cursor, loss scale, early stopping and so on.
      metric: the metric by which the best checkpoint is chosen; None if not known.
      tensors: name -> shape and dtype.
      files: name -> size and checksum of every file beside state.json.
      path: the folder.
    """

    step: int
    state: dict[str, Any]
    metric: float | None
    tensors: dict[str, TensorInfo]
    files: dict[str, FileInfo]
    path: Path

    @property
    def bundle(self) -> Path:
        """Prefix of the tensor bundle, as `tf.train.load_checkpoint` takes it."""
        return self.path / BUNDLE


def check_json(state: Mapping[str, Any]) -> None:
    """Raises unless `state` comes back from JSON as it went in.

    Raises:
      TypeError: it holds something that JSON does not know, such as a tuple, a key that is no
        string, or a number that is not finite.
    """
    try:
        same = json.loads(json.dumps(state, allow_nan=False)) == state
    except (TypeError, ValueError) as error:
        raise TypeError(f"The state of a checkpoint cannot be written as JSON: {error}") from error
    if not same:
        raise TypeError(
            "The state of a checkpoint does not come back from JSON as it went in; use dicts with "
            f"strings as keys, lists, strings, finite numbers, booleans and None: {state!r}"
        )


def seal(
    folder: Path,
    step: int,
    state: Mapping[str, Any],
    metric: float | None,
    tensors: Mapping[str, TensorInfo],
) -> SavedState:
    """Writes state.json beside the files of a new checkpoint and brings all of it to the disk.

    Raises:
      OSError, UserError: it cannot be written.
    """
    files = {}
    for path in sorted(folder.iterdir()):
        sync(path)
        files[path.name] = FileInfo(path.stat().st_size, _sha256(path))
    saved = SavedState(step, dict(state), metric, dict(tensors), files, folder)
    _write_state(saved)
    return saved


def replace_metric(saved: SavedState, metric: float | None) -> SavedState:
    """The checkpoint with another metric, on the disk too: old or new after a crash, never half.

    Raises:
      UserError: it cannot be written.
    """
    changed = dataclasses.replace(saved, metric=metric)
    _write_state(changed)
    return changed


def read_state(folder: Path) -> SavedState:
    """Reads and checks state.json; the other files are not looked at.

    Raises:
      DamagedCheckpointError: it is missing or not as it was written.
      CheckpointError: it may not be read, or a newer version of lingpipe wrote it.
    """
    try:
        text = (folder / STATE_FILE).read_text(encoding="utf-8")
        body = json.loads(text)
        checksum = body.pop("checksum")
        version = body["format"]
    except OSError as error:
        raise _unreadable(folder, STATE_FILE, error) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(folder, f"{STATE_FILE} is cut short or garbled") from error
    if checksum != _checksum(body):
        raise _damaged(folder, f"{STATE_FILE} does not match its checksum")
    if version != FORMAT:
        raise CheckpointError(
            f"Checkpoint {folder} has format {version}; this version of lingpipe reads format "
            f"{FORMAT}. Use the version that wrote it."
        )
    return SavedState(
        step=body["step"],
        state=body["state"],
        metric=body["metric"],
        tensors={
            name: TensorInfo(tuple(info["shape"]), info["dtype"])
            for name, info in body["tensors"].items()
        },
        files={name: FileInfo(**info) for name, info in body["files"].items()},
        path=folder,
    )


def check_sizes(saved: SavedState) -> tuple[tuple[str | int, ...], ...]:
    """Checks, without reading them, that all files are there at their full size.

    Returns:
      A fingerprint that changes when a file is written again, so that contents need no second look.

    Raises:
      DamagedCheckpointError: a file is missing or has another size.
    """
    fingerprint = []
    for name, info in saved.files.items():
        try:
            status = (saved.path / name).stat()
        except OSError as error:
            raise _unreadable(saved.path, name, error) from error
        if status.st_size != info.bytes:
            raise _damaged(saved.path, f"{name} has {status.st_size} bytes instead of {info.bytes}")
        fingerprint.append((name, status.st_ino, status.st_mtime_ns, info.sha256))
    return tuple(fingerprint)


def check_contents(saved: SavedState) -> None:
    """Reads every file and compares its checksum.

    Raises:
      DamagedCheckpointError: a file is not the one that was saved.
    """
    for name, info in saved.files.items():
        try:
            actual = _sha256(saved.path / name)
        except OSError as error:
            raise _unreadable(saved.path, name, error) from error
        if actual != info.sha256:
            raise _damaged(saved.path, f"the content of {name} does not match its checksum")


def sync(path: Path) -> None:
    """Brings a file's content, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_state(saved: SavedState) -> None:
    body = {
        "format": FORMAT,
        "step": saved.step,
        "metric": saved.metric,
        "state": saved.state,
        "files": {name: dataclasses.asdict(info) for name, info in saved.files.items()},
        "tensors": {
            name: {"shape": list(info.shape), "dtype": info.dtype}
            for name, info in saved.tensors.items()
        },
    }
    text = json.dumps({**body, "checksum": _checksum(body)}, indent=1, allow_nan=False)
    write_atomically(saved.path / STATE_FILE, f"{text}\n".encode())
    sync(saved.path)


def _checksum(body: Mapping[str, Any]) -> str:
    """SHA-256 of a body in one canonical spelling."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(folder: Path, fault: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"Checkpoint {folder} is damaged: {fault}.")


def _unreadable(folder: Path, name: str, error: OSError) -> CheckpointError:
    """Damage if the file is lost; a file that may not be read now may well be whole."""
    if error.errno == errno.ENOENT:
        return _damaged(folder, f"{name} is missing")
    if error.errno in _LOST:
        return _damaged(folder, f"{name} cannot be read ({error.strerror})")
    return CheckpointError(f"Cannot read {folder / name}: {error.strerror}.")
