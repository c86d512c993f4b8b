"""The text form of params: one line a leaf, in the order of declaration, read back exactly.

    class : tasks.mt.model.Model.Params
    model_dim : 512
    schedule : 1f1b
    ffn : lingpipe.layers.feed_forward.FeedForward.Params
    ffn.hidden_dim : REQUIRED
    layers : [2 items]
    layers[0] : lingpipe.layers.feed_forward.FeedForward.Params
    layers[0].hidden_dim : 64
    ...

A node's line names its class, which is imported when the text is read and must be one that the
field accepts. A list, tuple or dict with nodes inside says how many items follow; without nodes
it is a literal on one line. Lines that are empty or start with # are skipped.
"""

import re
from typing import TYPE_CHECKING, Any, TypeVar

from lingpipe.hyperparams import paths, walk
from lingpipe.hyperparams.containers import DictKind, ListKind, TupleKind, UnionKind
from lingpipe.hyperparams.errors import MismatchError, ParamsError, ParamsNameError, ParamsTypeError
from lingpipe.hyperparams.frozen import Tree
from lingpipe.hyperparams.import_path import import_class, import_path
from lingpipe.hyperparams.kinds import CLASS_PATH, EnumKind, Kind, ParamsKind, read_text
from lingpipe.hyperparams.required import REQUIRED

if TYPE_CHECKING:
    from lingpipe.hyperparams.params import Params

P = TypeVar("P", bound="Params")
_BRACKETS = {"[": ("]", ListKind), "(": (")", TupleKind), "{": ("}", DictKind)}
_HEADER = re.compile(r"([\[({])([0-9]+) items?[\])}]")


def _lone_enum(kind: Kind) -> EnumKind | None:
    single = kind.single if isinstance(kind, UnionKind) else kind
    return single if isinstance(single, EnumKind) else None


def to_text(root: "Params") -> str:
    """See `Params.to_text`."""
    walk.recheck(root)
    lines: list[str] = []
    _write_node(root, "", lines)
    return "\n".join(lines) + "\n"


def _write_node(node: Any, path: str, lines: list[str]) -> None:
    lines.append(f"{path or walk.ROOT} : {import_path(type(node))}")
    for name, field in node.fields_by_name().items():
        _write(walk.value_of(node, name), field.kind, paths.field_path(path, name), lines)


def _write(value: Any, kind: Kind, path: str, lines: list[str]) -> None:
    if value is REQUIRED:
        lines.append(f"{path} : REQUIRED")
    elif isinstance(value, Tree):
        _write_node(value, path, lines)
    elif walk.holds_nodes(value):
        holder: Any = kind.holder(value) if isinstance(kind, UnionKind) else kind
        opener = "[" if isinstance(value, list) else "(" if isinstance(value, tuple) else "{"
        plural = "" if len(value) == 1 else "s"
        lines.append(f"{path} : {opener}{len(value)} item{plural}{_BRACKETS[opener][0]}")
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            _write(value[key], holder.item_kind(key), f"{path}[{key!r}]", lines)
    else:
        lines.append(f"{path} : {_shown(value, kind)}")


def _shown(value: Any, kind: Kind) -> str:
    """A value without nodes: an enum's word bare if nothing else could be meant, else a literal."""
    enum_kind = _lone_enum(kind)
    if enum_kind is not None and value is not None:
        return enum_kind.show_bare(value)
    return kind.show(value)


def from_text(cls: type[P], written: str) -> P:
    """See `Params.from_text`."""
    lines = _Lines(written)
    root_class: Any = cls
    if walk.ROOT in lines.texts:
        named = lines.take(walk.ROOT)
        if named != import_path(cls):
            with lines.at(walk.ROOT):
                root_class = ParamsKind(cls).find_class(named)
    result: P = _read_node(root_class, "", lines)
    lines.refuse_the_rest(result)
    return result


class _At:
    """Turns a mismatch into an error that names the line."""

    def __init__(self, path: str, number: int) -> None:
        self.path, self.number = path, number

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, MismatchError):
            raise ParamsTypeError(
                f"Line {self.number}: {self.path}{error.path} {error.message}."
            ) from None


