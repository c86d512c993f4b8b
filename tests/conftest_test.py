"""The ground that all tests stand on: four devices, a share of the cores, Bazel's wishes."""

import tensorflow as tf

from tests.conftest import NUM_DEVICES, thread_settings
from tests.run_pytest import pytest_arguments


def test_a_test_that_imports_tensorflow_has_four_devices() -> None:
    assert len(tf.config.list_logical_devices("CPU")) == NUM_DEVICES
    with tf.device("/CPU:3"):
        assert tf.zeros([2]).device.endswith("CPU:3")


def test_test_processes_share_the_cores() -> None:
    alone = thread_settings(8, {})
    shared = thread_settings(8, {"PYTEST_XDIST_WORKER_COUNT": "4"})
    assert (alone["TF_NUM_INTRAOP_THREADS"], shared["TF_NUM_INTRAOP_THREADS"]) == ("8", "2")
    assert thread_settings(1, {"PYTEST_XDIST_WORKER_COUNT": "4"})["TF_NUM_INTRAOP_THREADS"] == "1"


def test_a_single_core_still_has_a_thread_for_every_device() -> None:
    assert thread_settings(1, {})["TF_NUM_INTEROP_THREADS"] == str(NUM_DEVICES)


def test_pytest_is_told_what_bazel_wants() -> None:
    wishes = {
        "XML_OUTPUT_FILE": "/out/test.xml",
        "TEST_TMPDIR": "/tmp/a",
        "TESTBRIDGE_TEST_ONLY": "bubble",
    }
    arguments = pytest_arguments(["tests/a_test.py"], wishes)
    assert {"--junitxml=/out/test.xml", "--basetemp=/tmp/a/pytest", "-k=bubble"} < set(arguments)
    assert arguments[-1] == "tests/a_test.py"
