"""Import paths: which module a path means, and what is wrong with one that leads nowhere."""

from pathlib import Path

import pytest

from lingpipe.hyperparams.errors import MismatchError
from lingpipe.hyperparams.import_path import import_class, import_path, module_exists
from tests.hyperparams.samples import Model


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = tmp_path / "house_of_paths"
    house.mkdir()
    (house / "__init__.py").write_text("", encoding="utf-8")
    (house / "sound.py").write_text("class Owner:\n    class Params: pass\n", encoding="utf-8")
    (house / "broken.py").write_text("import no_such_module_anywhere\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_path_is_module_and_qualified_name() -> None:
    path = import_path(Model.Params)
    assert path == "tests.hyperparams.samples.Model.Params"
    assert import_class(path) is Model.Params


def test_a_module_is_found_without_being_imported() -> None:
    assert module_exists("house_of_paths.broken")
    assert module_exists("house_of_paths.sound")
    assert not module_exists("house_of_paths.absent")
    assert not module_exists("house_of_paths.sound.Owner")
    assert not module_exists("house_of_paths.absent.deeper")
    assert not module_exists("no_such_house.at_all")


def test_a_module_that_fails_is_told_apart_from_one_that_is_not_there() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        import_class("house_of_paths.broken.Owner")
    with pytest.raises(MismatchError, match="house_of_paths has no 'absent'"):
        import_class("house_of_paths.absent.Owner")
    with pytest.raises(MismatchError, match="there is no module 'no_such_house'"):
        import_class("no_such_house.Owner")


def test_a_misspelt_class_is_answered_with_the_nearest() -> None:
    with pytest.raises(MismatchError, match="did you mean 'house_of_paths.sound.Owner'"):
        import_class("house_of_paths.sound.Ownr.Params")
    with pytest.raises(MismatchError, match="has no 'Parms'; .*Owner.Params"):
        import_class("house_of_paths.sound.Owner.Parms")