class _Lines:
    """The lines of a text by path; those not yet read are left."""

    def __init__(self, written: str) -> None:
        self.texts: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        for number, line in enumerate(written.split("\n"), start=1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            steps, rest = paths.split_path(line)
            path = line[: len(line) - len(rest)]
            if not steps or not rest.lstrip().startswith(":"):
                raise ParamsError(f"Line {number}: '{line}' cannot be read; write 'path : value'.")
            if path in self.texts:
                raise ParamsError(
                    f"Line {number}: {path} was given in line {self.numbers[path]} already."
                )
            self.texts[path] = rest.lstrip()[1:].strip()
            self.numbers[path] = number

    def take(self, path: str) -> str:
        """The text at a path, which then counts as read."""
        return self.texts.pop(path)

    def at(self, path: str) -> _At:
        """A context in which a mismatch names the line of `path`."""
        return _At(path, self.numbers[path])

    def refuse_the_rest(self, root: "Params") -> None:
        """Raises for the first line that nothing has read."""
        for path in self.texts:
            start = f"Line {self.numbers[path]}: "
            try:
                place = paths.locate(root, path)
            except ParamsNameError as error:
                raise ParamsNameError(start + str(error)) from None
            if place.path != path:
                raise ParamsNameError(f"{start}write {path} as {place.path}.")
            raise ParamsError(
                f"{start}{path} is an item of a value that no line above opens; write the whole "
                f"value of {place.name} in one line, or its number of items first, then each item."
            )


def _read_node(cls: Any, path: str, lines: _Lines, base: Any = None) -> Any:
    """A node whose fields are at `path`; fields without a line keep the value of `base`."""
    node = cls() if base is None else base.copy()
    for name, field in node.fields_by_name().items():
        where = paths.field_path(path, name)
        if where in lines.texts:
            if lines.texts[where] == "REQUIRED":
                lines.take(where)
                node.__dict__[name] = REQUIRED
                continue
            with lines.at(where):
                node.__dict__[name] = _read(field.kind, where, lines, node.__dict__[name])
        elif isinstance(node.__dict__[name], Tree):
            child = node.__dict__[name]
            node.__dict__[name] = _read_node(type(child), where, lines, base=child)
    return node


def _read(kind: Kind, path: str, lines: _Lines, present: Any) -> Any:
    text = lines.take(path)
    if CLASS_PATH.fullmatch(text) and _may_hold_params(kind):
        same = isinstance(present, Tree) and import_path(type(present)) == text
        cls = type(present) if same else _params_class(kind, text)
        return _read_node(cls, path, lines, base=present if same else None)
    if header := _HEADER.fullmatch(text):
        return _read_items(kind, path, lines, header[1], int(header[2]))
    enum_kind = _lone_enum(kind)
    if enum_kind is not None and text != "None" and not text.startswith(("'", '"')):
        return enum_kind.parse(text)
    return read_text(kind, text)


def _members(kind: Kind) -> tuple[Kind, ...]:
    return kind.members if isinstance(kind, UnionKind) else (kind,)


def _may_hold_params(kind: Kind) -> bool:
    return any(isinstance(member, ParamsKind) for member in _members(kind))


def _params_class(kind: Kind, text: str) -> type[Tree]:
    """The class named by `text` that one of the kind's members accepts."""
    members = [member for member in _members(kind) if isinstance(member, ParamsKind)]
    for member in members:
        if text == import_path(member.params_class):
            return member.params_class
    found = import_class(text)
    for member in members:
        if isinstance(found, type) and issubclass(found, member.params_class):
            return found
    return members[0].find_class(text)


def _read_items(kind: Kind, path: str, lines: _Lines, opener: str, count: int) -> Any:
    """The items of a list, tuple or dict that holds params, each at its own path."""
    wanted = _BRACKETS[opener][1]
    members: list[Any] = [member for member in _members(kind) if isinstance(member, wanted)]
    if not members:
        raise MismatchError(f"must be {kind}, not items in {opener}{_BRACKETS[opener][0]}")
    member = members[0]
    if isinstance(member, TupleKind):
        member.kinds_of(count)
    if wanted is DictKind:
        step = re.compile(re.escape(path) + rf"\[(?:{paths.QUOTED})\]")
        found = [line for line in lines.texts if step.fullmatch(line)]
        if len(found) != count:
            raise MismatchError(f"says {count} items, but {len(found)} follow")
        keyed = {paths.split_path(line)[0][-1]: line for line in found}
        return {key: _read_at(member, key, line, lines) for key, line in keyed.items()}
    missing = [i for i in range(count) if f"{path}[{i}]" not in lines.texts]
    if missing:
        raise MismatchError(f"says {count} items, but there is no line for {path}[{missing[0]}]")
    values = [_read_at(member, i, f"{path}[{i}]", lines) for i in range(count)]
    return values if wanted is ListKind else tuple(values)


def _read_at(holder: Any, step: int | str, path: str, lines: _Lines) -> Any:
    with lines.at(path):
        return _read(holder.item_kind(step), path, lines, None)


def describe(cls: type["Params"]) -> str:
    """See `Params.describe`."""
    rows = [
        (field.name, str(field.kind), _shown_default(field), field.doc) for field in cls.fields()
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    padded = (
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    )
    return "\n".join(line.rstrip() for line in padded)


def _shown_default(field: Any) -> str:
    default = field.default_value()
    if default is REQUIRED:
        return "REQUIRED"
    if isinstance(default, Tree):
        return f"{type(default).__qualname__}(...)"
    if walk.holds_nodes(default):
        return f"{len(default)} item{'' if len(default) == 1 else 's'}"
    return _shown(default, field.kind)
