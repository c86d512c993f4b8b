"""Named tensors in a file, in TensorFlow's own format: what `tf.train.load_checkpoint` reads.

Names are plain strings chosen by the caller ("weights/encoder_0/kernel"), not the paths that
`tf.train.Checkpoint` derives from Python objects: whatever device or stage a weight lies on, its
name is the same. TensorFlow keeps a CRC of each tensor and checks it on reading.

Files are read and written by this process, whatever the devices of the tensors; of a model spread
over many hosts no more than about a gigabyte is gathered here at a time.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from lingpipe.runtime.checkpoint_folder import TensorInfo

_BYTES_AT_ONCE = 1 << 30
# Errors of a cluster, not of a file; they go through as they are, to whoever restarts workers.
CLUSTER_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)

Tensors = Mapping[str, tf.Tensor | tf.Variable | np.ndarray]


def write_bundle(
    prefix: Path, tensors: Tensors, bytes_at_once: int = _BYTES_AT_ONCE
) -> dict[str, TensorInfo]:
    """Writes tensors to files that begin with `prefix`.

    Args:
      prefix: path of the files without their endings.
      tensors: name -> value; at least one.
      bytes_at_once: about how much to gather in this process, and in one data file.

    Returns:
      Name -> shape and dtype, in the order of the names.

    Raises:
      tf.errors.OpError: a file cannot be written.
    """
    infos = {name: tensor_info(tensors[name]) for name in sorted(tensors)}
    parts = list(_groups(infos, bytes_at_once))
    if len(parts) == 1:
        _write_part(prefix, tensors, parts[0])
        return infos
    prefixes = [prefix.with_name(f"{prefix.name}-part-{index}") for index in range(len(parts))]
    for part_prefix, names in zip(prefixes, parts, strict=True):
        _write_part(part_prefix, tensors, names)
    with _here():
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=[str(part) for part in prefixes],
            destination_prefix=str(prefix),
            delete_old_dirs=False,
        )
    return infos


def _write_part(prefix: Path, tensors: Tensors, names: list[str]) -> None:
    """One bundle of some of the tensors; a variable is read on its device and copied here."""
    with _here():
        tf.raw_ops.SaveV2(
            prefix=str(prefix),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
        )


def read_bundle(
    prefix: Path, infos: Mapping[str, TensorInfo], bytes_at_once: int = _BYTES_AT_ONCE
) -> Iterator[tuple[str, tf.Tensor]]:
    """Reads tensors one after another, a group of them at a time.

    Args:
      prefix: path of the files without their endings.
      infos: the tensors to read: name -> shape and dtype, as `write_bundle` returned them.
      bytes_at_once: about how much to hold in this process.

    Yields:
      Name and value, on this process's CPU.

    Raises:
      tf.errors.OpError: a file is not as it was written.
    """
    for names in _groups(infos, bytes_at_once):
        with _here():
            values = tf.raw_ops.RestoreV2(
                prefix=str(prefix),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                dtypes=[tf.as_dtype(infos[name].dtype) for name in names],
            )
        yield from zip(names, values, strict=True)


def tensor_info(tensor: tf.Tensor | tf.Variable | np.ndarray) -> TensorInfo:
    """Shape and dtype of a tensor, variable or array."""
    return TensorInfo(tuple(tensor.shape), tf.as_dtype(tensor.dtype).name)


def reason(error: Exception) -> str:
    """What an error of a file says, without the nodes and operations that TensorFlow names."""
    if isinstance(error, tf.errors.OpError):
        text = re.sub(r"\{\{function_node [^}]*\}\} ?", "", str(error.message))
        text = re.sub(r" ?\[Op:\w+\].*", "", text, flags=re.DOTALL).strip()
    elif isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {error.strerror}"
    else:
        text = str(error)
    return text.rstrip(".")


@contextlib.contextmanager
def _here() -> Iterator[None]:
    """This process's CPU, whatever device of another process the caller is under."""
    with tf.device(None), tf.device("/device:CPU:0"):
        yield


def _groups(infos: Mapping[str, TensorInfo], bytes_at_once: int) -> Iterable[list[str]]:
    """Names in order, in groups of about `bytes_at_once`."""
    group: list[str] = []
    size = 0
    for name, info in infos.items():
        nbytes = int(np.prod(info.shape, dtype=np.int64)) * tf.as_dtype(info.dtype).size
        if group and size + nbytes > bytes_at_once:
            yield group
            group, size = [], 0
        group.append(name)
        size += nbytes
    if group:
        yield group
