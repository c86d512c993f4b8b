"""Death at every single move of a save, and SIGKILL at random moments: a valid checkpoint is left.

The first kind is exact: every call that changes the disk is counted, and the process "dies" before
the n-th, for every n there is. From then on no call has any effect, so nothing can clean up. The
second kind kills real processes.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.runtime import checkpoint
from lingpipe.runtime.checkpoint import CheckpointStore
from tests.runtime.small_checkpoints import hidden, tensors, variables

KILLS = 15  # Real processes killed; more take about 0.3 s each.
SEED = 5


class Death(BaseException):
    """The process is no more; being no Exception, it passes every handler of errors."""


class Mortal:
    """Counts the calls that change the disk and dies before the chosen one."""

    def __init__(self, patch: pytest.MonkeyPatch, moves: int) -> None:
        self.moves = moves
        for owner, name in ((os, "rename"), (os, "replace"), (os, "fsync"), (os, "mkdir")):
            patch.setattr(owner, name, self._mortal(getattr(owner, name)))
        patch.setattr(checkpoint, "write_bundle", self._mortal(checkpoint.write_bundle))
        patch.setattr(shutil, "rmtree", self._remove_bit_by_bit)

    @property
    def is_dead(self) -> bool:
        return self.moves < 0

    def _move(self) -> None:
        self.moves -= 1
        if self.is_dead:
            raise Death

    def _mortal(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._move()
            return function(*args, **kwargs)

        return call

    def _remove_bit_by_bit(self, folder: Path, ignore_errors: bool = False) -> None:
        if self.is_dead:
            raise Death
        for path in sorted(Path(folder).iterdir()):
            self._move()
            path.unlink()
        self._move()
        Path(folder).rmdir()


def save_new(store: CheckpointStore) -> None:
    store.save(30, tensors(30), {"version": "new"})


def save_again(store: CheckpointStore) -> None:
    store.save(20, tensors(20), {"version": "new"})


def set_metric(store: CheckpointStore) -> None:
    store.set_metric(20, 0.5)


def discard(store: CheckpointStore) -> None:
    store.discard_after(10)


@pytest.mark.parametrize(
    ("deed", "keep_last"),
    [
        (save_new, 1),
        (save_new, 2),
        (save_again, 1),
        (save_again, 2),
        (set_metric, 1),
        (set_metric, 2),
        (discard, 2),
    ],
)
def test_death_at_any_move_leaves_the_old_checkpoint_or_the_new_one(
    tmp_path: Path, deed: Callable[[CheckpointStore], None], keep_last: int
) -> None:
    moves = 0
    while True:
        folder = tmp_path / str(moves)
        store = CheckpointStore(folder, keep_last=keep_last)
        for step in (10, 20):
            store.save(step, tensors(step), {"version": "old"})
        before = store.steps()
        with pytest.MonkeyPatch.context() as patch:
            mortal = Mortal(patch, moves)
            with contextlib.suppress(Death):
                deed(store)
        check_after_death(folder, before)
        if not mortal.is_dead:
            break
        moves += 1
    assert moves >= (2 if deed in (set_metric, discard) else 8)


def test_a_stray_file_among_the_hidden_folders_is_no_obstacle(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "run")
    store.save(10, tensors(10), {})
    (tmp_path / "run" / ".tmp-notes").write_text("left by an editor")
    store.save(20, tensors(20), {})
    assert store.steps() == [10, 20]
    assert not (tmp_path / "run" / ".tmp-notes").exists()


def check_after_death(folder: Path, before: list[int]) -> None:
    """A new process finds a whole checkpoint, saves the next one, and leaves no litter."""
    store = CheckpointStore(folder, keep_last=2)
    assert set(store.steps()) <= {*before, 30}
    target = variables()
    saved = store.restore_into("last", target)
    assert saved.step in (10, 20, 30)
    assert np.all(target["weights/a/kernel"].numpy() == saved.step)
    for step in store.steps():
        assert store.read_state(step).state["version"] == ("new" if step == 30 else "old") or (
            step == 20
        )
    store.save(40, tensors(40), {})
    assert store.latest() == 40
    assert saved.step in store.steps()  # Two are kept: what was found is not lost on the way.
    assert hidden(store, 40) == []
    assert all(store.read_state(step) for step in store.steps())


def test_a_process_killed_at_random_moments_always_leaves_a_valid_checkpoint(
    tmp_path: Path,
) -> None:
    script = Path(__file__).with_name("saving_until_killed.py")
    root = str(script.parents[2])
    arguments = [sys.executable, str(script), str(tmp_path), str(KILLS), str(SEED)]
    environment = {**os.environ, "PYTHONPATH": root}
    result = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    kills = json.loads(result.stdout.splitlines()[-1])
    assert len(kills) == KILLS
    assert all(kill["faults"] == [] for kill in kills), kills
    assert kills[-1]["latest"] > kills[0]["latest"]
    # Some kills must have hit in the middle of a save, or the test would show nothing.
    assert sum(kill["was_saving"] for kill in kills) >= KILLS // 5, kills
    store = CheckpointStore(tmp_path, keep_last=2)
    latest = store.latest()
    target = {"weights/w": tf.Variable(tf.zeros([100, 1000]))}
    store.restore_into("last", target, strict=False)
    assert latest is not None
    assert np.all(target["weights/w"].numpy() == latest)


def test_all_is_on_the_disk_before_a_checkpoint_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[str] = []
    rename = os.rename

    def note_sync(descriptor: int) -> None:
        moves.append("sync " + Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)

    def note_rename(source: Path, target: Path) -> None:
        moves.append("rename " + Path(target).name)
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "rename", note_rename)
    CheckpointStore(tmp_path).save(7, tensors(7), {})
    named = moves.index("rename step-00000007")
    temporary = f".tmp-step-00000007-{os.getpid()}"
    files = ["tensors.data-00000-of-00001", "tensors.index", temporary]
    assert set(moves[:named]) == {
        f"sync {name}" for name in (*files, moves[2].split(maxsplit=1)[1])
    }
    assert moves[2].startswith("sync .state.json")
    assert moves[named - 1] == f"sync {temporary}"
    assert moves[named + 1 :] == [f"sync {tmp_path.name}"]
