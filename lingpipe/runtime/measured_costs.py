"""What the cells of a run were measured to take: measured once, kept beside the run, used again.

    costs.json      {"fingerprint": ..., "device": ..., "seconds": {"encoder_0": 0.0021, ...}}

The fingerprint says for which cells, shapes, dtype, rematerialisation and device the seconds hold.
A run that goes on with other ones measures again; one that goes on with the same ones gets the same
seconds, and so the same stages.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lingpipe.base.atomic_file import write_atomically
from lingpipe.cluster.devices import stage_devices
from lingpipe.pipeline.plan import PartitionCosts
from lingpipe.pipeline.profile import device_in_words, fingerprint, measure_cells
from lingpipe.runtime.progress import Progress
from lingpipe.task.experiment import Experiment
from lingpipe.task.task import Task


def measured_costs(
    experiment: Experiment.Params, task: Task, file: Path | None = None
) -> dict[str, float] | None:
    """Seconds of both passes of one micro-batch for each cell; None if FLOPs are to be used.

    Says on stderr when it measures, and why.

    Args:
      experiment: the params.
      task: what they make.
      file: where seconds are kept; None to measure and keep nothing.

    Raises:
      DeviceError: the device is not there.
      DeviceMemoryError, PipelineError: a cell does not fit the device, or failed.
      WriteError: the file cannot be written.
    """
    params = experiment.pipeline
    if params.partition_costs is not PartitionCosts.measured:
        return None
    num_devices = params.num_devices() if file else 1  # A plan may be for more than there are.
    note = Progress(0, 0, stream=sys.stderr).note
    device = stage_devices(num_devices, experiment.cluster.device_type)[0]
    cells, micro_batch = task.cells(), task.micro_batch(params.num_slices())
    dtype = experiment.train.dtype.tensorflow
    run: dict[str, Any] = {
        "compute_dtype": dtype,
        "remat": params.remat,
        "jit_compile": params.jit_compile,
    }
    key = fingerprint(cells, micro_batch, device, **run)
    if file and file.exists():
        seconds = _read(file, key)
        if seconds is not None and seconds.keys() == cells.keys():
            return seconds
        note(f"{file} does not hold for these cells, shapes and this device; it is written anew.")
    where = device_in_words(device)
    note(f"Measuring what {len(cells)} cells take on {where}: each is built alone and run.")
    seconds = measure_cells(cells, micro_batch, device, seed=experiment.train.seed, **run)
    if file:
        record = {"fingerprint": key, "device": where, "seconds": seconds}
        write_atomically(file, (json.dumps(record, indent=2) + "\n").encode())
    return seconds


def _read(file: Path, key: str) -> dict[str, float] | None:
    """The seconds in the file; None if it was written for another key, or is damaged."""
    try:
        record = json.loads(file.read_bytes())
        if record["fingerprint"] != key:
            return None
        return {name: float(seconds) for name, seconds in record["seconds"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
