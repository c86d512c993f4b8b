"""Kinds with kinds inside: `list[X]`, `tuple[X, ...]`, `tuple[X, Y]`, `dict[str, X]` and unions.

A mismatch inside carries the path to the item at fault, so that a message reads
`model.sizes[2] must be an int, not 'x' (str)`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from lingpipe.hyperparams.errors import MismatchError
from lingpipe.hyperparams.kinds import NONE_WORDS, EnumKind, Kind, NoneKind, StrKind, describe
from lingpipe.hyperparams.literal import read_literal

OPENERS = ("[", "(", "{")


def key_step(key: str) -> str:
    """The step of a path to a dict's item."""
    return f"[{key!r}]"


def _inside(step: str, call: Callable[..., Any], *args: Any) -> Any:
    """Calls, and puts `step` before the path of a mismatch."""
    try:
        return call(*args)
    except MismatchError as mismatch:
        raise mismatch.inside(step) from None


def _items_of_text(text: str, kinds: tuple[Kind, ...], brackets: str) -> Iterator[str]:
    """The items of comma-separated text, as far as items of these kinds can be written so."""
    if not text.strip():
        raise MismatchError(f"must not be empty text; write {brackets} for an empty one")
    if any(_is_container(kind) for kind in kinds):
        raise MismatchError(f"must be written as a literal in {brackets}, not as {text!r}")
    for position, item in enumerate(text.split(",")):
        if not item.strip():
            raise MismatchError(f"item {position} of {text!r} is empty; remove the spare comma")
        yield item.strip()


def _is_container(kind: Kind) -> bool:
    """Whether values of the kind may hold items."""
    if isinstance(kind, UnionKind):
        return any(_is_container(member) for member in kind.members)
    return isinstance(kind, ListKind | TupleKind | DictKind)


class ListKind:
    """`list[X]`."""

    def __init__(self, item: Kind) -> None:
        self.item = item

    def __str__(self) -> str:
        return f"list[{self.item}]"

    def item_kind(self, step: int | str) -> Kind:
        """The kind of the item at an index."""
        return self.item

    def _items(self, method: str, value: Any, exact: bool) -> list[Any]:
        if not isinstance(value, list):
            advice = "; write [...]" if isinstance(value, tuple) else ""
            raise MismatchError(f"must be a {self}, not {describe(value)}{advice}")
        call = getattr(self.item, method)
        return [_inside(f"[{i}]", call, item, exact) for i, item in enumerate(value)]

    def check(self, value: Any, exact: bool = False) -> list[Any]:
        return self._items("check", value, exact)

    def read(self, value: Any, exact: bool = False) -> list[Any]:
        return self._items("read", value, exact)

    def parse(self, text: str) -> list[Any]:
        if text.lstrip().startswith(OPENERS):
            return self.read(read_literal(text, json_first=True))
        items = enumerate(_items_of_text(text, (self.item,), "[]"))
        return [_inside(f"[{i}]", self.item.parse, item) for i, item in items]

    def show(self, value: Any) -> str:
        return f"[{', '.join(self.item.show(item) for item in value)}]"


class TupleKind:
    """`tuple[X, ...]`, or `tuple[X, Y]` of fixed length."""

    def __init__(self, items: tuple[Kind, ...], repeated: bool) -> None:
        self.items = items
        self.repeated = repeated

    def __str__(self) -> str:
        inner = ", ".join(str(item) for item in self.items)
        return f"tuple[{inner}, ...]" if self.repeated else f"tuple[{inner}]"

    def item_kind(self, step: int | str) -> Kind:
        """The kind of the item at an index."""
        return self.items[0] if self.repeated else self.items[int(step)]

    def kinds_of(self, count: int) -> tuple[Kind, ...]:
        """The kinds of the items of a tuple of `count`, or a mismatch if it cannot be so long."""
        if self.repeated:
            return self.items * count
        if count != len(self.items):
            raise MismatchError(f"must be a {self} of {len(self.items)} items, not of {count}")
        return self.items

    def _items(self, method: str, value: Any, exact: bool) -> tuple[Any, ...]:
        if not isinstance(value, tuple):
            advice = "; write (...)" if isinstance(value, list) else ""
            raise MismatchError(f"must be a {self}, not {describe(value)}{advice}")
        pairs = enumerate(zip(self.kinds_of(len(value)), value, strict=True))
        return tuple(_inside(f"[{i}]", getattr(k, method), item, exact) for i, (k, item) in pairs)

    def check(self, value: Any, exact: bool = False) -> tuple[Any, ...]:
        return self._items("check", value, exact)

    def read(self, value: Any, exact: bool = False) -> tuple[Any, ...]:
        return self._items("read", value, exact)

    def parse(self, text: str) -> tuple[Any, ...]:
        if text.lstrip().startswith(OPENERS):
            value = read_literal(text, json_first=True)
            return self.read(tuple(value) if isinstance(value, list) else value)
        items = list(_items_of_text(text, self.items, "()"))
        pairs = enumerate(zip(self.kinds_of(len(items)), items, strict=True))
        return tuple(_inside(f"[{i}]", kind.parse, item) for i, (kind, item) in pairs)

    def show(self, value: Any) -> str:
        shown = [
            kind.show(item) for kind, item in zip(self.kinds_of(len(value)), value, strict=True)
        ]
        return f"({shown[0]},)" if len(shown) == 1 else f"({', '.join(shown)})"


