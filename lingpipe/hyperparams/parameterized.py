"""`Parameterized`: the mixin that ties a class to its params.

    class Linear(Parameterized):
        class Params(Parameterized.Params):
            dim: int = REQUIRED

        def __init__(self, params: Params) -> None: ...

`Linear.Params.owner` is `Linear`, so `Linear.Params(dim=3).build()` makes one. A class without a
`Params` in its own body gets one derived from its parent's, so that its params build itself and
not the parent. The mixin has no metaclass and combines with `tf.Module`.
"""

from typing import Any

from lingpipe.hyperparams import params as _params
from lingpipe.hyperparams.errors import ParamsTypeError


class Parameterized:
    """A class that is built from params of its own."""

    class Params(_params.Params):
        """The params of a Parameterized; subclasses nest a subclass of their parent's."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        bases = _params_of_bases(cls)
        own = cls.__dict__.get("Params")
        if own is None:
            _derive(cls, bases, f"Params of {cls.__qualname__}.")
        elif not (isinstance(own, type) and issubclass(own, _params.Params)):
            raise ParamsTypeError(
                f"{cls.__qualname__}.Params must be a class derived from the params of its "
                f"parent; write 'class Params({bases[0].__qualname__}):'."
            )
        elif missing := [base for base in bases if not issubclass(own, base)]:
            raise ParamsTypeError(
                f"{cls.__qualname__}.Params must derive from {missing[0].__qualname__}, the params "
                f"of its parent; write 'class Params({missing[0].__qualname__}):'."
            )
        elif "owner" in own.__dict__:  # Another class's params under a second name.
            _derive(cls, [own], own.__doc__)
        else:
            own.owner = cls


def _params_of_bases(cls: type) -> list[type[_params.Params]]:
    """The params of the parents, less those that another one derives from."""
    every: list[type[_params.Params]] = []
    for base in cls.__bases__:
        found = getattr(base, "Params", None)
        if isinstance(found, type) and issubclass(found, _params.Params) and found not in every:
            every.append(found)
    return [p for p in every if not any(p is not other and issubclass(other, p) for other in every)]


def _derive(cls: Any, bases: list[type[_params.Params]], doc: str | None) -> None:
    """Gives `cls` params of its own, with the fields of `bases`."""
    body = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.Params"}
    cls.Params = type("Params", tuple(bases), {**body, "__doc__": doc, "owner": cls})


Parameterized.Params.owner = Parameterized
