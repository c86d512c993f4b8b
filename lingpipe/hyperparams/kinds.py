"""Kinds: what a field of each type accepts, and how its values are written and read.

A `Kind` is made once from a field's annotation (see annotations.py) and answers four questions:

    check(value)   is this Python value right?             set by code
    parse(text)    what does a user's text mean?           --set PATH=VALUE, never guessed
    read(value)    what does a value from a literal mean?  items of lists and dicts in text
    show(value)    how is a value written?                 to_text, read back by read_literal

This file holds the scalars and params; containers.py holds lists, tuples, dicts and unions.
"""

import enum
import math
import re
from typing import Any, Protocol

from lingpipe.hyperparams.errors import MismatchError
from lingpipe.hyperparams.frozen import Tree
from lingpipe.hyperparams.import_path import import_class, import_path
from lingpipe.hyperparams.literal import read_literal
from lingpipe.hyperparams.names import listed, nearest

_INT = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_FLOAT = re.compile(r"[+-]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)([eE][+-]?[0-9]+)?")
_INFINITE = re.compile(r"[+-]?(inf|Infinity|nan|NaN)")
_BOOLS = {"true": True, "True": True, "false": False, "False": False}
NONE_WORDS = ("None", "none")
CLASS_PATH = re.compile(r"[A-Za-z_]\w*(\.[\w<>]+)+")
_BARE_WORD = re.compile(r"[A-Za-z0-9_.+-]+")


class Kind(Protocol):
    """What a field of one type accepts; `str(kind)` is the type as a user writes it."""

    def check(self, value: Any, exact: bool = False) -> Any:
        """`value` as the field stores it (lists are new, nodes the same), or a MismatchError.

        With `exact`, an int does not pass for a float: a union tries that first.
        """

    def parse(self, text: str) -> Any:
        """The value that a user's text stands for, or a MismatchError."""

    def read(self, value: Any, exact: bool = False) -> Any:
        """The value that a plain value, read from a literal, stands for, or a MismatchError."""

    def show(self, value: Any) -> str:
        """A checked `value` as a literal."""


def describe(value: Any) -> str:
    """A value and its type, for a message; of params the class alone."""
    if isinstance(value, Tree):
        return type(value).__qualname__
    shown = repr(value)
    return f"{shown if len(shown) <= 80 else shown[:77] + '...'} ({type(value).__name__})"


class BoolKind:
    """True or False, and nothing that merely counts as such."""

    def __str__(self) -> str:
        return "bool"

    def check(self, value: Any, exact: bool = False) -> bool:
        if value is True or value is False:
            return bool(value)
        raise MismatchError(f"must be a bool, not {describe(value)}; write True or False")

    read = check

    def parse(self, text: str) -> bool:
        if text.strip() in _BOOLS:
            return _BOOLS[text.strip()]
        raise MismatchError(f"must be true or false, not {text!r}")

    def show(self, value: Any) -> str:
        return repr(value)


class IntKind:
    """A whole number; a bool is none."""

    def __str__(self) -> str:
        return "int"

    def check(self, value: Any, exact: bool = False) -> int:
        if type(value) is int:
            return value
        if type(value) is float and value.is_integer():
            raise MismatchError(f"must be an int, not {describe(value)}; write {int(value)}")
        raise MismatchError(f"must be an int, not {describe(value)}")

    read = check

    def parse(self, text: str) -> int:
        stripped = text.strip()
        if _INT.fullmatch(stripped):
            try:
                return int(stripped)
            except ValueError as error:  # Beyond Python's limit of digits.
                raise MismatchError(f"must be an int: {error}") from None
        if _FLOAT.fullmatch(stripped):
            number = float(stripped.replace("_", ""))
            if math.isfinite(number):
                low = math.floor(number)
                advice = str(low) if low == number else f"{low} or {low + 1}"
                raise MismatchError(f"must be an int, not {text!r}; write {advice}")
        raise MismatchError(f"must be an int such as 16 or 16_384, not {text!r}")

    def show(self, value: Any) -> str:
        return repr(value)


class FloatKind:
    """A floating-point number; an int is stored as the float of equal value."""

    def __str__(self) -> str:
        return "float"

    def check(self, value: Any, exact: bool = False) -> float:
        if isinstance(value, float) and not isinstance(value, enum.Enum):
            return float(value)
        if type(value) is int and not exact:
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if number == value:
                return number
            raise MismatchError(f"must be a float, and the int {value} has no float equal to it")
        raise MismatchError(f"must be a float, not {describe(value)}")

    read = check

    def parse(self, text: str) -> float:
        stripped = text.strip()
        if _INFINITE.fullmatch(stripped):
            return float(stripped)
        try:
            if not _FLOAT.fullmatch(stripped):
                raise ValueError
            number = float(stripped)
        except ValueError:
            raise MismatchError(f"must be a float such as 0.1 or 1e-3, not {text!r}") from None
        if math.isinf(number):
            raise MismatchError(f"must be a float, and {text!r} is too large for one; write inf")
        return number

    def show(self, value: Any) -> str:
        return repr(value)


