"""The one family of errors that a user can mend.

Everything that goes wrong because of what a user wrote (a params field, a flag, a corpus folder) is
raised as a `UserError` or a subclass. The command line prints such an error as one message, without
a traceback, and exits with code 2; any other exception is a fault of ours or of the machine.
"""


class UserError(Exception):
    """A mistake that the user can mend: the message says what is wrong, the values, what to do."""
