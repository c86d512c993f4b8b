"""Imports point down: no room of the house imports from a room above it.

The table below is the whole rule. The tests read every import of the sources without running them,
inside functions and under TYPE_CHECKING too; two more start a fresh Python to see that what must
not load TensorFlow does not, however indirectly.
"""

import ast
import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HOUSE = Path(__file__).parents[1]
ROOTS = ("lingpipe", "tasks", "params", "tools")

_FOUNDATION = "errors hyperparams base"
_MACHINERY = f"{_FOUNDATION} registry layers pipeline cluster learner input decode metrics"

# Room -> the rooms that it may import besides itself. A name without a dot is a room of lingpipe,
# one that ends in a dot a root beside it.
MAY_IMPORT = {
    "errors": "",
    "hyperparams": "errors",
    "registry": "errors hyperparams",
    "base": "errors hyperparams",
    "layers": _FOUNDATION,
    "learner": _FOUNDATION,
    "input": _FOUNDATION,
    "decode": _FOUNDATION,
    "metrics": _FOUNDATION,
    "cluster": _FOUNDATION,
    "pipeline": f"{_FOUNDATION} cluster learner",
    "task": _MACHINERY,
    "runtime": f"{_MACHINERY} task",
    "bin": f"{_MACHINERY} task runtime",
    "__main__": "errors bin",
    "tasks.": f"{_MACHINERY} task",
    "params.": f"{_MACHINERY} task tasks.",
    "tools.": f"{_MACHINERY} task runtime bin tasks. params.",
}

# Modules (a package stands for all its modules) that import the standard library and each other
# only, so that they are tested in milliseconds and load no TensorFlow.
PURE = (
    "lingpipe.errors",
    "lingpipe.hyperparams",
    "lingpipe.registry",
    "lingpipe.base.atomic_file",
    "lingpipe.base.cost",
    "lingpipe.base.output",
    "lingpipe.base.spec",
    "lingpipe.cluster.placement",
    "lingpipe.learner.loss_scale",
    "lingpipe.learner.schedules",
    "lingpipe.pipeline.keeping",
    "lingpipe.pipeline.memory",
    "lingpipe.pipeline.memory_limits",
    "lingpipe.pipeline.partitioner",
    "lingpipe.pipeline.plan",
    "lingpipe.pipeline.pipeline_params",
    "lingpipe.pipeline.planning",
    "lingpipe.pipeline.routes",
    "lingpipe.pipeline.schedule",
    "lingpipe.pipeline.schedules",
    "lingpipe.pipeline.shares",
    "lingpipe.pipeline.simulate",
    "lingpipe.pipeline.timeline",
    "lingpipe.task.decode_options",
    "lingpipe.task.model_params",
    "lingpipe.bin.parser",
    "lingpipe.bin.quiet_import",
    "lingpipe.__main__",
)


# Modules that may import any package but TensorFlow.
WITHOUT_TENSORFLOW = ("lingpipe.input",)

# Packages whose name is not that of their module.
IMPORT_NAMES = {"absl-py": "absl"}


@dataclasses.dataclass(frozen=True)
class Import:
    """One import statement's module, or `import_module("...")` with the name written out."""

    file: str
    line: int
    importer: str
    target: str
    is_for_types_only: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.importer} imports {self.target}"


def imports(house: Path) -> Iterator[Import]:
    """Every import that the sources under `house` make."""
    for root in ROOTS:
        for path in sorted((house / root).rglob("*.py")):
            yield from _imports_of(path, house)


def upward_arrows(house: Path) -> list[str]:
    """The imports of the house's own modules that `MAY_IMPORT` does not allow."""
    faults = []
    for item in imports(house):
        if item.target.split(".")[0] not in ROOTS:
            continue
        room, target = _room(item.importer), _room(item.target)
        if room in ("", target) or target == "":
            continue
        if room not in MAY_IMPORT:
            faults.append(f"{item}: the room {room!r} is not in MAY_IMPORT; give it its place")
        elif target not in MAY_IMPORT[room].split():
            allowed = MAY_IMPORT[room] or "nothing of the house"
            faults.append(f"{item}: {room} may import {allowed}, not {target}")
    return faults


def impurities(house: Path) -> list[str]:
    """The imports of pure modules that are neither of the standard library nor pure."""
    return [
        str(item)
        for item in imports(house)
        if _is_pure(item.importer)
        and not item.is_for_types_only
        and item.target.split(".")[0] not in sys.stdlib_module_names
        and not _is_pure(item.target)
    ]


