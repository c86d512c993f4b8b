"""Overrides: values set by path, from code or from the text of `--set PATH=VALUE`.

Several are applied all or nothing: they are tried on a copy first, so a mistake in the last one
leaves the params as they were.
"""

from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lingpipe.hyperparams import paths
from lingpipe.hyperparams.containers import UnionKind
from lingpipe.hyperparams.errors import MismatchError, ParamsError, ParamsTypeError
from lingpipe.hyperparams.frozen import thawed_value
from lingpipe.hyperparams.kinds import Kind, describe
from lingpipe.hyperparams.required import REQUIRED

if TYPE_CHECKING:
    from lingpipe.hyperparams.params import Params


def override(root: "Params", path: str, value: Any, text: bool) -> None:
    """See `Params.override`."""
    place = paths.locate(root, path)
    place.node.refuse_if_frozen(place.name)
    whole = place.node.__dict__[place.name]
    kind, holder = place.node.require_field(place.name).kind, whole
    for step in place.inner:
        kind, holder = _item_kind(kind, holder, step), holder[step]
    try:
        if text and not isinstance(value, str):
            raise MismatchError(f"is to be read from text, and {describe(value)} is none")
        if text:
            accepted = kind.parse(value)
        elif value is REQUIRED and not place.inner:
            accepted = value
        else:
            accepted = kind.check(value)
    except MismatchError as mismatch:
        raise ParamsTypeError(f"{place.path}{mismatch.path} {mismatch.message}.") from None
    place.node.__dict__[place.name] = _replaced(whole, place.inner, thawed_value(accepted))


def _item_kind(kind: Kind, holder: Any, step: int | str) -> Kind:
    """The kind of the item at `step` of a list, tuple or dict."""
    if isinstance(kind, UnionKind):
        kind = kind.holder(holder)
    item_kind: Kind = kind.item_kind(step)  # type: ignore[attr-defined]
    return item_kind


def _replaced(whole: Any, inner: tuple[int | str, ...], value: Any) -> Any:
    """`whole` with the item at `inner` replaced; nodes beside it stay the same objects."""
    if not inner:
        return value
    step, rest = inner[0], inner[1:]
    item = _replaced(whole[step], rest, value)
    if isinstance(whole, dict):
        return {**whole, step: item}
    changed = [item if position == step else other for position, other in enumerate(whole)]
    return tuple(changed) if isinstance(whole, tuple) else changed


def split_assignment(assignment: str) -> tuple[str, str]:
    """The path and the text of `PATH=VALUE`; the text is verbatim, further `=` included.

    Raises:
        ParamsError: there is no `=`, or no path before it.
    """
    _, rest = paths.split_path(assignment.lstrip())
    if not rest.lstrip().startswith("="):
        if "=" not in assignment:
            raise ParamsError(f"'{assignment}' has no '='; write PATH=VALUE.")
        path, _, value = assignment.partition("=")
        return path.strip(), value
    value = rest.lstrip()[1:]
    return assignment[: len(assignment) - len(rest)].strip(), value


def override_all(root: "Params", assignments: Iterable[str]) -> None:
    """See `Params.override_all`."""
    pairs = [split_assignment(assignment) for assignment in assignments]
    for target in (deepcopy(root), root):  # The copy takes all of them, or raises.
        for path, value in pairs:
            override(target, path, value, text=True)


def read_overrides(file: str | Path) -> list[str]:
    """The `PATH=VALUE` lines of a file; empty lines and lines that start with # are left out.

    Raises:
        ParamsError: the file cannot be read, or a line has no `=`; the message has its number.
    """
    try:
        content = Path(file).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ParamsError(
            f"The file of overrides '{file}' cannot be read: {error.strerror or error}."
        ) from None
    except UnicodeDecodeError as error:
        raise ParamsError(f"The file of overrides '{file}' is not UTF-8: {error}.") from None
    result = []
    for number, line in enumerate(content.split("\n"), start=1):
        line = line.removesuffix("\r")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            split_assignment(line)
        except ParamsError as error:
            raise ParamsError(f"Line {number} of '{file}': {error}") from None
        result.append(line.lstrip())
    return result
