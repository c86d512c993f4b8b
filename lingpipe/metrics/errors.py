"""What a metric refuses: numbers that would be wrong or mean nothing."""

from lingpipe.errors import UserError


class MetricsError(UserError, ValueError):
    """Inputs that cannot be scored; the message says how to mend them."""
