"""Fields: what a class body of params declares, checked while the class is written.

`declare` reads the body of a new params class and leaves one `Field` for each annotated name. An
un-annotated public name overrides the default of an inherited field; it must name one.
"""

import contextlib
import inspect
import types
from collections.abc import Iterator
from typing import Any

from lingpipe.hyperparams import annotations, docs
from lingpipe.hyperparams.annotations import Scope
from lingpipe.hyperparams.errors import MismatchError, ParamsError, ParamsNameError, ParamsTypeError
from lingpipe.hyperparams.frozen import frozen_value, thawed_value
from lingpipe.hyperparams.kinds import Kind
from lingpipe.hyperparams.names import suggestion
from lingpipe.hyperparams.required import REQUIRED


class Field:
    """One field of a params class.

    Attributes:
        name: the field's name.
        annotation: its type as declared; a string where the class body's annotations are strings.
        default: the value that a new instance gets a copy of; frozen. May be `REQUIRED`.
        declared_in: the class whose body has the annotation.
    """

    def __init__(
        self, name: str, annotation: Any, default: Any, declared_in: type, scope: Scope
    ) -> None:
        self.name = name
        self.annotation = annotation
        self.default = default
        self.declared_in = declared_in
        self._scope = scope
        self._kind: Kind | None = None

    def __repr__(self) -> str:
        return f"Field({self.name}: {self.annotation} = {self.default!r})"

    @property
    def doc(self) -> str:
        """The comment beside or above the field in its class's source; empty if there is none."""
        return docs.field_comment(self.declared_in, self.name)

    @property
    def kind(self) -> Kind:
        """What the field accepts; resolves the annotation and checks the default at first use."""
        try:
            return self._kind or self.resolve()
        except NameError as error:
            raise ParamsTypeError(
                f"{self._label()}: its annotation {self.annotation!r} cannot be resolved "
                f"({error}); import the name at the top of the module."
            ) from None

    def resolve(self) -> Kind:
        """Turns the annotation into a kind and checks the default.

        Raises:
            NameError: the annotation names something that is not defined yet.
            ParamsTypeError: a type that params do not hold, or a default of another type.
        """
        try:
            kind = annotations.kind_of(annotations.evaluate(self.annotation, self._scope))
        except (TypeError, SyntaxError) as error:
            raise ParamsTypeError(f"{self._label()}: {error}.") from None
        self._kind, self._scope = kind, Scope()
        self.default = frozen_value(thawed_value(self.checked(self.default, self._label())))
        return kind

    def default_value(self) -> Any:
        """The default, checked by now."""
        return self.default if self.kind else REQUIRED

    def _label(self) -> str:
        return f"{self.declared_in.__qualname__}.{self.name}"

    def checked(self, value: Any, path: str) -> Any:
        """`value` as the field stores it.

        Raises:
            ParamsTypeError: the value is not of the field's type; the message starts with `path`.
        """
        if value is REQUIRED:
            return value
        try:
            return self.kind.check(value)
        except MismatchError as mismatch:
            raise ParamsTypeError(f"{path}{mismatch.path} {mismatch.message}.") from None

    def overridden(self, value: Any, by: type) -> "Field":
        """The field with another default, as a subclass declares it."""
        field = Field(self.name, self.annotation, REQUIRED, self.declared_in, Scope())
        field._kind = self.kind
        path = f"{by.__qualname__}.{self.name}"
        field.default = frozen_value(thawed_value(field.checked(value, path)))
        return field


class FieldAccess:
    """Stands for a field on its class: `Thing.Params.width` is the (frozen) default.

    An instance keeps its value in its `__dict__`, which Python looks into first.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any) -> Any:
        return owner.fields_by_name()[self.name].default


def _is_member(value: Any) -> bool:
    """Whether a value of a class body is a method, property, nested class or the like."""
    member = (types.FunctionType, property, classmethod, staticmethod, type)
    return isinstance(value, member) or inspect.ismethoddescriptor(value) or hasattr(
        type(value), "__set_name__"
    )  # fmt: skip


def inherited(cls: type) -> dict[str, Field]:
    """The fields of the parents: in declaration order, the nearest class's default."""
    result: dict[str, Field] = {}
    for parent in reversed(cls.__mro__[1:]):
        result.update(parent.__dict__.get("_declared", {}))
    return result


def declare(cls: type) -> dict[str, Field]:
    """The fields that the body of `cls` declares or overrides, by name.

    Raises:
        ParamsNameError: an un-annotated name that is no inherited field, or a forbidden name.
        ParamsTypeError: a field of a type that params do not hold, or a default of another type.
    """
    parents = inherited(cls)
    own = inspect.get_annotations(cls)
    declared: dict[str, Field] = {}
    scope: Scope | None = None
    for name, annotation in own.items():
        if name.startswith("_") or annotations.is_class_variable(annotation):
            continue
        _refuse_reserved(cls, name, parents)
        if scope is None:
            scope = annotations.scope_of(cls)
        default = _default_in_body(cls, name, parents)
        declared[name] = Field(name, annotation, default, cls, scope)
        with contextlib.suppress(NameError):  # Defined further down: resolved at first use.
            declared[name].resolve()
    for name, value in _overrides_in_body(cls, parents, own):
        declared[name] = parents[name].overridden(value, by=cls)
    for name in declared:
        setattr(cls, name, FieldAccess(name))
    return declared


def _default_in_body(cls: type, name: str, parents: dict[str, Field]) -> Any:
    if name in cls.__dict__:
        return cls.__dict__[name]
    if name in parents:
        return parents[name].default
    raise ParamsError(
        f"{cls.__qualname__}.{name} has no default; give one, or write "
        f"'{name}: ... = REQUIRED' if whoever uses the params must set it."
    )


def _refuse_reserved(cls: type, name: str, parents: dict[str, Field]) -> None:
    for parent in cls.__mro__[1:]:
        if name in parent.__dict__ and name not in parents:
            raise ParamsNameError(
                f"{cls.__qualname__}.{name} cannot be a field: {name} is a method or attribute "
                f"of {parent.__qualname__}; choose another name."
            )


def _overrides_in_body(
    cls: type, parents: dict[str, Field], own: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """The un-annotated public names that override a field."""
    for name, value in list(vars(cls).items()):
        if name.startswith("_") or name in own or name == "owner":
            continue
        if name in parents:
            if _is_member(value) and not isinstance(value, type):
                raise ParamsNameError(
                    f"{cls.__qualname__}.{name} is a method or property with the name of a field "
                    f"of {parents[name].declared_in.__qualname__}; choose another name."
                )
            yield name, value
        elif not _is_member(value):
            known = [*parents, *(other for other in own if not other.startswith("_"))]
            raise ParamsNameError(
                f"{cls.__qualname__}.{name} = {value!r} overrides no field; "
                f"{suggestion(name, known)} A new field needs an annotation: "
                f"'{name}: {type(value).__name__} = ...'."
            )
