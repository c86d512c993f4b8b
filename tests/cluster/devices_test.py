"""Devices for the stages of this process: made when there is time, refused in words when not.

TensorFlow settles its devices once a process, so that these tests start processes of their own;
each asks several things.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lingpipe.cluster.devices import DeviceType, stage_devices
from lingpipe.cluster.placement import DeviceError
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
        from lingpipe.cluster.devices import DeviceType, stage_devices
        from lingpipe.cluster.placement import DeviceError
        print(stage_devices(1))
        print(stage_devices(2, DeviceType.cpu))
        print(stage_devices(3))
        with tf.device("/CPU:2"):
            print(tf.zeros([1]).device[-5:])
        print(stage_devices(2))
        try:
            stage_devices(4)
        except DeviceError as error:
            print(error)
    """
    assert run(script).splitlines() == [
        "['/CPU:0']",
        "['/CPU:0', '/CPU:1']",
        "['/CPU:0', '/CPU:1', '/CPU:2']",
        "CPU:2",
        "['/CPU:0', '/CPU:1']",
        "The stages need 4 CPU devices, but TensorFlow has already started with 3. Call "
        "stage_devices before anything is computed.",
    ]


def test_too_few_gpus_are_refused_with_what_to_use_instead() -> None:
    words = "The stages need 2 GPUs; this process sees 0. Use fewer .*device_type=cpu"
    with pytest.raises(DeviceError, match=words) as refusal:
        stage_devices(2, DeviceType.gpu)
    assert isinstance(refusal.value, UserError)


def test_one_gpu_is_never_left_idle_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer GPUs than stages, "auto" would otherwise train for days on the CPU."""
    monkeypatch.setattr(
        "tensorflow.config.list_physical_devices", lambda kind: [f"/physical_device:{kind}:0"]
    )
    monkeypatch.setattr("tensorflow.config.experimental.set_memory_growth", lambda *_: None)
    assert stage_devices(1) == ["/GPU:0"]
    with pytest.raises(DeviceError, match="The stages need 2 GPUs; this process sees 1. Use"):
        stage_devices(2)


def test_devices_that_are_there_are_used_in_order() -> None:
    assert stage_devices(3, DeviceType.cpu) == ["/CPU:0", "/CPU:1", "/CPU:2"]
