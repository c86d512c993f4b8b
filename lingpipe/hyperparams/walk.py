"""Walks over a whole tree of params: leaves, differences, equality, checks.

A tree is read as a list of leaves, each a path and a value: `model.layers[0].dropout`, 0.1. A node
is a leaf too, whose value is its class; so is a list with nodes inside, whose value is its length.
Text, differences and equality all follow from that one list.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lingpipe.hyperparams.containers import key_step
from lingpipe.hyperparams.errors import ParamsError, ParamsTypeError
from lingpipe.hyperparams.frozen import Tree
from lingpipe.hyperparams.import_path import import_path
from lingpipe.hyperparams.kinds import EnumKind
from lingpipe.hyperparams.paths import field_path
from lingpipe.hyperparams.required import REQUIRED

if TYPE_CHECKING:
    from lingpipe.hyperparams.params import Params

ROOT = "class"  # The path of the root's own class: a keyword, so no field is called so.


def items(value: Any) -> Iterator[tuple[str, Any]]:
    """The (step, item) pairs of a list, tuple or dict; none of anything else."""
    if isinstance(value, list | tuple):
        yield from ((f"[{position}]", item) for position, item in enumerate(value))
    elif isinstance(value, dict):
        yield from ((key_step(key), item) for key, item in value.items())


def holds_nodes(value: Any) -> bool:
    """Whether there are params anywhere inside a list, tuple or dict."""
    return any(isinstance(item, Tree) or holds_nodes(item) for _, item in items(value))


def nodes(value: Any, path: str = "") -> Iterator[tuple[str, "Params"]]:
    """(path, params) of every node at and below `value`, parents first; the path of a root is "".

    Raises:
        ParamsError: a node was put into a list inside itself.
    """
    yield from _nodes(value, path, ())


def _nodes(value: Any, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, "Params"]]:
    if id(value) in above:
        raise ParamsError(f"{path} contains itself; put a copy there: params.copy().")
    if isinstance(value, Tree):
        node: Any = value
        yield path, node
        for name in node.fields_by_name():
            yield from _nodes(node.__dict__[name], field_path(path, name), (*above, id(value)))
    else:
        for step, item in items(value):
            yield from _nodes(item, path + step, (*above, id(value)))


def recheck(root: "Params") -> None:
    """Checks every value of the tree again, as lists may have been changed in place.

    Raises:
        ParamsTypeError: for the first value of another type, with its path.
    """
    for path, node in nodes(root):
        for name, field in node.fields_by_name().items():
            field.checked(node.__dict__[name], field_path(path, name))


def value_of(node: Any, name: str) -> Any:
    """A field's value as it is stored after a check, which turns an int in a list of floats."""
    value = node.__dict__[name]
    try:
        return node.fields_by_name()[name].checked(value, name)
    except ParamsTypeError:
        return value  # Put into a list in place; refused when the params are used.


def own_inconsistencies(node: "Params", path: str = "") -> list[str]:
    """What the node's hook says, each message with its path; nothing while a field is REQUIRED."""
    if node.required_fields():
        return []
    try:
        found = list(node.inconsistencies())
    except Exception as error:
        error.add_note(f"while checking the params at '{path or ROOT}' ({type(node).__qualname__})")
        raise
    return [f"{field_path(path, name)}: {message}" for name, message in found]


def refuse(name: str, messages: list[str]) -> None:
    """Raises one ParamsError with all the messages, if there are any."""
    if len(messages) == 1:
        raise ParamsError(f"{name} is inconsistent: {messages[0]}")
    if messages:
        lines = "".join(f"\n  {message}" for message in messages)
        raise ParamsError(f"{name} has {len(messages)} inconsistencies:{lines}")


def validate(root: "Params") -> None:
    """See `Params.validate`."""
    messages: list[str] = []
    for path, node in nodes(root):
        wrong = []
        for name, field in node.fields_by_name().items():
            try:
                field.checked(node.__dict__[name], field_path(path, name))
            except ParamsTypeError as error:
                wrong.append(str(error))
        messages += wrong or own_inconsistencies(node, path)
    refuse(type(root).__qualname__, messages)


def same(mine: Any, theirs: Any) -> bool:
    """Whether two values are equal and of equal types; a nan equals a nan."""
    if isinstance(mine, Tree):
        if type(mine) is not type(theirs):
            return False
        node: Any = mine
        return all(same(value_of(node, n), value_of(theirs, n)) for n in node.fields_by_name())
    for container in (list, tuple, dict):
        if isinstance(mine, container) or isinstance(theirs, container):
            if not (isinstance(mine, container) and isinstance(theirs, container)):
                return False
            mine_items, their_items = dict(items(mine)), dict(items(theirs))
            return mine_items.keys() == their_items.keys() and all(
                same(item, their_items[step]) for step, item in mine_items.items()
            )
    if type(mine) is not type(theirs):
        return False
    return bool(mine == theirs) or (mine != mine and theirs != theirs)


@dataclass(frozen=True)
class Absent:
    """The value of a path that only the other of two trees has."""

    def __repr__(self) -> str:
        """The word that a list of differences shows."""
        return "(absent)"


@dataclass(frozen=True)
class Difference:
    """One path at which two trees differ.

    Attributes:
        path: the path; `class` is the class of the root.
        mine: the value here, a params class where the two nodes are of different classes, or
            `Absent()`.
        theirs: the value there.
    """

    path: str
    mine: Any
    theirs: Any

    def __str__(self) -> str:
        """`path : mine -> theirs`."""
        return f"{self.path} : {shown(self.mine)} -> {shown(self.theirs)}"


def shown(value: Any) -> str:
    """A value of a difference as text: enums by their words, classes by their import paths."""
    if isinstance(value, type):
        return import_path(value)
    if isinstance(value, enum.Enum) and value is not REQUIRED:
        return EnumKind.word(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {shown(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        inner = ", ".join(shown(item) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return repr(value)


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves at and below `value`; a node's leaf is its class."""
    if isinstance(value, Tree):
        node: Any = value
        yield path or ROOT, type(node)
        for name in node.fields_by_name():
            yield from flat(value_of(node, name), field_path(path, name))
    elif holds_nodes(value):
        for step, item in items(value):
            yield from flat(item, path + step)
    else:
        yield path, value


def diff(mine: "Params", theirs: "Params") -> list[Difference]:
    """See `Params.diff`."""
    here, there = dict(flat(mine)), dict(flat(theirs))
    result = []
    for path in [*here, *(path for path in there if path not in here)]:
        left, right = here.get(path, Absent()), there.get(path, Absent())
        if not same(left, right):
            result.append(Difference(path, left, right))
    return result


def format_differences(differences: list[Difference]) -> str:
    """Differences as text, one a line: `path : mine -> theirs`."""
    return "\n".join(str(difference) for difference in differences)
