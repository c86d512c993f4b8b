"""`lingpipe VERB ...`, the same as `python -m lingpipe VERB ...`.

Exit codes: 0 done; 2 a mistake that the user can mend (one message, no traceback); 75 interrupted
by SIGTERM or SIGINT with the state saved; 1 anything else.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from lingpipe.bin.parser import build_parser
from lingpipe.bin.quiet_import import import_quietly
from lingpipe.errors import UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns its exit code.

    Args:
      argv: arguments after the program's name; None takes those of the process.
    """
    _open_closed_streams()
    arguments = build_parser().parse_args(argv)
    _find_modules_here()
    try:
        verb = import_quietly(f"lingpipe.bin.{arguments.verb}")
        code: int = verb.run(arguments)
        return code
    except UserError as error:
        print(f"lingpipe {arguments.verb}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"lingpipe {arguments.verb}: interrupted.", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone (`lingpipe decode ... | head`): nothing is left to say.
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        # A path that the user named, or one below it, that may not be looked at.
        message = f"Cannot use {error.filename}: {error.strerror}."
        print(f"lingpipe {arguments.verb}: {message}", file=sys.stderr)
        return 2
    finally:
        _settle_output()


def _open_closed_streams() -> None:
    """Fills the places of standard streams that were closed (`>&-`).

    The next file that is opened would otherwise take the place, and get what is meant for stdout.
    What stands there now fails when it is used, but for stderr, which nobody wants to read.
    """
    streams = (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    for number, (name, flags) in enumerate(streams):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, flags)
            os.dup2(descriptor, number)
            if descriptor != number:
                os.close(descriptor)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _settle_output() -> None:
    """Writes what is left for stdout; where that cannot be, Python shall not complain at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _find_modules_here() -> None:
    """Lets `--model=my_project.params.MyModel` name a module in the working directory.

    `python -m lingpipe` looks there by itself, the installed `lingpipe` does not. The directory is
    the last to be searched, so that no file in it can stand in for a module of another package.
    """
    if sys.flags.safe_path:
        return
    with contextlib.suppress(FileNotFoundError):  # A directory that has been deleted holds none.
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())


if __name__ == "__main__":
    sys.exit(main())
