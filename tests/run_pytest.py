"""Runs pytest on the test file that Bazel names: the `main` of every test in tests/BUILD.

Bazel starts it in a sandbox that mirrors the checkout, with settings in environment variables:
where to write the report, where temporary files may go, and which tests `--test_filter` asks for.
"""

import os
import sys
from collections.abc import Mapping

import pytest


def pytest_arguments(files: list[str], environment: Mapping[str, str]) -> list[str]:
    """What to call pytest with for Bazel's `environment`; an empty one gives a plain run."""
    arguments = ["-p", "no:cacheprovider", "--rootdir", os.getcwd(), "-c", "pyproject.toml"]
    if report := environment.get("XML_OUTPUT_FILE"):
        arguments.append(f"--junitxml={report}")
    if temporary := environment.get("TEST_TMPDIR"):
        arguments.append(f"--basetemp={temporary}/pytest")
    if wanted := environment.get("TESTBRIDGE_TEST_ONLY"):
        arguments.append(f"-k={wanted}")
    return [*arguments, *files]


if __name__ == "__main__":
    # Python puts the folder of this file first, through the sandbox's link and so outside of it.
    del sys.path[0]
    sys.exit(pytest.main(pytest_arguments(sys.argv[1:], os.environ)))
