"""Lists and dicts that refuse to change: what frozen params hold in place of the plain ones.

They are subclasses of `list` and `dict`, so they compare, print and unpack as those do; every
method that would change them raises a `ParamsTypeError`. `frozen_value` and `thawed_value` turn a
field's value into its frozen and its plain form, deeply.
"""

from collections.abc import Callable
from typing import Any, NoReturn

from lingpipe.hyperparams.errors import ParamsTypeError


def _refusal(noun: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise ParamsTypeError(
            f"This {noun} belongs to frozen params and cannot change: {self!r}. "
            "Change a thawed copy instead: params = params.copy()."
        )

    return refuse


class FrozenList(list[Any]):
    """A list that refuses to change."""

    append = extend = insert = remove = pop = clear = sort = reverse = _refusal("list")
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refusal("list")

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


class FrozenDict(dict[str, Any]):
    """A dict that refuses to change."""

    update = pop = popitem = clear = setdefault = _refusal("dict")
    __setitem__ = __delitem__ = __ior__ = _refusal("dict")

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class Tree:
    """The marker base of `Params`, by which this package's lower files know a node."""

    def copy(self) -> "Tree":
        """A thawed deep copy."""
        raise NotImplementedError

    def freeze(self) -> "Tree":
        """Freezes the node and everything below; returns the node."""
        raise NotImplementedError


def frozen_value(value: Any) -> Any:
    """`value` with its lists and dicts made immutable; nodes inside are frozen where they are."""
    if isinstance(value, Tree):
        return value.freeze()
    if isinstance(value, list):
        return FrozenList(frozen_value(item) for item in value)
    if isinstance(value, tuple):
        return tuple(frozen_value(item) for item in value)
    if isinstance(value, dict):
        return FrozenDict({key: frozen_value(item) for key, item in value.items()})
    return value


def thawed_value(value: Any) -> Any:
    """A deep copy of `value` that shares nothing mutable with it and can be changed."""
    if isinstance(value, Tree):
        return value.copy()
    if isinstance(value, list):
        return [thawed_value(item) for item in value]
    if isinstance(value, tuple):
        return tuple(thawed_value(item) for item in value)
    if isinstance(value, dict):
        return {key: thawed_value(item) for key, item in value.items()}
    return value
