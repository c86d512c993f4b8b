"""`REQUIRED`: the default of a field that somebody must still set.

It is typed `Any`, so that `width: int = REQUIRED` satisfies type checkers. It is the one member of
an enum, and therefore the same single object after `copy.deepcopy` and `pickle`.
"""

import enum
from typing import Any


class Required(enum.Enum):
    """The type of `REQUIRED`."""

    REQUIRED = "REQUIRED"

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = Required.REQUIRED
