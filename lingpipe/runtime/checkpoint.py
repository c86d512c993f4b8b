"""The checkpoints of a run: saved whole or not at all, checked when read, and N kept.

    store = CheckpointStore(logdir / "checkpoints", keep_last=3, keep_best=1)
    store.save(100, {"weights/embedding": variable, ...}, state={"cursor": 12}, metric=None)
    store.set_metric(100, 2.31)                     # Once the evaluation is done.
    if store.latest() is not None:
        saved = store.restore_into("last", {"weights/embedding": variable, ...})
        cursor = saved.state["cursor"]

A save goes into a hidden folder beside the others. Only when all of it has reached the disk is the
folder renamed, which the file system does at one stroke, and only then are old checkpoints removed:

    .tmp-step-00000200-4711/  --rename-->  step-00000200/

A process killed at any moment thus leaves the checkpoints that it had; the next save clears away
the hidden folder. One process saves at a time; others may read meanwhile.
"""

from __future__ import annotations

import contextlib
import enum
import math
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from lingpipe.runtime.checkpoint_directory import CheckpointDirectory
from lingpipe.runtime.checkpoint_folder import (
    BUNDLE,
    CheckpointError,
    DamagedCheckpointError,
    SavedState,
    check_contents,
    check_json,
    check_sizes,
    read_state,
    replace_metric,
    seal,
)
from lingpipe.runtime.checkpoint_match import compare, require_fit
from lingpipe.runtime.tensor_bundle import (
    CLUSTER_ERRORS,
    Tensors,
    read_bundle,
    reason,
    tensor_info,
    write_bundle,
)

_STEP = re.compile(r"[0-9]{1,18}")  # What int64 can hold.


class Better(enum.Enum):
    """Which of two values of a metric is the better one."""

    lower = "lower"
    higher = "higher"


