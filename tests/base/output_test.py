"""What cannot be written is named, whether it is opened, written or closed."""

import sys
from pathlib import Path

import pytest

from lingpipe.base.output import WriteError, output_to, write_result
from lingpipe.errors import UserError

FULL = Path("/dev/full")  # Takes nothing, like a disk without space.


def test_a_full_disk_is_named_also_where_only_closing_writes() -> None:
    with (
        pytest.raises(WriteError, match=r"^Cannot write /dev/full: No space left on device\.$"),
        output_to(FULL) as output,
    ):
        output.write(b"small enough for the buffer")


def test_a_large_write_to_a_full_disk_is_named() -> None:
    with (
        pytest.raises(WriteError, match="Cannot write x: No space"),
        output_to(FULL, Path("x")) as out,
    ):
        out.write(b"x" * 1_000_000)


def test_what_goes_wrong_elsewhere_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    """Not even an error of the same kind, such as that of a file being read meanwhile."""
    with pytest.raises(FileNotFoundError, match="missing"), output_to(tmp_path / "file"):
        (tmp_path / "missing").read_bytes()


def test_standard_output_has_a_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    file = FULL.open("w")
    monkeypatch.setattr(sys, "stdout", file)
    with pytest.raises(UserError, match="Cannot write standard output: No space left"):
        write_result("result\n")
    with pytest.raises(OSError, match="No space left"):
        file.close()
