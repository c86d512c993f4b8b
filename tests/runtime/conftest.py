"""Spares the tests of this folder the wait for the disk, which no test can see the effect of."""

import os

import pytest


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes os.fsync return at once; processes that a test starts do sync."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