class DictKind:
    """`dict[str, X]`."""

    def __init__(self, item: Kind) -> None:
        self.item = item

    def __str__(self) -> str:
        return f"dict[str, {self.item}]"

    def item_kind(self, step: int | str) -> Kind:
        """The kind of the value at a key."""
        return self.item

    def _items(self, method: str, value: Any, exact: bool) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise MismatchError(f"must be a {self}, not {describe(value)}")
        for key in value:
            if type(key) is not str:
                raise MismatchError(f"must have keys of type str, not {describe(key)}")
        call = getattr(self.item, method)
        return {key: _inside(key_step(key), call, item, exact) for key, item in value.items()}

    def check(self, value: Any, exact: bool = False) -> dict[str, Any]:
        return self._items("check", value, exact)

    def read(self, value: Any, exact: bool = False) -> dict[str, Any]:
        return self._items("read", value, exact)

    def parse(self, text: str) -> dict[str, Any]:
        if not text.lstrip().startswith("{"):
            raise MismatchError(f"must be a {self} such as {{'key': value}}, not {text!r}")
        return self.read(read_literal(text, json_first=True))

    def show(self, value: Any) -> str:
        return f"{{{', '.join(f'{key!r}: {self.item.show(item)}' for key, item in value.items())}}}"


class UnionKind:
    """`X | Y`, `Optional[X]`: the first member that fits exactly, else the first that fits.

    Text is offered to None first, then to the members in order; `str`, which takes any text, last.
    """

    def __init__(self, members: tuple[Kind, ...]) -> None:
        self.members = members
        enums = [member for member in members if isinstance(member, EnumKind)]
        words = [word for member in enums for word in (*member.words, *member.names)]
        if enums and any(isinstance(member, StrKind) for member in members):
            raise TypeError(f"a str and a {enums[0]} look alike as text; keep one of them")
        if len(enums) > 1 and len({*words}) < sum(len({*e.words, *e.names}) for e in enums):
            raise TypeError("two enums of the union have a member of the same name")
        if enums and self.optional and any(word in NONE_WORDS for word in words):
            raise TypeError(
                f"a member of {enums[0]} looks like None as text; use it in place of None"
            )

    def __str__(self) -> str:
        return " | ".join(str(member) for member in self.members)

    @property
    def optional(self) -> bool:
        """Whether None is among the members."""
        return any(isinstance(member, NoneKind) for member in self.members)

    @property
    def single(self) -> Kind | None:
        """The member beside None, if there is just one."""
        others = [member for member in self.members if not isinstance(member, NoneKind)]
        return others[0] if len(others) == 1 else None

    def _ordered(self) -> list[Kind]:
        """None first and str last."""
        rank = {NoneKind: 0, StrKind: 2}
        return sorted(self.members, key=lambda member: rank.get(type(member), 1))

    def _first(self, method: str, value: Any, *arguments: tuple[Any, ...]) -> Any:
        """What the first member makes of `value`, tried with each of `arguments` in turn."""
        refusals = []
        for extra in arguments:
            for member in self._ordered():
                try:
                    return getattr(member, method)(value, *extra)
                except MismatchError as refusal:
                    refusals.append(refusal)
        if self.single is not None:  # Its words help, not those of None.
            last = refusals[-1]
            words = last.message
            if not last.path:
                words = words.replace("must be ", "must be None or ", 1)
            raise MismatchError(words, last.path)
        deep = {(refusal.path, refusal.message): refusal for refusal in refusals if refusal.path}
        if len(deep) == 1:
            raise next(iter(deep.values()))
        raise MismatchError(f"must be {self}, not {describe(value)}")

    def check(self, value: Any, exact: bool = False) -> Any:
        return self._first("check", value, *([(True,)] if exact else [(True,), (False,)]))

    def read(self, value: Any, exact: bool = False) -> Any:
        return self._first("read", value, *([(True,)] if exact else [(True,), (False,)]))

    def parse(self, text: str) -> Any:
        return self._first("parse", text, ())

    def show(self, value: Any) -> str:
        return self.holder(value).show(value)

    def holder(self, value: Any) -> Kind:
        """The member that takes `value`, which has been checked."""
        for exact in (True, False):
            for member in self._ordered():
                try:
                    member.check(value, exact)
                except MismatchError:
                    continue
                return member
        raise MismatchError(f"must be {self}, not {describe(value)}")