class StrKind:
    """A string; its text is taken verbatim."""

    def __str__(self) -> str:
        return "str"

    def check(self, value: Any, exact: bool = False) -> str:
        if isinstance(value, str) and not isinstance(value, enum.Enum):
            return str(value)
        raise MismatchError(f"must be a str, not {describe(value)}")

    read = check

    def parse(self, text: str) -> str:
        return text

    def show(self, value: Any) -> str:
        return repr(value)


class NoneKind:
    """None, as one side of a union."""

    def __str__(self) -> str:
        return "None"

    def check(self, value: Any, exact: bool = False) -> None:
        if value is not None:
            raise MismatchError(f"must be None, not {describe(value)}")

    read = check

    def parse(self, text: str) -> None:
        if text.strip() not in NONE_WORDS:
            raise MismatchError(f"must be None, not {text!r}")

    def show(self, value: Any) -> str:
        return "None"


class EnumKind:
    """A member of an enum, written by its value if that is a string, else by its name."""

    def __init__(self, enum_class: type[enum.Enum]) -> None:
        self.enum_class = enum_class
        self.words = {self.word(member): member for member in enum_class}
        if len(self.words) < len(enum_class):
            raise TypeError(
                f"two members of {enum_class.__qualname__} would be written alike; "
                "give every member a string value of its own"
            )
        # A word stands for the member that is written so; other names are understood after that.
        self.names = enum_class.__members__

    def __str__(self) -> str:
        return self.enum_class.__qualname__

    @staticmethod
    def word(member: enum.Enum) -> str:
        """The text of a member."""
        return member.value if isinstance(member.value, str) else member.name

    def check(self, value: Any, exact: bool = False) -> enum.Enum:
        if isinstance(value, self.enum_class):
            return value
        member = self._find(value) if isinstance(value, str) else None
        advice = (
            f"write {self}.{member.name}" if member is not None else f"one of {self._choices()}"
        )
        raise MismatchError(f"must be a {self}, not {describe(value)}; {advice}")

    def read(self, value: Any, exact: bool = False) -> enum.Enum:
        return self.parse(value) if isinstance(value, str) else self.check(value)

    def parse(self, text: str) -> enum.Enum:
        member = self._find(text.strip())
        if member is not None:
            return member
        near = nearest(text.strip(), [*self.words, *self.names])
        hint = f" (did you mean '{near}'?)" if near else ""
        raise MismatchError(f"must be one of {self._choices()}, not {text!r}{hint}")

    def show(self, value: Any) -> str:
        return repr(str(self.word(value)))

    def show_bare(self, value: Any) -> str:
        """The word without quotes where nothing else could be meant."""
        word = self.word(value)
        plain = _BARE_WORD.fullmatch(word) and word not in (*NONE_WORDS, "REQUIRED")
        return str(word) if plain else self.show(value)

    def _find(self, text: str) -> enum.Enum | None:
        return self.words[text] if text in self.words else self.names.get(text)

    def _choices(self) -> str:
        return listed(self.words, limit=20)


class ParamsKind:
    """Params of one class or of a subclass of it."""

    def __init__(self, params_class: type[Tree]) -> None:
        self.params_class = params_class

    def __str__(self) -> str:
        return self.params_class.__qualname__

    def check(self, value: Any, exact: bool = False) -> Tree:
        if isinstance(value, self.params_class):
            return value
        if isinstance(value, type) and issubclass(value, self.params_class):
            raise MismatchError(
                f"must be {self} itself, not its class; write {value.__qualname__}() with brackets"
            )
        raise MismatchError(f"must be {self} or params of a subclass, not {describe(value)}")

    read = check

    def parse(self, text: str) -> Tree:
        """Params of the class at an import path, with that class's defaults."""
        stripped = text.strip()
        if not CLASS_PATH.fullmatch(stripped):
            raise MismatchError(
                f"holds params of type {self}, not {text!r}; set its fields one by one, "
                f"or give the import path of a params class such as "
                f"{import_path(self.params_class)}"
            )
        return self.find_class(stripped)()

    def find_class(self, path: str) -> type[Tree]:
        """The accepted params class at import path `path`."""
        if path == import_path(self.params_class):
            return self.params_class
        found = import_class(path)
        if not (isinstance(found, type) and issubclass(found, self.params_class)):
            nested = getattr(found, "Params", None)
            inner = isinstance(nested, type) and issubclass(nested, self.params_class)
            advice = f"; did you mean '{path}.Params'?" if inner else ""
            raise MismatchError(f"must be {self} or a subclass of it, and {path} is not{advice}")
        return found

    def show(self, value: Any) -> str:
        return import_path(type(value))


def read_text(kind: Kind, text: str) -> Any:
    """The inverse of `show`: the value of a literal that a kind wrote."""
    return kind.read(read_literal(text))
