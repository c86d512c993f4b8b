"""Words for error messages: the nearest name to a misspelt one, and names listed for reading."""

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that `name` most likely stands for, or None if none is near."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def listed(names: Iterable[str], limit: int = 12) -> str:
    """`a, b, c`, cut short after `limit` names."""
    every = list(names)
    shown = ", ".join(every[:limit])
    return f"{shown}, ... ({len(every)} in all)" if len(every) > limit else shown or "none"


def suggestion(name: str, names: Iterable[str], prefix: str = "", noun: str = "fields") -> str:
    """The end of a message about an unknown name: the nearest one, else what there is."""
    every = list(names)
    near = nearest(name, every)
    if near is not None:
        return f"did you mean '{prefix}{near}'?"
    return f"its {noun} are: {listed(every)}."
