"""Devices for the stages of this process: made when there is time, refused in words when not.

TensorFlow settles its devices once a process, so that these tests start processes of their own;
each asks several things.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lingpipe.cluster.devices import DeviceCountError, DeviceType, stage_devices
from lingpipe.errors import UserError


def run(script: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(script)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_logical_devices_are_made_before_tensorflow_starts_and_refused_afterwards() -> None:
    script = """
        import tensorflow as tf
        from lingpipe.cluster.devices import DeviceCountError, DeviceType, stage_devices
        print(stage_devices(1))
        print(stage_devices(2, DeviceType.cpu))
        print(stage_devices(3))
        with tf.device("/CPU:2"):
            print(tf.zeros([1]).device[-5:])
        print(stage_devices(2))
        try:
            stage_devices(4)
        except DeviceCountError as error:
            print(error)
    """
    assert run(script).splitlines() == [
        "['/CPU:0']",
        "['/CPU:0', '/CPU:1']",
        "['/CPU:0', '/CPU:1', '/CPU:2']",
        "CPU:2",
        "['/CPU:0', '/CPU:1']",
        "4 stages need 4 CPU devices, but TensorFlow has already started with 3. Call "
        "stage_devices before anything is computed.",
    ]


def test_too_few_gpus_are_refused_with_what_to_use_instead() -> None:
    words = "2 stages need 2 GPUs; this process sees 0. Use .*num_stages=1 or .*device_type=cpu"
    with pytest.raises(DeviceCountError, match=words) as refusal:
        stage_devices(2, DeviceType.gpu)
    assert isinstance(refusal.value, UserError)


def test_devices_that_are_there_are_used_in_order() -> None:
    assert stage_devices(3, DeviceType.cpu) == ["/CPU:0", "/CPU:1", "/CPU:2"]
