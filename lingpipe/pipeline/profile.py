"""Measures what every cell takes on a device, for a partition by seconds instead of FLOPs.

FLOPs say nothing of memory traffic, of many small operations or of a cell whose declared cost is
wrong. So each cell is built alone, as a stage of one cell, and its forward and backward pass run a
few times on a typical micro-batch: the same functions that training will run. Then it is freed and
the next one takes what it returned. Cells with equal params and equal inputs are measured once.

Devices are taken to be alike: all cells are measured on one. With rematerialisation every cell is
measured as it runs on all stages but the last, with its recomputation; under `auto` without, since
its choice is not known yet.
"""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec
from lingpipe.pipeline.errors import naming, refusing_lack_of_memory
from lingpipe.pipeline.keeping import Keeping, Rematerialisation
from lingpipe.pipeline.micro_batch import BatchError, MicroBatch
from lingpipe.pipeline.plan import StagePlan
from lingpipe.pipeline.stage import Stage

# Runs before those that count, and of these: at least so many, more while they take less time
# together than this, but no more than so many.
_WARM_UPS = 2
_LEAST_RUNS = 5
_LEAST_SECONDS = 0.1
_MOST_RUNS = 50


def measure_cells(
    cells: Mapping[str, Layer.Params],
    micro_batch: Mapping[str, Spec],
    device: str,
    *,
    seed: int = 0,
    compute_dtype: tf.DType = tf.float32,
    remat: Rematerialisation = Rematerialisation.none,
    jit_compile: bool = False,
) -> dict[str, float]:
    """Seconds of the forward and backward pass of one micro-batch, for each cell.

    Args:
      cells: name -> params of each cell, in order; the last returns the loss.
      micro_batch: spec of each entry of a typical micro-batch. Floats are drawn from [0, 1),
        integers and booleans are 0 or 1.
      device: where to measure, such as "/GPU:0".
      seed: seed of the initial weights and of what is drawn.
      compute_dtype: dtype of activations.
      remat: what the run will keep.
      jit_compile: whether the run will compile its stages.

    Returns:
      name -> median of 5 runs, or up to 50 where they are short, after 2 to warm up.

    Raises:
      BatchError: a cell reads an entry that `micro_batch` lacks.
      DeviceMemoryError: a cell's weights find no room on the device.
      PipelineError: a cell failed.
    """
    drawn = np.random.default_rng(seed)
    entries = {name: _drawn(spec, drawn) for name, spec in micro_batch.items()}
    measured: dict[str, tuple[float, Any]] = {}
    seconds = {}
    inputs: Any = ()
    for index, (name, params) in enumerate(cells.items()):
        read = MicroBatch(0, _entries_read(name, params, entries))
        is_last = index == len(cells) - 1
        case = repr((_description(params), _specs(inputs), _specs(read.entries), is_last))
        if case not in measured:
            weights = sum(weight.size for weight in params.all_weights(name).values())
            alone = StagePlan((name,), weights, 0, 0, 0, 0)
            with refusing_lack_of_memory(index, alone, device):
                stage = Stage(
                    index,
                    {name: params},
                    device,
                    seed=seed,
                    is_last=is_last,
                    compute_dtype=compute_dtype,
                    keeping=_keeping(remat, is_last),
                    jit_compile=jit_compile,
                )
            measured[case] = _measure(stage, inputs, read)
            del stage
            gc.collect()  # A traced graph is full of circles; the next cell may need the room.
        seconds[name], inputs = measured[case]
    return seconds


def fingerprint(
    cells: Mapping[str, Layer.Params],
    micro_batch: Mapping[str, Spec],
    device: str,
    *,
    compute_dtype: tf.DType = tf.float32,
    remat: Rematerialisation = Rematerialisation.none,
    jit_compile: bool = False,
) -> str:
    """A digest of all that `measure_cells` depends on but the seed; equal ones may share seconds.

    The cells' code is not in it, only their params.
    """
    described = [(name, _description(params)) for name, params in cells.items()]
    shapes = sorted(micro_batch.items())
    where = (device_in_words(device), tf.__version__, jit_compile)
    whole = repr((described, shapes, where, compute_dtype.name, remat.name))
    return hashlib.sha256(whole.encode()).hexdigest()


def device_in_words(device: str) -> str:
    """The kind of hardware behind a device name, such as "x86_64 CPU, 2 cores"."""
    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type == "GPU":
        gpu = tf.config.list_physical_devices("GPU")[spec.device_index or 0]
        return str(tf.config.experimental.get_device_details(gpu).get("device_name", "GPU"))
    return f"{platform.machine()} CPU, {os.cpu_count()} cores"


def _measure(stage: Stage, inputs: Any, micro_batch: MicroBatch) -> tuple[float, Any]:
    """Median seconds of both passes, and the outputs."""
    stage.trace_training(_specs(inputs), _specs(micro_batch.entries))
    stage.start_step()
    with naming(stage, "trial run that measures it, alone on a stage"):
        for _ in range(_WARM_UPS):
            outputs, _ = _run(stage, inputs, micro_batch)
        seconds: list[float] = []
        while len(seconds) < _LEAST_RUNS or (
            sum(seconds) < _LEAST_SECONDS and len(seconds) < _MOST_RUNS
        ):
            seconds.append(_run(stage, inputs, micro_batch)[1])
    return statistics.median(seconds), outputs


def _run(stage: Stage, inputs: Any, micro_batch: MicroBatch) -> tuple[Any, float]:
    """The outputs, and the seconds of one run of both passes."""
    interface = stage.interfaces[None]
    flat = tf.nest.flatten(inputs)
    start = time.perf_counter()
    made, kept = stage.forward([flat[i] for i in interface.leaves.reads], micro_batch, step=1)
    of_position = dict(zip(interface.leaves.makes, made, strict=True))
    stage.backward(kept, [tf.ones_like(of_position[i]) for i in interface.leaves.takes])
    tf.test.experimental.sync_devices()
    return interface.packed(made, flat), time.perf_counter() - start


def _keeping(remat: Rematerialisation, is_last: bool) -> Keeping:
    """What a cell keeps when it is measured; what auto will choose is not known yet."""
    is_fixed = not is_last and remat is not Rematerialisation.auto
    return Keeping(remat) if is_fixed else Keeping()


def _entries_read(
    name: str, params: Layer.Params, entries: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The entries of the batch that a cell reads.

    Raises:
      BatchError: one is not there.
    """
    missing = [key for key in params.batch_keys() if key not in entries]
    if missing:
        raise BatchError(
            f"Cell {name} reads the batch entries {', '.join(missing)}, whose specs are not in "
            f"micro_batch ({', '.join(entries) or 'empty'}); it cannot be measured without."
        )
    return {key: entries[key] for key in params.batch_keys()}


def _drawn(spec: Spec, numbers: np.random.Generator) -> np.ndarray:
    """An array of a spec's shape and dtype."""
    dtype = tf.as_dtype(spec.dtype)
    if dtype.is_floating:
        return numbers.random(spec.shape).astype(dtype.as_numpy_dtype)
    return numbers.integers(0, 2, spec.shape).astype(dtype.as_numpy_dtype)


def _specs(tensors: Any) -> Any:
    """The `tf.TensorSpec` of each tensor or array of a nested structure."""
    return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, tf.as_dtype(x.dtype)), tensors)


def _description(params: Layer.Params) -> tuple[str, str]:
    """A layer's class and the values of all its fields."""
    return type(params).__module__, repr(params)
