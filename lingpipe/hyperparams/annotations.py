"""From a field's annotation to its kind, string annotations included.

A string annotation (`from __future__ import annotations`) may use the names of its module, of the
classes that enclose the params and, in tests, of the enclosing function. The classes around are
still being written when their params are made, so their names so far are taken from the frames of
those class bodies.
"""

import enum
import sys
import types
import typing
from dataclasses import dataclass, field
from typing import Any

from lingpipe.hyperparams.containers import DictKind, ListKind, TupleKind, UnionKind
from lingpipe.hyperparams.frozen import Tree
from lingpipe.hyperparams.kinds import (
    BoolKind,
    EnumKind,
    FloatKind,
    IntKind,
    Kind,
    NoneKind,
    ParamsKind,
    StrKind,
)

_SCALARS: dict[Any, type] = {
    bool: BoolKind,
    int: IntKind,
    float: FloatKind,
    str: StrKind,
    None: NoneKind,
    type(None): NoneKind,
}
SUPPORTED = (
    "bool, int, float, str, an enum, a Params class, list[X], tuple[X, ...], tuple[X, Y], "
    "dict[str, X], or X | None of these"
)


def kind_of(annotation: Any) -> Kind:
    """The kind of an evaluated annotation.

    Raises:
        TypeError: a type that params do not hold; the message lists those that they do.
    """
    if annotation in _SCALARS:
        return typing.cast(Kind, _SCALARS[annotation]())
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return UnionKind(tuple(kind_of(arg) for arg in args))
    if origin is list and len(args) == 1:
        return ListKind(kind_of(args[0]))
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return TupleKind((kind_of(args[0]),), repeated=True)
    if origin is tuple and args:
        return TupleKind(tuple(kind_of(arg) for arg in args), repeated=False)
    if origin is dict and args[0] is str:
        return DictKind(kind_of(args[1]))
    if isinstance(annotation, type) and issubclass(annotation, Tree):
        return ParamsKind(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        if issubclass(annotation, enum.Flag):
            raise TypeError(f"{annotation.__name__} is a Flag; use a list of an Enum instead")
        return EnumKind(annotation)
    raise TypeError(f"params cannot hold {_name(annotation)}; a field is {SUPPORTED}")


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else repr(annotation)


def is_class_variable(annotation: Any) -> bool:
    """Whether an annotation, evaluated or not, marks a ClassVar, which is no field."""
    if isinstance(annotation, str):
        head = annotation.split("[")[0].strip()
        return head in ("ClassVar", "typing.ClassVar")
    return annotation is typing.ClassVar or typing.get_origin(annotation) is typing.ClassVar


@dataclass(frozen=True)
class Scope:
    """The names that a string annotation may use; the first that has a name counts.

    Attributes:
        local: names of the functions around, and the classes being written by their own names.
        module: the module's names, still growing: what it defines further down comes in time.
        around: names inside the bodies of the classes around.
    """

    local: dict[str, Any] = field(default_factory=dict)
    module: dict[str, Any] = field(default_factory=dict)
    around: dict[str, Any] = field(default_factory=dict)


def scope_of(cls: type) -> Scope:
    """The names that a string annotation inside `cls` may use.

    Called while `cls` is being made: some of the frames above are the bodies of the classes and
    functions that enclose it.
    """
    enclosing = cls.__qualname__.split(".")[:-1]
    local: dict[str, Any] = {}
    around: dict[str, Any] = {}
    nested = bool(enclosing) and enclosing[-1] != "<locals>"
    (around if nested else local)[cls.__name__] = cls
    inner_name, inner = cls.__name__, typing.cast(Any, cls)
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == cls.__module__:
            name, names = frame.f_code.co_name, frame.f_locals
            if name == "<module>":
                break
            if name in enclosing and "__qualname__" in names:  # The body of a class.
                around = {**names, **around}
                inner_name, inner = name, types.SimpleNamespace(**{**names, inner_name: inner})
                local.setdefault(name, inner)
            else:
                local = {**names, **local}
        frame = frame.f_back
    module = sys.modules.get(cls.__module__)
    return Scope(local, vars(module) if module else {}, around)


def evaluate(annotation: Any, scope: Scope) -> Any:
    """An annotation with the names in its strings looked up, `list["Item.Params"]` included.

    Raises:
        NameError: a name is not known, perhaps not yet.
    """
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    around = {name: value for name, value in scope.around.items() if name not in scope.module}
    local = {**around, **scope.local}
    return typing.get_type_hints(holder, globalns=scope.module, localns=local)["it"]
