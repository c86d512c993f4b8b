"""The errors that params raise: all are mistakes a user can mend, and all say where and how.

`ParamsError` is the family. It is a `UserError`, so the command line prints it as one message and
exits with 2, and a `ValueError`, so plain Python code can catch it as usual. Its two children are
also the built-in error that Python itself would raise for such a mistake.
"""

from lingpipe.errors import UserError


class ParamsError(UserError, ValueError):
    """Params that cannot be used as they stand: inconsistent, frozen, required or unreadable."""


class ParamsTypeError(ParamsError, TypeError):
    """A value whose type is not the one that its field declares."""


class ParamsNameError(ParamsError, AttributeError):
    """A field, key, index or class that does not exist; the message gives the nearest name."""


class MismatchError(Exception):
    """A value or text that does not fit a kind; raised inside this package, never out of it.

    `path` leads from the field's value to the item at fault (`[2]['en']`); whoever knows the full
    path of the field turns a mismatch into a `ParamsTypeError`.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path

    def inside(self, step: str) -> "MismatchError":
        """The same mismatch seen from one level further out."""
        return MismatchError(self.message, step + self.path)
