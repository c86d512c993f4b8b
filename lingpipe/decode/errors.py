"""What a search refuses: requests that no search could honour, such as more results than beams."""

from lingpipe.errors import UserError


class DecodeError(UserError, ValueError):
    """A request to a search that contradicts itself; the message says how to mend it."""