class CheckpointStore:
    """The checkpoints in one folder."""

    def __init__(
        self,
        directory: str | Path,
        keep_last: int = 3,
        keep_best: int = 1,
        better: Better = Better.lower,
    ) -> None:
        """Names the folder; it is made by the first save.

        Args:
          directory: folder of the checkpoints; nothing else should be in it.
          keep_last: how many of the newest checkpoints are kept; at least 1.
          keep_best: how many of those with the best metric are kept besides; a checkpoint that is
            among both takes one place, not two.
          better: whether a lower or a higher metric is better.

        Raises:
          ValueError: keep_last or keep_best is too small.
        """
        if keep_last < 1 or keep_best < 0:
            raise ValueError(
                f"keep_last ({keep_last}) must be at least 1 and keep_best ({keep_best}) at least "
                "0, or a run could not go on from its own checkpoint."
            )
        self._directory = CheckpointDirectory(Path(directory))
        self._keep_last = keep_last
        self._keep_best = keep_best
        self._better = better
        # Folder -> fingerprint of its files and what was wrong with their contents, so that the
        # same files are read for checking only once.
        self._examined: dict[Path, tuple[Any, str | None]] = {}

    # -- Writing -------------------------------------------------------------------------------

    def save(
        self, step: int, tensors: Tensors, state: Mapping[str, Any], metric: float | None = None
    ) -> SavedState:
        """Saves a checkpoint, then removes those that are not to be kept.

        For a moment one checkpoint more than is kept takes up space.

        Args:
          step: updates made so far; a checkpoint of the same step is replaced.
          tensors: `weights/<path>`, `slots/<path>/<slot>` or other name -> tensor, variable (on any
            device) or array; at least one.
          state: whatever else a run needs to go on, as it would come back from JSON: the data
            cursor, the loss scale, the state of early stopping.
          metric: value of the metric that tells the best, if it is known. One that is not finite
            is never the best and is kept as None.

        Raises:
          CheckpointError: the disk is full or the folder cannot be written; the message names it
            and the checkpoint before, which is untouched.
          TypeError: the state is not JSON.
          ValueError: step is negative, or there are no tensors.
        """
        if step < 0 or not tensors:
            raise ValueError(
                f"step ({step}) must be at least 0, and there must be tensors ({len(tensors)})."
            )
        check_json(state)
        with self._naming("save", self._directory.final(step)):
            temporary = self._directory.begin(step)
            try:
                infos = write_bundle(temporary / BUNDLE, tensors)
                seal(temporary, step, state, _finite(step, metric), infos)
                final = self._directory.commit(temporary, step)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            saved = read_state(final)
            self._examined[final] = (check_sizes(saved), None)
        self._prune(just_saved=step)
        return saved

    def set_metric(self, step: int, value: float | None) -> None:
        """Gives a checkpoint its metric afterwards, then keeps the best.

        A crash leaves the old or the new value, and the tensors in any case.

        Raises:
          CheckpointError: there is no such checkpoint, or it cannot be written.
        """
        folder = self.path(step)
        with self._naming("set the metric of", folder):
            replace_metric(read_state(folder), _finite(step, value))
        self._prune()

    def discard_after(self, step: int) -> list[int]:
        """Removes all checkpoints later than `step`, for a run that goes back to it.

        Otherwise the abandoned ones would be taken for the latest when the run is resumed.

        Returns:
          The steps removed.

        Raises:
          CheckpointError: one cannot be removed.
        """
        later = [known for known in self.steps() if known > step]
        self._remove(reversed(later))
        return later

    # -- Reading -------------------------------------------------------------------------------

    def steps(self) -> list[int]:
        """Steps of the checkpoints there are, in order, damaged ones too; nothing is read.

        Raises:
          CheckpointError: the folder may not be read.
        """
        return list(self._directory.folders())

    def latest(self) -> int | None:
        """The step of the newest valid checkpoint; None if there are no checkpoints at all.

        A damaged one is named in a warning, and the one before it taken instead.

        Raises:
          DamagedCheckpointError: there are checkpoints, but every one of them is damaged.
        """
        return self._first_valid(reversed(self.steps()))

    def best(self) -> int | None:
        """The step of the valid checkpoint with the best metric; None if none has a metric.

        Of equals the earliest is the best. A damaged one is named in a warning and passed over.

        Raises:
          DamagedCheckpointError: there are checkpoints with a metric, but all are damaged.
        """
        found = []
        for step in self.steps():
            try:
                found.append(read_state(self.path(step)))
            except DamagedCheckpointError as error:
                logging.warning("%s It is passed over.", error)
        return self._first_valid(self._by_metric(found))

    def path(self, step: int) -> Path:
        """The folder of a checkpoint.

        Raises:
          CheckpointError: there is none of this step; the message lists those there are.
        """
        return self._directory.folder(step)

    def read_state(self, which: str | int) -> SavedState:
        """What a checkpoint holds besides the values of its tensors, checked to the last byte.

        Args:
          which: "last", "best" or a step, as a number or its digits.

        Raises:
          CheckpointError: there is no such checkpoint.
          DamagedCheckpointError: it is damaged; for "last" and "best": all are.
        """
        return self._examine(self._resolve(which))

    def restore_into(
        self, which: str | int, variables: Mapping[str, tf.Variable], strict: bool = True
    ) -> SavedState:
        """Sets variables to the values in a checkpoint, each on its own device.

        Names, shapes and dtypes are all compared before the first variable changes. Groups of
        names (the part before the first `/`) of which no variable is given are not restored.

        Args:
          which: "last", "best" or a step, as a number or its digits.
          variables: name in the checkpoint -> variable.
          strict: refuse if a name is in one of checkpoint and variables only. Otherwise those are
            left as they are, and told in a warning.

        Returns:
          What the checkpoint holds besides.

        Raises:
          CheckpointError: there is no such checkpoint, or it does not fit the variables.
          DamagedCheckpointError: it is damaged.
        """
        saved = self.read_state(which)
        wanted = {name: tensor_info(variable) for name, variable in variables.items()}
        match = compare(saved.tensors, wanted)
        require_fit(saved, wanted, match, strict)
        if match.missing or match.extra:
            logging.warning(
                "Checkpoint %s: %d tensors restored; not in it, and left as they were: %s; only in "
                "it, and not used: %s.",
                saved.path,
                len(match.common),
                ", ".join(match.missing) or "none",
                ", ".join(match.extra) or "none",
            )
        try:
            for name, value in read_bundle(saved.bundle, {n: wanted[n] for n in match.common}):
                with tf.device(variables[name].device):
                    variables[name].assign(value)
        except CLUSTER_ERRORS:
            raise
        except tf.errors.DataLossError as error:
            raise DamagedCheckpointError(
                f"Checkpoint {saved.path} is damaged: {reason(error)}."
            ) from error
        return saved

    # -- Which ---------------------------------------------------------------------------------

    def _resolve(self, which: str | int) -> int:
        """The step that `which` stands for; there is such a folder."""
        if isinstance(which, int) or _STEP.fullmatch(which):
            self.path(int(which))
            return int(which)
        if which not in ("last", "best"):
            raise CheckpointError(f"'{which}' is no checkpoint; use last, best or a step number.")
        step = self.latest() if which == "last" else self.best()
        if step is None and self.steps():
            raise CheckpointError(
                f"No checkpoint in {self._directory.path} has a metric yet, so none is the best; "
                "use last."
            )
        if step is None:
            raise CheckpointError(f"There is no checkpoint in {self._directory.path}.")
        return step

    def _first_valid(self, steps: Iterable[int]) -> int | None:
        """The first step that passes; each that does not is warned of."""
        faults = []
        for step in steps:
            try:
                self._examine(step)
            except DamagedCheckpointError as error:
                logging.warning("%s Falling back to another one.", error)
                faults.append(str(error))
            else:
                return step
        if faults:
            raise DamagedCheckpointError(
                "\n".join(faults)
                + f"\nNo valid checkpoint is left in {self._directory.path}. Restore "
                "the folder from a copy, or move it away to start from step 0."
            )
        return None

    def _examine(self, step: int, thorough: bool = True) -> SavedState:
        """Checks a checkpoint: its contents too if `thorough` or if known from an earlier look."""
        saved = read_state(self.path(step))
        fingerprint = check_sizes(saved)
        known, fault = self._examined.get(saved.path, (None, None))
        if known != fingerprint:
            fault = None
            if thorough:
                fault = _fault(saved)
                self._examined[saved.path] = (fingerprint, fault)
        if fault is not None:
            raise DamagedCheckpointError(fault)
        return saved

    def _readable(self) -> list[SavedState]:
        """The checkpoints that look whole without reading their tensors, in order."""
        found = []
        for step in self.steps():
            with contextlib.suppress(CheckpointError):
                found.append(self._examine(step, thorough=False))
        return found

    def _by_metric(self, found: Iterable[SavedState]) -> list[int]:
        """Steps of those with a metric, best first."""
        sign = 1.0 if self._better is Better.lower else -1.0
        ranked = [(sign * one.metric, one.step) for one in found if one.metric is not None]
        return [step for _, step in sorted(ranked)]

    # -- Keeping N -----------------------------------------------------------------------------

    def _prune(self, just_saved: int | None = None) -> None:
        """Removes all but the last, the best and the one just saved.

        Those that cannot be read take no place; if they are newer than the oldest one kept, they
        stay for a person to look at until the run has gone past them.
        """
        found = self._readable()
        last = [saved.step for saved in found][-self._keep_last :]
        keep = {*last, *self._by_metric(found)[: self._keep_best]}
        if just_saved is not None:
            keep.add(just_saved)
        self._remove(step for step in self.steps() if last and step < last[0] and step not in keep)

    def _remove(self, steps: Iterable[int]) -> None:
        for step in steps:
            folder = self.path(step)
            with self._naming("remove", folder):
                self._directory.remove(step)
                self._examined.pop(folder, None)

    @contextlib.contextmanager
    def _naming(self, deed: str, path: Path) -> Iterator[None]:
        """Turns errors of the disk into one that names the checkpoint and the one before."""
        try:
            yield
        except CLUSTER_ERRORS:
            raise
        except (OSError, tf.errors.OpError) as error:
            raise CheckpointError(
                f"Cannot {deed} checkpoint {path}: {reason(error)}. {self._what_is_left()}"
            ) from error

    def _what_is_left(self) -> str:
        with contextlib.suppress(CheckpointError):
            found = self._readable()
            if found:
                return f"The checkpoint of step {found[-1].step} is intact."
        return "No checkpoint was saved before."


def _finite(step: int, metric: float | None) -> float | None:
    """The metric as a plain float, or None, with a warning, if it cannot be compared."""
    if metric is not None and not math.isfinite(metric):
        logging.warning("The metric of step %d is %s; it is never the best.", step, metric)
        return None
    return None if metric is None else float(metric)


def _fault(saved: SavedState) -> str | None:
    """What is wrong with the contents of a checkpoint's files, if anything is."""
    try:
        check_contents(saved)
    except DamagedCheckpointError as error:
        return str(error)
    return None
