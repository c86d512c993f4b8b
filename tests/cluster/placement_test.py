"""Every stage of every replica has its own place, and what cannot be placed is refused."""

from __future__ import annotations

import itertools

import pytest

from lingpipe.cluster.placement import DeviceError, device_number, place_stages
from lingpipe.errors import UserError

NAMES = [f"/CPU:{index}" for index in range(12)]


def test_replicas_lie_side_by_side() -> None:
    assert place_stages(NAMES, [0, 1, 2], 2) == (
        ("/CPU:0", "/CPU:1", "/CPU:2"),
        ("/CPU:3", "/CPU:4", "/CPU:5"),
    )


def test_stages_that_share_a_device_share_it_in_every_replica() -> None:
    assert place_stages(NAMES, [0, 1, 0, 1], 2) == (
        ("/CPU:0", "/CPU:1", "/CPU:0", "/CPU:1"),
        ("/CPU:2", "/CPU:3", "/CPU:2", "/CPU:3"),
    )


@pytest.mark.parametrize("num_devices", (1, 3, 4))
def test_every_device_has_one_number(num_devices: int) -> None:
    pairs = itertools.product(range(3), range(num_devices))
    numbers = [device_number(replica, device, num_devices) for replica, device in pairs]
    assert numbers == list(range(3 * num_devices))


@pytest.mark.parametrize(
    ("count", "placement", "num_replicas", "words"),
    [
        (3, [0, 1], 2, "num_stages (2) x num_replicas (2) needs 4 devices; there are 3: "
         "/CPU:0, /CPU:1, /CPU:2. Use num_replicas=1."),
        (5, [0, 1], 3, "num_stages (2) x num_replicas (3) needs 6 devices; there are 5: "
         "/CPU:0, /CPU:1, /CPU:2, /CPU:3, /CPU:4. Use num_replicas=2."),
        (2, [0, 1, 2], 2, "num_stages (3) x num_replicas (2) needs 6 devices; there are 2: "
         "/CPU:0, /CPU:1. Use num_stages=2 and num_replicas=1."),
        (1, [0, 1, 0, 1], 1, "num_stages (4) / stages_per_device (2) needs 2 devices; there are "
         "1: /CPU:0. Use num_stages=2."),
        (0, [0], 1, "num_stages (1) needs 1 devices; there are none. Name the devices."),
    ],
)  # fmt: skip
def test_p16_too_few_devices_are_refused_with_the_arithmetic(
    count: int, placement: list[int], num_replicas: int, words: str
) -> None:
    with pytest.raises(DeviceError) as refusal:
        place_stages(NAMES[:count], placement, num_replicas)
    assert str(refusal.value) == words
    assert isinstance(refusal.value, UserError)
