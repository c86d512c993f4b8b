"""The folder of all checkpoints: names, and renames that a crash cannot catch half done.

    step-00000100/               a finished checkpoint
    .tmp-step-00000200-4711/     being saved by process 4711, or being removed
    .old-step-00000100/          the same step saved before, while the new one takes its place

What lies inside the folders does not matter here. A process killed at any moment leaves every
finished checkpoint readable; the next save clears away the rest.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from lingpipe.runtime.checkpoint_folder import CheckpointError, sync

_TEMPORARY = ".tmp-"
_REPLACED = ".old-"
_FOLDER = re.compile(r"(?P<replaced>\.old-)?step-(?P<step>\d{8,})")


class CheckpointDirectory:
    """Step -> folder, and the moves between them.

    Attributes:
      path: the folder of all checkpoints; made by the first save.
    """

    def __init__(self, path: Path) -> None:
        """Names the folder; nothing is read or made yet."""
        self.path = path

    def folders(self) -> dict[int, Path]:
        """Step -> folder of every finished checkpoint, in order of steps.

        Raises:
          CheckpointError: the folder may not be read.
        """
        found: dict[int, Path] = {}
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    match = _FOLDER.fullmatch(entry.name)
                    if match is None or not entry.is_dir():
                        continue
                    step = int(match["step"])
                    if not match["replaced"] or step not in found:
                        found[step] = Path(entry.path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise CheckpointError(f"Cannot read {self.path}: {error.strerror}.") from error
        return dict(sorted(found.items()))

    def folder(self, step: int) -> Path:
        """The folder of a finished checkpoint.

        Raises:
          CheckpointError: there is none of this step; the message lists those there are.
        """
        folders = self.folders()
        if step not in folders:
            there = ", ".join(str(known) for known in folders)
            raise CheckpointError(
                f"There is no checkpoint of step {step} in {self.path}; "
                + (f"there are: {there}." if there else "there is none at all.")
            )
        return folders[step]

    def final(self, step: int) -> Path:
        """Where the checkpoint of a step will lie when it is finished."""
        return self.path / f"step-{step:08d}"

    def begin(self, step: int) -> Path:
        """Clears away what killed saves left and makes an empty hidden folder to save into.

        Raises:
          OSError: the folder cannot be written.
        """
        if not self.path.exists():
            self.path.mkdir(parents=True)
            sync(self.path.parent)
        self._clear_leftovers()
        temporary = self.path / f"{_TEMPORARY}{self.final(step).name}-{os.getpid()}"
        temporary.mkdir()
        return temporary

    def commit(self, temporary: Path, step: int) -> Path:
        """Gives a hidden folder, whose content is on the disk, its final name.

        A checkpoint of the same step is readable under its other name until the new one is.

        Raises:
          OSError: a folder cannot be renamed.
        """
        final = self.final(step)
        replaced = final.with_name(_REPLACED + final.name)
        is_replacing = final.exists()
        if is_replacing:
            os.rename(final, replaced)
        os.rename(temporary, final)
        sync(self.path)
        if is_replacing:
            shutil.rmtree(replaced)
        return final

    def remove(self, step: int) -> None:
        """Removes a checkpoint; renamed first, so that a crash leaves no half of one.

        Raises:
          CheckpointError: there is none of this step.
          OSError: it cannot be removed.
        """
        folder = self.folder(step)
        doomed = self.path / f"{_TEMPORARY}removed-{folder.name}"
        os.rename(folder, doomed)
        sync(self.path)
        shutil.rmtree(doomed)

    def _clear_leftovers(self) -> None:
        for entry in list(self.path.iterdir()):
            if entry.name.startswith(_TEMPORARY):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            elif entry.name.startswith(_REPLACED):
                original = entry.with_name(entry.name.removeprefix(_REPLACED))
                if original.exists():  # The new one is in its place: finish.
                    shutil.rmtree(entry)
                else:  # It is not: take back.
                    entry.rename(original)
