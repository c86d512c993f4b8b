"""What the command line owes to a user who made a mistake: one clear message, and no damage."""

from pathlib import Path

import pytest

from lingpipe.__main__ import main


def refusal(capfd: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Runs a command that must be refused and returns its message.

    The exit code is 2, there is no traceback, and stdout stays empty.
    """
    capfd.readouterr()
    try:
        code = main([str(word) for word in arguments])
    except SystemExit as end:  # What the parser refuses.
        assert isinstance(end.code, int)
        code = end.code
    out, err = capfd.readouterr()
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    assert err.startswith(("lingpipe ", "usage: lingpipe"))
    return err


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every entry below a folder: its relative name, and its content if it is a file."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }
