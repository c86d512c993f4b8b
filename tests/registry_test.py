"""The registry: one module imported for one name, and a listing that imports nothing."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingpipe.errors import UserError
from lingpipe.hyperparams import Params, ParamsTypeError
from lingpipe.registry import (
    ModelImportError,
    UnknownModelError,
    lookup,
    name_of,
    register,
    registered_names,
)

HOUSE = Path(__file__).parents[1]
ROOT = "catalogue_of_models"

MULTILINGUAL = '''
"""Two models and their parent."""
from lingpipe.hyperparams import Params
from lingpipe.registry import register


class Multilingual(Params):
    """The parent, which is no model itself."""

    num_layers: int = 2


@register
class Tiny(Multilingual):
    """Two languages, two layers.

    More about it.
    """

    num_layers = 3


@register
class Large(Multilingual):
    num_layers = 64


class Forgotten(Tiny):
    """Derives from a registered model, yet is none."""


def helper() -> None:
    """No class."""
'''


@pytest.fixture(autouse=True)
def _catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    files = {
        f"{ROOT}/__init__.py": "",
        f"{ROOT}/mt/__init__.py": "",
        f"{ROOT}/mt/multilingual.py": MULTILINGUAL,
        f"{ROOT}/lm/aliased.py": (
            "from lingpipe import registry\n"
            "from lingpipe.registry import register as mark\n"
            "from lingpipe.hyperparams import Params\n\n\n"
            "@mark\nclass One(Params):\n    '''One.'''\n\n\n"
            "@registry.register\nclass Two(Params):\n    '''Two.'''\n"
        ),
        f"{ROOT}/lm/bystander.py": (
            "def register(cls):\n    return cls\n\n\n@register\nclass Other:\n    '''Not ours.'''\n"
        ),
        f"{ROOT}/not-a-module/x.py": MULTILINGUAL,
        f"{ROOT}/image/lacking.py": "\nimport no_such_package\nregister = None\n",
        f"{ROOT}/image/lacking_deeply.py": f"import {ROOT}.image.lacking\n",
        f"{ROOT}/image/misspelt.py": MULTILINGUAL.replace("num_layers = 64", "NUM_LAYER = 64"),
        "project_of_a_user/__init__.py": "",
        "project_of_a_user/params.py": MULTILINGUAL,
        "project_of_a_user/faulty.py": "def broken(:\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] in (ROOT, "project_of_a_user")]:
        del sys.modules[name]


def test_a_name_finds_its_class_and_imports_its_module_only() -> None:
    model = lookup("mt.multilingual.Tiny", root=ROOT)
    assert model().num_layers == 3
    assert name_of(model, root=ROOT) == "mt.multilingual.Tiny"
    assert f"{ROOT}.lm.aliased" not in sys.modules


def test_the_whole_path_of_a_name_works_too() -> None:
    whole = lookup(f"{ROOT}.mt.multilingual.Tiny", root=ROOT)
    assert whole is lookup("mt.multilingual.Tiny", root=ROOT)


def test_a_users_own_module_works() -> None:
    model = lookup("project_of_a_user.params.Tiny", root=ROOT)
    assert name_of(model, root=ROOT) == "project_of_a_user.params.Tiny"
    assert model().num_layers == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "mt.multilingual.Tinny",
            r"has no class 'Tinny'; did you mean 'mt\.multilingual\.Tiny' or",
        ),
        ("mt.multilingual.tiny", r"did you mean 'mt\.multilingual\.Tiny' or"),
        ("mt.multilingal.Tiny", r"no model 'mt\.multilingal\.Tiny'; did you mean 'mt\.multiling"),
        ("Tiny", r"no model 'Tiny'; did you mean '.*Tiny' or 'mt\.multilingual\.Tiny'\?"),
        ("project_of_a_user.params.Tin", r"did you mean 'project_of_a_user\.params\.Tiny'"),
        ("zzz", r"There is no model 'zzz'; 'lingpipe params --list' prints every model\."),
        ("", "There is no model ''"),
        ("a..b", r"There is no model 'a\.\.b'"),
        (".a", r"There is no model '\.a'"),
        ("mt/multilingual.Tiny", "There is no model"),
        ("no_such_project.params.Tiny", "There is no model 'no_such_project.params.Tiny'"),
        ("mt.multilingual.Tiny.num_layers", "There is no model"),
        ("mt.multilingual.helper", "'mt.multilingual.helper' is no model: a model is a class of"),
        ("mt.multilingual.Forgotten", r"a params class, but no registered model; write @register"),
        ("mt.multilingual.Multilingual", "above 'class Multilingual', or choose a subclass of it"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_and_where_to_look(
    name: str, words: str
) -> None:
    with pytest.raises(UnknownModelError, match=words) as caught:
        lookup(name, root=ROOT)
    assert isinstance(caught.value, UserError)
    assert "'lingpipe params --list' prints every model." in str(caught.value)


@pytest.mark.parametrize("module", ["lacking", "lacking_deeply"])
def test_an_import_that_fails_inside_the_module_is_shown_as_such(module: str) -> None:
    with pytest.raises(
        ModelImportError,
        match=rf"{ROOT}\.image\.{module} exists, but importing it fails in .*lacking\.py, "
        r"line 2: ModuleNotFoundError: No module named 'no_such_package'",
    ):
        lookup(f"image.{module}.Tiny", root=ROOT)


def test_a_module_that_is_no_python_is_shown_as_such() -> None:
    with pytest.raises(ModelImportError, match=r"faulty\.py, line 1: SyntaxError"):
        lookup("project_of_a_user.faulty.Tiny", root=ROOT)


def test_a_misspelt_field_inside_the_module_is_shown_as_such() -> None:
    with pytest.raises(
        ModelImportError,
        match=r"misspelt\.py, line \d+: ParamsNameError: .*NUM_LAYER = 64 overrides no field; did",
    ):
        lookup("image.misspelt.Large", root=ROOT)


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("class A:\n    width = WIDTH\n", 2, "NameError: name 'WIDTH' is not defined"),
        ("import json\n\nLIMITS = json.loads('{')\n", 3, "JSONDecodeError: Expecting property"),
        ("from lingpipe.registry import nothing\n", 1, "ImportError: cannot import name 'nothing'"),
        ("\nassert False\n", 2, "AssertionError$"),
        ("from lingpipe.registry import register\nregister(3)\n", 2, "ParamsTypeError: @register"),
        ("def f():\n    return 1 / 0\n\n\nf()\n", 2, "ZeroDivisionError: division by zero"),
        ("from pathlib import Path\nPath('/no/such').read_text()\n", 2, "FileNotFoundError: "),
    ],
)
def test_whatever_a_module_raises_is_told_with_its_own_line(
    tmp_path: Path, source: str, line: int, words: str
) -> None:
    file = tmp_path / "project_of_a_user" / "raising.py"
    file.write_text(source)
    start = "The module project_of_a_user.raising exists, but importing it fails in "
    with pytest.raises(ModelImportError, match=rf"^{start}{file}, line {line}: {words}"):
        lookup("project_of_a_user.raising.Tiny", root=ROOT)


def test_the_line_of_a_package_that_fails_is_that_of_its_own_file(tmp_path: Path) -> None:
    file = tmp_path / "project_of_a_user" / "__init__.py"
    file.write_text("x = 1\ny = x.z\n")
    with pytest.raises(ModelImportError, match=rf"in {file}, line 2: AttributeError: "):
        lookup("project_of_a_user.params.Tiny", root=ROOT)


def test_the_listing_names_every_registered_model_with_the_first_line_of_its_docstring() -> None:
    assert registered_names(ROOT) == {
        "image.misspelt.Tiny": "Two languages, two layers.",
        "image.misspelt.Large": "",
        "lm.aliased.One": "One.",
        "lm.aliased.Two": "Two.",
        "mt.multilingual.Tiny": "Two languages, two layers.",
        "mt.multilingual.Large": "",
    }


def test_the_listing_imports_nothing() -> None:
    registered_names(ROOT)
    assert not [name for name in sys.modules if name.startswith(f"{ROOT}.")]


def test_every_listed_model_of_a_module_can_be_looked_up() -> None:
    for name in registered_names(ROOT):
        if not name.startswith("image."):
            assert name_of(lookup(name, root=ROOT), root=ROOT) == name


def test_a_file_that_cannot_be_parsed_is_named(tmp_path: Path) -> None:
    (tmp_path / ROOT / "mt" / "half.py").write_text("@register\nclass (", encoding="utf-8")
    with pytest.raises(ModelImportError, match=r"half\.py cannot be read: .*line 2"):
        registered_names(ROOT)
    with pytest.raises(UnknownModelError, match="There is no model 'mt.other.Tiny'"):
        lookup("mt.other.Tiny", root=ROOT)


def test_a_missing_package_is_named_with_advice() -> None:
    with pytest.raises(UnknownModelError, match="no package 'no_such_catalogue' to list models"):
        registered_names("no_such_catalogue")


def test_only_params_classes_at_the_top_of_a_module_are_registered() -> None:
    with pytest.raises(ParamsTypeError, match="@register takes a params class, not <class 'int'>"):
        register(int)  # type: ignore[type-var]
    with pytest.raises(
        ParamsTypeError, match="takes a class at the top of its module, not .*Inner"
    ):

        @register
        class Inner(Params):
            """Stands inside a function."""


def test_the_listing_works_from_any_directory_and_is_quick(tmp_path: Path) -> None:
    program = (
        "import sys, lingpipe.registry as r; names = r.registered_names(); "
        "assert not {'tensorflow', 'params'} & set(sys.modules), 'imported'; print(len(names))"
    )
    environment = {**os.environ, "PYTHONPATH": str(HOUSE)}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - start < 2
