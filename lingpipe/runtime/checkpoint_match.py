"""Whether the tensors of a checkpoint and the variables of a model belong together.

Everything that does not fit is told in one message, so that a user who changed three layers learns
of all three at once. Needs no TensorFlow: it compares names, shapes and dtypes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from lingpipe.hyperparams.names import nearest
from lingpipe.runtime.checkpoint_folder import CheckpointError, SavedState, TensorInfo

_LINES = 10  # Names listed of each kind of misfit.


@dataclasses.dataclass(frozen=True)
class Match:
    """How a checkpoint and a model fit.

    Attributes:
      common: names that both have, with equal shape and dtype.
      missing: names that only the model has.
      extra: names that only the checkpoint has, in groups that the model asks for.
      unequal: names that both have, with another shape or dtype.
    """

    common: tuple[str, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    unequal: tuple[str, ...]


def compare(saved: Mapping[str, TensorInfo], wanted: Mapping[str, TensorInfo]) -> Match:
    """Compares by name.

    A group is the part of a name before its first `/`: weights, slots, averages. Groups of the
    checkpoint that the model does not ask for at all are no misfit: decoding asks for weights only.
    """
    groups = {_group(name) for name in wanted}
    return Match(
        common=tuple(name for name in wanted if saved.get(name) == wanted[name]),
        missing=tuple(name for name in wanted if name not in saved),
        extra=tuple(name for name in saved if name not in wanted and _group(name) in groups),
        unequal=tuple(name for name in wanted if name in saved and saved[name] != wanted[name]),
    )


def require_fit(
    saved: SavedState, wanted: Mapping[str, TensorInfo], match: Match, strict: bool
) -> None:
    """Raises unless the checkpoint can be restored into the model.

    Raises:
      CheckpointError: lists what does not fit. Unequal shapes or dtypes never do; missing and
        extra names do not if `strict`.
    """
    lines = [_unequal_line(name, saved.tensors[name], wanted[name]) for name in match.unequal]
    parts = _listing("with another shape or dtype", lines)
    if strict:
        there, here = match.extra or tuple(saved.tensors), match.missing or tuple(wanted)
        missing = [_missing_line(name, there) for name in match.missing[:_LINES]]
        extra = [_missing_line(name, here) for name in match.extra[:_LINES]]
        parts += _listing("not in the checkpoint", missing, len(match.missing))
        parts += _listing("only in the checkpoint", extra, len(match.extra))
    if parts:
        raise CheckpointError(
            f"Checkpoint {saved.path} does not fit this model:\n"
            + "\n".join(parts)
            + "\nBuild the model with the params it was saved with (params.txt of its run)."
        )


def _listing(title: str, lines: list[str], count: int | None = None) -> list[str]:
    """A title and indented lines, the first few of them; nothing if there are none."""
    if not lines:
        return []
    count = len(lines) if count is None else count
    shown = [f"    {line}" for line in lines[:_LINES]]
    rest = [f"    and {count - _LINES} more"] if count > _LINES else []
    return [f"  {title}:", *shown, *rest]


def _unequal_line(name: str, saved: TensorInfo, wanted: TensorInfo) -> str:
    return f"{name}: {_text(saved)} in the checkpoint, {_text(wanted)} in the model"


def _missing_line(name: str, others: tuple[str, ...]) -> str:
    near = nearest(name, others)
    return f"{name} (nearest: {near})" if near else name


def _text(info: TensorInfo) -> str:
    return f"{info.dtype}{list(info.shape)}"


def _group(name: str) -> str:
    return name.partition("/")[0]