def tensorflow_imports_of_params(house: Path) -> list[str]:
    """The imports of TensorFlow or Keras under params/."""
    return [
        str(item)
        for item in imports(house)
        if item.importer.split(".")[0] == "params"
        and item.target.split(".")[0] in ("tensorflow", "keras")
    ]


def undeclared(house: Path) -> list[str]:
    """The imports of packages that requirements.txt does not name, nor an optional one's file."""
    declared: set[str] = set()
    for file in ("requirements.txt", "requirements-tensorboard.txt"):
        for line in (house / file).read_text(encoding="utf-8").splitlines():
            name = re.match(r"[\w.-]+", line)
            declared |= {IMPORT_NAMES.get(name[0], name[0].replace("-", "_"))} if name else set()
    known = {*ROOTS, *sys.stdlib_module_names, *declared}
    return [str(item) for item in imports(house) if item.target.split(".")[0] not in known]


def loads_tensorflow(modules: list[str], house: Path) -> str:
    """Imports `modules` in turn in a fresh Python; names the first that loads TensorFlow, or ''."""
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    if 'tensorflow' in sys.modules:\n"
        "        sys.exit(f'{name} loads TensorFlow')\n"
    )
    command = [sys.executable, "-c", program, *modules]
    # No check: what went wrong is the answer.
    done = subprocess.run(command, cwd=house, capture_output=True, text=True, check=False)
    return done.stderr.strip()


def _imports_of(path: Path, house: Path) -> Iterator[Import]:
    relative = path.relative_to(house)
    importer = _module(relative)
    package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    type_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        for target in _targets(node, package, house):
            yield Import(str(relative), node.lineno, importer, target, id(node) in type_only)


