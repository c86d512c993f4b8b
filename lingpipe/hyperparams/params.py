"""`Params`: what a thing needs to be built, as a tree of typed, documented fields.

    class FeedForward(Parameterized):
        class Params(Parameterized.Params):
            model_dim: int = REQUIRED      # Width of inputs and outputs; the parent sets it.
            dropout: float = 0.0           # Share of hidden units dropped in training.

        def __init__(self, params: Params) -> None: ...

    params = FeedForward.Params(dropout=0.1)
    params.model_dim = 512          # Checked: a wrong name or type is refused at once.
    layer = params.build()          # FeedForward(params frozen)

A subclass overrides defaults by name alone (`dropout = 0.3`). Values are copied in, so no two
trees ever share a part; lists may be changed in place and are checked again before use.
"""

import reprlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

from lingpipe.hyperparams import overrides, text, walk
from lingpipe.hyperparams.errors import ParamsError, ParamsNameError
from lingpipe.hyperparams.fields import Field, FieldAccess, declare, inherited
from lingpipe.hyperparams.frozen import Tree, frozen_value, thawed_value
from lingpipe.hyperparams.names import listed, suggestion
from lingpipe.hyperparams.required import REQUIRED


@dataclass_transform(kw_only_default=True)
class Params(Tree):
    """The base of all params; a subclass declares fields as `name: type = default`."""

    owner: ClassVar[Any] = None  # The class that `build` calls; set by Parameterized.
    _declared: ClassVar[dict[str, Field]] = {}
    _all_fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._declared = declare(cls)

    def __init__(self, **values: Any) -> None:
        known = self.fields_by_name()
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ParamsNameError(" ".join(self._unknown(name) for name in unknown))
        self._refuse_class_assignments()
        self.__dict__["_frozen"] = False
        for name, field in known.items():
            value = values[name] if name in values else field.default_value()
            checked = field.checked(value, f"{type(self).__qualname__}.{name}")
            self.__dict__[name] = thawed_value(checked)

    # -- What there is -------------------------------------------------------------------------

    @classmethod
    def fields_by_name(cls) -> dict[str, Field]:
        """Every field by name, in declaration order, parents' first."""
        if "_all_fields" not in cls.__dict__:
            cls._all_fields = {**inherited(cls), **cls._declared}
        return cls._all_fields

    @classmethod
    def fields(cls) -> tuple[Field, ...]:
        """Every field, in declaration order: its name, annotation, default and doc."""
        return tuple(cls.fields_by_name().values())

    @classmethod
    def describe(cls) -> str:
        """A listing of the fields, one a line: name, type, default, comment."""
        return text.describe(cls)

    @classmethod
    def require_field(cls, name: str, prefix: str = "") -> Field:
        """The field `name`.

        Raises:
            ParamsNameError: there is none; the message has the path and the nearest name.
        """
        field = cls.fields_by_name().get(name)
        if field is None:
            raise ParamsNameError(cls._unknown(name, prefix))
        return field

    @classmethod
    def _unknown(cls, name: str, prefix: str = "") -> str:
        before = f"{prefix}." if prefix else ""
        hint = suggestion(name, cls.fields_by_name(), prefix=before)
        start = f"{before}{name}: " if prefix else ""
        return f"{start}{cls.__qualname__} has no field '{name}'; {hint}"

    # -- Values --------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # Hidden, so that type checkers see the fields alone.

        def __setattr__(self, name: str, value: Any) -> None:
            field = self.require_field(name)
            self.refuse_if_frozen(name)
            path = f"{type(self).__qualname__}.{name}"
            self.__dict__[name] = thawed_value(field.checked(value, path))

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise ParamsNameError(self._unknown(name))

        def __delattr__(self, name: str) -> None:
            raise ParamsNameError(
                f"{type(self).__qualname__}.{name} cannot be deleted; set it to a value."
            )

    @classmethod
    def _refuse_class_assignments(cls) -> None:
        """Raises for `Thing.Params.width = 3` outside a class body, which would have no effect."""
        known = cls.fields_by_name().keys()
        for parent in cls.__mro__:
            for name in known & parent.__dict__.keys():
                if not isinstance(parent.__dict__[name], FieldAccess):
                    raise ParamsNameError(
                        f"{parent.__qualname__}.{name} was assigned on the class; set it on an "
                        "instance, or write a subclass with another default."
                    )

    def __copy__(self) -> Self:
        return self.copy()

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        values = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.fields_by_name())
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return walk.same(self, other)

    __hash__ = None  # type: ignore[assignment]

    def copy(self, **values: Any) -> Self:
        """A thawed deep copy, with some fields set: `params.copy(dropout=0.1)`."""
        result = object.__new__(type(self))
        result.__dict__["_frozen"] = False
        for name in self.fields_by_name():
            result.__dict__[name] = thawed_value(walk.value_of(self, name))
        for name, value in values.items():
            setattr(result, name, value)
        return result

    def override(self, path: str, value: Any, text: bool = False) -> None:
        """Sets the field at a dotted path: `model.layers[0].dropout`.

        Args:
            path: steps are field names, list indices and dict keys.
            value: the value; with `text`, a string that is parsed by the field's type.
            text: whether the value is a user's text.

        Raises:
            ParamsNameError: no such path.
            ParamsTypeError: a value or text that does not fit the field.
        """
        overrides.override(self, path, value, text)

    def override_all(self, assignments: Iterable[str]) -> None:
        """Applies `PATH=VALUE` texts in order; if any is refused, none is applied."""
        overrides.override_all(self, assignments)

    # -- Freezing and building -----------------------------------------------------------------

    @property
    def frozen(self) -> bool:
        """Whether the values can no longer change."""
        return bool(self.__dict__["_frozen"])

    def refuse_if_frozen(self, name: str) -> None:
        """Raises ParamsError if frozen; `name` is the field that was to change."""
        if self.frozen:
            raise ParamsError(
                f"{type(self).__qualname__} is frozen, and {name} cannot change: something was "
                f"built from it. Change a copy instead: params.copy({name}=...)."
            )

    def freeze(self) -> Self:
        """Makes the whole tree immutable, lists too, and returns it.

        Raises:
            ParamsTypeError: a list or dict was changed in place to hold a value of another type.
        """
        if not self.frozen:
            walk.recheck(self)
            for name in self.fields_by_name():
                self.__dict__[name] = frozen_value(walk.value_of(self, name))
            self.__dict__["_frozen"] = True
        return self

    def inconsistencies(self) -> Iterable[tuple[str, str]]:
        """Hook: yields (field, message) for every value that does not go with the others.

        Runs only when no field of this node is REQUIRED. A subclass adds to its parent's with
        `yield from super().inconsistencies()`.
        """
        return ()

    def validate(self) -> None:
        """Checks the whole tree: types again, and every node's `inconsistencies`.

        Raises:
            ParamsError: lists all that is wrong, each with its path.
        """
        walk.validate(self)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Builds the owner from these params, frozen: `owner(params, *args, **kwargs)`.

        Raises:
            ParamsError: own fields are still REQUIRED, or inconsistent; or nothing owns these.
        """
        name = type(self).__qualname__
        if self.owner is None:
            raise ParamsError(
                f"{name} builds nothing: it is nested in no class. Nest 'class Params' in the "
                "class that it should build, and derive that class from Parameterized."
            )
        missing = self.required_fields()
        if missing:
            raise ParamsError(
                f"{name} cannot be built while REQUIRED is left in {listed(missing, limit=50)}; "
                f"set {'it' if len(missing) == 1 else 'them'} first: params.{missing[0]} = ..."
            )
        ready = self if self.frozen else self.copy().freeze()
        walk.refuse(name, walk.own_inconsistencies(ready))
        return self.owner(ready, *args, **kwargs)

    def required_fields(self) -> Sequence[str]:
        """The names of this node's own fields that are still REQUIRED."""
        return [name for name in self.fields_by_name() if self.__dict__[name] is REQUIRED]

    # -- Text ----------------------------------------------------------------------------------

    def to_text(self) -> str:
        """The whole tree as text, one leaf a line; `from_text` reads back an equal tree."""
        return text.to_text(self)

    @classmethod
    def from_text(cls, written: str) -> Self:
        """Params of this class, or of the subclass that the text names.

        Fields that the text does not mention keep their defaults.

        Raises:
            ParamsError: a line that cannot be read, names no field, or has a value of another type.
        """
        return text.from_text(cls, written)

    def diff(self, other: "Params") -> list[walk.Difference]:
        """Where the two trees differ, one record for each path."""
        return walk.diff(self, other)
