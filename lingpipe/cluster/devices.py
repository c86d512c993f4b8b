"""Devices of this process: its GPUs, or as many logical CPU devices as there are stages.

TensorFlow fixes the list of devices when it first computes something, so `stage_devices` is called
before that. A process may be split into logical CPU devices; they share its cores and memory, which
is how a pipeline runs, and is tested, on a laptop.
"""

from __future__ import annotations

import contextlib
import enum

import tensorflow as tf

from lingpipe.cluster.placement import DeviceError


class DeviceType(enum.Enum):
    """The kind of device that stages run on."""

    auto = "auto"  # GPUs if there are any, else CPU.
    cpu = "cpu"
    gpu = "gpu"


def stage_devices(count: int, device_type: DeviceType = DeviceType.auto) -> list[str]:
    """Names of `count` devices for the stages of a pipeline.

    Raises:
      DeviceError: too few GPUs, or TensorFlow has started with too few CPU devices. Where there are
        some GPUs, stages never run on the CPU instead unless asked to.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if device_type is DeviceType.cpu or (device_type is DeviceType.auto and not gpus):
        return _logical_cpus(count)
    if len(gpus) < count:
        raise DeviceError(
            f"The stages need {count} GPUs; this process sees {len(gpus)}. Use fewer "
            "stages or replicas (pipeline.num_stages, pipeline.num_replicas), or "
            "cluster.device_type=cpu."
        )
    for gpu in gpus:
        # Once TensorFlow has started, how it takes memory is settled.
        with contextlib.suppress(RuntimeError):
            tf.config.experimental.set_memory_growth(gpu, True)
    return [f"/GPU:{index}" for index in range(count)]


def _logical_cpus(count: int) -> list[str]:
    """Splits the CPU into at least `count` logical devices."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    split = tf.config.get_logical_device_configuration(cpu) or [None]
    if len(split) < count:
        logical = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        try:
            tf.config.set_logical_device_configuration(cpu, logical)
        except RuntimeError as error:
            raise DeviceError(
                f"The stages need {count} CPU devices, but TensorFlow has already started with "
                f"{len(split)}. Call stage_devices before anything is computed."
            ) from error
    return [f"/CPU:{index}" for index in range(count)]
