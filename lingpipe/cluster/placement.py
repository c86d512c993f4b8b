"""Which stage of which replica lies on which device: arithmetic on plain numbers and names.

A replica is all stages once. With D devices to a replica, replica r has the devices from r * D on,
in order, so that its stages lie side by side:

    2 replicas of 3 stages        stage 0   stage 1   stage 2
    replica 0                     /CPU:0    /CPU:1    /CPU:2
    replica 1                     /CPU:3    /CPU:4    /CPU:5
"""

from __future__ import annotations

from collections.abc import Sequence

from lingpipe.errors import UserError


class DeviceError(UserError, ValueError):
    """Fewer devices than the stages need."""


def device_number(replica: int, device: int, num_devices: int) -> int:
    """The number, among all devices, of a device that has number `device` in its replica.

    Args:
      replica: number of the replica.
      device: number within the replica.
      num_devices: devices of each replica, D.
    """
    return replica * num_devices + device


def place_stages(
    devices: Sequence[str], placement: Sequence[int], num_replicas: int
) -> tuple[tuple[str, ...], ...]:
    """For each replica the name of each stage's device.

    Args:
      devices: names of the devices, in the order in which they are used.
      placement: for each stage the number of its device within a replica, as in
        `Schedule.placement`.
      num_replicas: number of replicas R.

    Raises:
      DeviceError: there are fewer than R * D devices.
    """
    num_devices = max(placement) + 1
    if len(devices) < num_replicas * num_devices:
        raise DeviceError(_too_few(devices, len(placement), num_devices, num_replicas))
    return tuple(
        tuple(devices[device_number(replica, device, num_devices)] for device in placement)
        for replica in range(num_replicas)
    )


def _too_few(devices: Sequence[str], num_stages: int, num_devices: int, num_replicas: int) -> str:
    """What is missing, and what would do."""
    per_device = num_stages // num_devices
    needed = f"num_stages ({num_stages})"
    if per_device > 1:
        needed += f" / stages_per_device ({per_device})"
    if num_replicas > 1:
        needed += f" x num_replicas ({num_replicas})"
    there = f"{len(devices)}: {', '.join(devices)}" if devices else "none"
    fitting = len(devices) // num_devices
    if fitting:
        advice = f"Use num_replicas={fitting}."
    elif devices:
        one = " and num_replicas=1" if num_replicas > 1 else ""
        advice = f"Use num_stages={len(devices) * per_device}{one}."
    else:
        advice = "Name the devices."
    return f"{needed} needs {num_devices * num_replicas} devices; there are {there}. {advice}"
