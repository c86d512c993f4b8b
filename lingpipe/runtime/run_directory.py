"""The folder of one run: what lies where, and who may write.

    params.txt      the experiment's params, whole
    plan.txt        stages, cells, devices, weights
    costs.json      seconds of each cell, if stages were balanced by them
    metrics.jsonl   one line a logged training step
    eval.jsonl      one line an evaluation
    checkpoints/    weights, optimiser slots, step and data cursor
    tensorboard/    the same scalars for TensorBoard
    vocab/          the vocabulary, so that decoding needs nothing outside the folder

All that `decode` needs is inside, so a run directory may be moved or copied whole. `evaluate` reads
its text from the corpus, and `train` goes on with it: a corpus named by a relative path is looked
for from where the command runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lingpipe.base.atomic_file import write_atomically
from lingpipe.errors import UserError
from lingpipe.hyperparams import ParamsError
from lingpipe.task.experiment import Experiment

# A run may be continued with other values of these; all else decides what the weights mean.
_MAY_CHANGE = ("pipeline", "cluster", "learner", "train")
_MUST_STAY = ("train.seed",)
# As long as there are no weights, there is but the vocabulary.
_MAKES_VOCABULARY = "input"
_LOCK = ".lock"


class RunDirectoryError(UserError):
    """A folder that holds no run, a run with other params, or one that another process trains."""


class RunDirectory:
    """Paths of a run directory and its params."""

    def __init__(self, path: str | Path) -> None:
        """Names the folder; nothing is read or made yet."""
        self.path = Path(path)

    @property
    def params_file(self) -> Path:
        """The experiment's params as text."""
        return self.path / "params.txt"

    @property
    def plan_file(self) -> Path:
        """The table of stages."""
        return self.path / "plan.txt"

    @property
    def costs_file(self) -> Path:
        """What cells were measured to take."""
        return self.path / "costs.json"

    @property
    def metrics_file(self) -> Path:
        """One row a logged training step."""
        return self.path / "metrics.jsonl"

    @property
    def evaluations_file(self) -> Path:
        """One row an evaluation."""
        return self.path / "eval.jsonl"

    @property
    def curves(self) -> Path:
        """Folder of TensorBoard's files."""
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def vocabulary(self) -> Path:
        """Folder of the vocabulary."""
        return self.path / "vocab"

    def read_params(self) -> Experiment.Params:
        """The params that the run was started with.

        Raises:
          RunDirectoryError: this is no run directory.
        """
        try:
            text = self.params_file.read_text(encoding="utf-8")
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path} is not a run directory: it has no params.txt ({error.strerror}). "
                "Give --logdir the folder that `lingpipe train` wrote."
            ) from error
        except UnicodeDecodeError as error:
            raise RunDirectoryError(f"{self.params_file} is not a text: {error}.") from error
        try:
            params = Experiment.Params.from_text(text)
        except ParamsError as error:
            raise RunDirectoryError(f"{self.params_file} cannot be used: {error}") from error
        missing = ", ".join(params.required_fields())
        if missing:
            raise RunDirectoryError(f"{self.params_file} cannot be used: it lacks {missing}.")
        return params

    def check_params(self, params: Experiment.Params) -> None:
        """Checks that a run that is here already can go on with these params.

        Raises:
          RunDirectoryError: they differ in what decides what its weights mean.
        """
        if not self.params_file.exists():
            if self.has_checkpoints():
                raise RunDirectoryError(
                    f"{self.path} holds checkpoints, but no params.txt that says what they are of; "
                    "restore it from a copy, or use another --logdir."
                )
            return
        refused = [each for each in self.read_params().diff(params) if self._must_stay(each.path)]
        if refused:
            lines = "\n".join(f"  {difference}" for difference in refused)
            raise RunDirectoryError(
                f"{self.path} holds a run with other params, which cannot go on with these:\n"
                f"{lines}\nUse another --logdir, or the params it was started with."
            )

    def check_vocabulary(self, params: Experiment.Params) -> None:
        """Checks that a run with checkpoints still has the vocabulary they were trained with.

        Raises:
          RunDirectoryError: it is gone; a new one would give every id another meaning.
        """
        if self.has_checkpoints() and not params.input.owner.is_prepared(self.vocabulary):
            raise RunDirectoryError(
                f"{self.vocabulary} lacks the vocabulary that the checkpoints of this run were "
                "trained with; restore it from a copy of the run directory."
            )

    def _must_stay(self, path: str) -> bool:
        root = path.partition(".")[0]
        if self.has_checkpoints():
            return root not in _MAY_CHANGE or path in _MUST_STAY
        return root == _MAKES_VOCABULARY

    def has_checkpoints(self) -> bool:
        """Whether a run has been saved here."""
        return any(self.checkpoints.glob("step-*"))  # Not what a killed process left.

    def write_params(self, params: Experiment.Params) -> None:
        """Writes the params.

        Raises:
          WriteError: the folder cannot be written.
        """
        write_atomically(self.params_file, params.to_text().encode())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps a second trainer out while the first one runs.

        Where nothing was written by the end, the folder is left as it was, or not there, as it was.

        Raises:
          RunDirectoryError: another process trains in this folder, or it cannot be written.
        """
        path = self.path / _LOCK
        try:
            missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            lock = _lock(path)
        except BlockingIOError as error:
            raise RunDirectoryError(
                f"Another process is training in {self.path}. Wait for it, or use another --logdir."
            ) from error
        except OSError as error:
            raise RunDirectoryError(
                f"Cannot write to --logdir {self.path}: {error.strerror}."
            ) from error
        with lock:
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # The first that is not empty.
                    for folder in missing:
                        folder.rmdir()


def _lock(path: Path) -> IO[bytes]:
    """Makes and locks a file, and its folder if need be.

    Raises:
      BlockingIOError: another process holds it.
      OSError: it cannot be made or locked.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "ab")  # noqa: SIM115 - Closing it unlocks it.
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except FileNotFoundError:
            pass  # Whoever held it has removed it since it was opened.
        except OSError:
            file.close()
            raise
        file.close()
