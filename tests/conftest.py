"""What every test finds when it runs: four CPU devices and few threads, if it uses TensorFlow.

Four logical CPU devices make a pipeline of four stages on any machine. They can only be made before
TensorFlow first runs something, so they are made here, between importing the tests and running
them, and only if one of the tests did import TensorFlow: a test of the pure parts starts in
milliseconds.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

NUM_DEVICES = 8


def thread_settings(cores: int, environment: Mapping[str, str]) -> dict[str, str]:
    """TensorFlow's variables for this test process: its share of the cores, and a quiet log.

    Two test processes that each start a thread a core slow each other down. Threads between
    operations are one a device at least, or stages that wait for each other would stand still.
    """
    processes = int(environment.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_NUM_INTRAOP_THREADS": str(max(1, cores // processes)),
        "TF_NUM_INTEROP_THREADS": str(max(NUM_DEVICES, cores)),
    }


def _make_devices() -> None:
    tf = sys.modules.get("tensorflow")
    if tf is None:
        return
    cpu = tf.config.list_physical_devices("CPU")[0]
    if tf.config.get_logical_device_configuration(cpu) is None:
        device = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(cpu, [device] * NUM_DEVICES)


def pytest_configure() -> None:
    """Settles the environment, which child processes inherit, before any test is imported."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what runs in the background so; tests of Ctrl-C need Python's own handler.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, value in thread_settings(os.cpu_count() or 1, os.environ).items():
        os.environ.setdefault(name, value)


def pytest_collection_finish() -> None:
    """Makes the devices for tests that import TensorFlow at their top."""
    _make_devices()


@pytest.fixture(autouse=True)
def _devices() -> None:
    """Makes the devices for a test that follows one which imported TensorFlow in its body."""
    _make_devices()


@pytest.fixture(scope="session")
def micro_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a small trained model, with its corpus beside it; not to be changed."""
    import tensorflow  # noqa: F401 - So that the devices can be made before it runs anything.

    from tests.micro_run import trained

    _make_devices()
    return trained(tmp_path_factory.mktemp("micro"))