def _targets(node: ast.AST, package: str, house: Path) -> list[str]:
    """The modules that a node of the syntax tree imports, under their full names."""
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    if isinstance(node, ast.ImportFrom):
        up = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*up, *([node.module] if node.module else [])])
        # `from package import module` imports the module; `from module import name` does not.
        inner = [f"{base}.{name.name}" for name in node.names]
        return [name if _exists(name, house) else base for name in inner]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        return [
            argument.value
            for argument in node.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
    return []


def _module(relative: Path) -> str:
    parts = relative.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _exists(module: str, house: Path) -> bool:
    path = house.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _room(module: str) -> str:
    """The room of a module in the words of `MAY_IMPORT`; '' for lingpipe's own __init__."""
    root, *rest = module.split(".")
    if root != "lingpipe":
        return f"{root}."
    return rest[0] if rest else ""


def _is_pure(module: str) -> bool:
    return _is_within(module, PURE)


def _is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def _house_with(folder: Path, sources: dict[str, str]) -> Path:
    for name, text in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def listed(faults: list[str]) -> str:
    """One fault a line, for a failing assertion to show in full."""
    return "\n  ".join(["", *faults])


def test_imports_point_down() -> None:
    assert len(list(imports(HOUSE))) > 100, "hardly any import was found: wrong folder?"
    assert not (faults := upward_arrows(HOUSE)), listed(faults)


def test_the_table_itself_has_no_circle() -> None:
    for room, allowed in MAY_IMPORT.items():
        for other in allowed.split():
            assert room not in MAY_IMPORT[other].split(), f"{room} and {other} import each other"


def test_pure_modules_import_the_standard_library_only() -> None:
    assert [name for name in PURE if not _exists(name, HOUSE)] == []
    assert not (faults := impurities(HOUSE)), listed(faults)


def test_light_modules_load_no_tensorflow() -> None:
    light = (*PURE, *WITHOUT_TENSORFLOW)
    inside = {item.importer for item in imports(HOUSE) if _is_within(item.importer, light)}
    assert loads_tensorflow(sorted({*light, *inside}), HOUSE) == ""


def test_every_package_that_is_imported_is_declared() -> None:
    assert not (faults := undeclared(HOUSE)), listed(faults)


def test_params_do_not_import_tensorflow() -> None:
    assert not (faults := tensorflow_imports_of_params(HOUSE)), listed(faults)


def test_importing_all_params_loads_no_tensorflow() -> None:
    files = (path.relative_to(HOUSE) for path in (HOUSE / "params").rglob("*.py"))
    modules = sorted(_module(path) for path in files)
    assert modules, "there are no params"
    assert loads_tensorflow(modules, HOUSE) == ""


def test_an_upward_arrow_is_caught_however_it_is_written(tmp_path: Path) -> None:
    house = _house_with(
        tmp_path,
        {
            "lingpipe/layers/linear.py": "",
            "lingpipe/base/one.py": "import lingpipe.layers.linear",
            "lingpipe/base/two.py": "from lingpipe.layers.linear import Linear",
            "lingpipe/base/three.py": "def f():\n    from lingpipe import layers",
            "lingpipe/base/four.py": "from ..layers import linear",
            "lingpipe/base/five.py": "if TYPE_CHECKING:\n    from lingpipe.layers import linear",
            "lingpipe/base/six.py": "importlib.import_module('lingpipe.layers')",
            "lingpipe/base/fine.py": "import os\nfrom lingpipe.errors import UserError",
        },
    )
    faults = upward_arrows(house)
    assert [fault.split(":")[0].rpartition("/")[2] for fault in faults] == [
        f"{name}.py" for name in ("five", "four", "one", "six", "three", "two")
    ]
    assert faults[0] == (
        "lingpipe/base/five.py:2: lingpipe.base.five imports lingpipe.layers.linear: "
        "base may import errors hyperparams, not layers"
    )


def test_the_library_may_not_import_tasks_nor_the_pipeline_layers(tmp_path: Path) -> None:
    house = _house_with(
        tmp_path,
        {
            "lingpipe/runtime/trainer.py": "import tasks.mt.model",
            "lingpipe/pipeline/stage.py": "from lingpipe.layers.linear import Linear",
            "lingpipe/learner/learner.py": "from lingpipe.pipeline import executor",
            "lingpipe/pipeline/executor.py": "from lingpipe.learner import learner",
            "tasks/mt/model.py": "from lingpipe.layers.linear import Linear",
            "tools/plan.py": "import params.mt.multilingual",
        },
    )
    files = [fault.split(":")[0] for fault in upward_arrows(house)]
    assert files == [
        "lingpipe/learner/learner.py",
        "lingpipe/pipeline/stage.py",
        "lingpipe/runtime/trainer.py",
    ]


def test_a_room_without_a_place_in_the_table_is_caught(tmp_path: Path) -> None:
    house = _house_with(tmp_path, {"lingpipe/attic/box.py": "import lingpipe.errors"})
    assert "'attic' is not in MAY_IMPORT" in upward_arrows(house)[0]


def test_an_impure_import_is_caught_and_one_for_types_is_not(tmp_path: Path) -> None:
    house = _house_with(
        tmp_path,
        {
            "lingpipe/pipeline/plan.py": "import json\nimport numpy",
            "lingpipe/pipeline/schedule.py": "if typing.TYPE_CHECKING:\n    import numpy",
            "params/mt/multilingual.py": "def f():\n    import tensorflow as tf",
        },
    )
    assert impurities(house) == [
        "lingpipe/pipeline/plan.py:2: lingpipe.pipeline.plan imports numpy"
    ]
    assert tensorflow_imports_of_params(house) == [
        "params/mt/multilingual.py:2: params.mt.multilingual imports tensorflow"
    ]


def test_a_package_that_is_not_declared_is_caught(tmp_path: Path) -> None:
    house = _house_with(
        tmp_path,
        {
            "requirements.txt": "# Needed.\nabsl-py>=2\ntensorflow-datasets>=4  # Data.\n",
            "requirements-tensorboard.txt": "tensorboard\n",
            "lingpipe/input/a.py": "import absl.flags, tensorflow_datasets, tensorboard, os, tasks",
            "lingpipe/input/b.py": "from absl import app\nimport grain",
        },
    )
    assert undeclared(house) == ["lingpipe/input/b.py:2: lingpipe.input.b imports grain"]


def test_tensorflow_loaded_by_way_of_another_module_is_caught(tmp_path: Path) -> None:
    house = _house_with(tmp_path, {"a.py": "import b", "b.py": "import tensorflow"})
    (tmp_path / "tensorflow.py").write_text("", encoding="utf-8")
    assert loads_tensorflow(["a"], house) == "a loads TensorFlow"
    assert loads_tensorflow(["json"], house) == ""
