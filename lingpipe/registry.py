"""Named models: `@register` on a params class, `lookup` by name, and a listing of all names.

    # params/mt/multilingual.py
    @register
    class Tiny(Multilingual):
        \"\"\"Two languages, two layers: a minute on a laptop.\"\"\"
        num_layers = 2

    lookup("mt.multilingual.Tiny")          # imports params.mt.multilingual and nothing beside it
    lookup("my_project.params.MyModel")     # a user's own module

There is no table that imports fill: a name *is* where the class stands, its module without a
leading `params.` and its own name. `lookup` imports the one module that a name needs, and
`registered_names` reads the source files below `params/` without importing any.
"""

import ast
import difflib
import importlib
import importlib.util
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from lingpipe.errors import UserError
from lingpipe.hyperparams import Params, ParamsTypeError
from lingpipe.hyperparams.import_path import module_exists

ROOT = "params"  # The package that names leave out.
P = TypeVar("P", bound=Params)


class UnknownModelError(UserError, LookupError):
    """No registered model has the name; the message gives the nearest ones."""


class ModelImportError(UserError, ImportError):
    """The module of a model exists and fails while being imported or read."""


def register(model: type[P]) -> type[P]:
    """Marks a params class as a model that `--model` can name.

    Raises:
        ParamsTypeError: not a params class, or one inside another class or a function.
    """
    if not (isinstance(model, type) and issubclass(model, Params)):
        raise ParamsTypeError(f"@register takes a params class, not {model!r}.")
    if "." in model.__qualname__:
        raise ParamsTypeError(
            f"@register takes a class at the top of its module, not {model.__qualname__}."
        )
    model._registered = True  # type: ignore[attr-defined]
    return model


def name_of(model: type[Params], root: str = ROOT) -> str:
    """The name by which `lookup` finds a registered class."""
    return f"{model.__module__}.{model.__qualname__}".removeprefix(f"{root}.")


def lookup(name: str, root: str = ROOT) -> type[Any]:
    """The registered params class called `name`, importing its module only.

    Args:
        name: `mt.multilingual.Tiny` for a class in `params.mt.multilingual`, or the whole import
            path of a class in a module of the user's own.
        root: the package that names leave out.

    Raises:
        UnknownModelError: there is no such module or class, or the class is not registered.
        ModelImportError: the module fails while being imported, in whatever way.
    """
    module_name, _, class_name = name.rpartition(".")
    module = _module(module_name, root) if module_name and class_name else None
    if module is None:
        raise UnknownModelError(f"There is no model '{name}'; {_advice(name, root)}")
    found = getattr(module, class_name, None)
    if found is None:
        raise UnknownModelError(
            f"There is no model '{name}': the module {module.__name__} has no class "
            f"'{class_name}'; {_advice(name, root, module)}"
        )
    if not (isinstance(found, type) and issubclass(found, Params)):
        raise UnknownModelError(
            f"'{name}' is no model: a model is a class of params, derived from ModelParams and "
            f"marked with @register; {_advice(name, root, module)}"
        )
    if not _is_registered(found):
        raise UnknownModelError(
            f"'{name}' is a params class, but no registered model; write @register (from "
            f"lingpipe.registry) above 'class {class_name}', or choose a subclass of it: "
            f"{_advice(name, root, module)}"
        )
    return found


def _is_registered(found: Any) -> bool:
    """Whether the class itself, not a parent, is marked."""
    return isinstance(found, type) and "_registered" in found.__dict__


def _module(name: str, root: str) -> Any:
    """The module that a model's name means, or None if there is none."""
    for candidate in (f"{root}.{name}", name):
        try:
            if all(part.isidentifier() for part in name.split(".")) and module_exists(candidate):
                return importlib.import_module(candidate)
        except (Exception, SystemExit) as error:  # The module is the user's, and may do anything.
            words = ": ".join(filter(None, (type(error).__name__, str(error))))
            raise ModelImportError(
                f"The module {candidate} exists, but importing it fails in {_where(error)}: {words}"
            ) from error
    return None


def _where(error: BaseException) -> str:
    """The file and line at which an import failed: the innermost that is the user's own.

    Where none is, as in an installed package, it is the innermost outside the import machinery.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    written = [frame for frame in frames if "importlib" not in frame.filename]
    own = [frame for frame in written if not _is_of_library(frame.filename)]
    innermost = (own or written)[-1]  # At least this file's call of the import.
    return f"{innermost.filename}, line {innermost.lineno}"


def _is_of_library(file: str) -> bool:
    """Whether a file is Python's, an installed package's or lingpipe's."""
    paths = sysconfig.get_paths()
    folders = [paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    return any(map(Path(file).is_relative_to, [*folders, str(Path(__file__).parent)]))


def _advice(name: str, root: str, module: Any = None) -> str:
    """The nearest registered names, and how to see all."""
    try:
        known = list(registered_names(root))
    except UserError:  # A broken file or no package: the listing says so, this message does not.
        known = []
    if module is not None:
        known += [name_of(v, root) for v in vars(module).values() if _is_registered(v)]
    lower = {one.lower(): one for one in dict.fromkeys(known)}
    last = name.rpartition(".")[2].lower()
    near = [lower[key] for key in difflib.get_close_matches(name.lower(), lower, n=2, cutoff=0.7)]
    near += [one for key, one in lower.items() if key.rpartition(".")[2] == last]
    names = " or ".join(f"'{one}'" for one in list(dict.fromkeys(near))[:3])
    hint = f"did you mean {names}? " if names else ""
    return f"{hint}'lingpipe params --list' prints every model."


def registered_names(root: str = ROOT) -> dict[str, str]:
    """Every registered model below the package `root`, with the first line of its docstring.

    The order is that of the modules' names, then that of the source. Nothing is imported: the
    source files are parsed, so the listing takes no TensorFlow.

    Raises:
        UnknownModelError: there is no package `root`.
        ModelImportError: a file cannot be read or parsed.
    """
    spec = importlib.util.find_spec(root) if module_exists(root) else None
    if spec is None or not spec.submodule_search_locations:
        raise UnknownModelError(
            f"There is no package '{root}' to list models of; install lingpipe with "
            "'pip install -e .', or run from its checkout."
        )
    result: dict[str, str] = {}
    for folder in dict.fromkeys(spec.submodule_search_locations):
        for file in sorted(Path(folder).rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            if all(part.isidentifier() for part in parts):
                result.update(_registered_in(file, ".".join(parts)))
    return result


def _registered_in(file: Path, module: str) -> Iterator[tuple[str, str]]:
    """Name and summary of the registered classes at the top of one source file."""
    try:
        source = file.read_text(encoding="utf-8")
        if "register" not in source:
            return
        tree = ast.parse(source, filename=str(file))
    except (OSError, SyntaxError, ValueError) as error:
        raise ModelImportError(f"{file} cannot be read: {error}") from error
    marks = _names_of_register(tree)
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and any(
            ast.unparse(decorator) in marks for decorator in statement.decorator_list
        ):
            doc = (ast.get_docstring(statement) or "").strip()
            name = f"{module}.{statement.name}" if module else statement.name
            yield name, doc.split("\n", 1)[0]


def _names_of_register(tree: ast.Module) -> set[str]:
    """How the module's imports let it write `register`."""
    names = set()
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom | ast.Import):
            source = getattr(statement, "module", None)
            for alias in statement.names:
                whole = f"{source}.{alias.name}" if source else alias.name
                if whole == "lingpipe.registry.register":
                    names.add(alias.asname or alias.name)
                elif whole == "lingpipe.registry":
                    names.add(f"{alias.asname or alias.name}.register")
    return names
