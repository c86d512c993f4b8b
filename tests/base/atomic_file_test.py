"""A written file is whole or not there."""

from pathlib import Path

import pytest

from lingpipe.base.atomic_file import check_can_be_written, write_atomically
from lingpipe.base.output import WriteError
from lingpipe.errors import UserError


def test_it_makes_the_folder_and_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WriteError, match=r"^Cannot write .*file: No space left on device\.$"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Cannot write .*: (File exists|Not a directory)"):
        write_atomically(tmp_path / "file" / "below", b"")


def test_that_a_file_can_be_written_is_found_out_without_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "file"
    check_can_be_written(path)
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"old")
    check_can_be_written(path)
    assert path.read_bytes() == b"old"


def test_a_missing_folder_and_a_folder_in_its_place_are_told(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"^Cannot write .*/b: No such file or directory\.$"):
        check_can_be_written(tmp_path / "a" / "b")
    with pytest.raises(WriteError, match=r"^Cannot write .*: Is a directory\.$"):
        check_can_be_written(tmp_path)
