"""Import paths: the dotted name of a class (`module.Owner.Params`), written and followed.

Following a path imports the one module that it names. A module that does not exist and a module
that fails while being imported are different mistakes, and are told apart.
"""

import importlib
import importlib.util
from typing import Any

from lingpipe.hyperparams.errors import MismatchError
from lingpipe.hyperparams.names import suggestion


def import_path(cls: type) -> str:
    """`module.Owner.Params` for a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def module_exists(name: str) -> bool:
    """Whether a module can be found; its parent packages are imported, it is not.

    Raises:
        ImportError: a parent package exists and fails while being imported.
    """
    parent, _, _ = name.rpartition(".")
    if parent and not module_exists(parent):
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            return False  # The parent is a plain module, which holds no modules.
        raise
    except ValueError:
        return True  # Imported already, but without a spec, such as __main__.


def import_class(path: str) -> Any:
    """What stands at the dotted `path`: the longest module in it, then attributes.

    Raises:
        MismatchError: no such module or no such class; the message names the nearest class.
        Exception: whatever the module itself raises while being imported.
    """
    parts = path.split(".")
    if "<locals>" in parts:
        raise MismatchError(
            f"{path} is a class inside a function, which cannot be imported; "
            "define it at the top of its module"
        )
    for cut in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:cut])
        if module_exists(name):
            break
    else:
        raise MismatchError(f"{path} cannot be imported: there is no module '{parts[0]}'")
    found: Any = importlib.import_module(name)
    for position, part in enumerate(parts[cut:], start=cut):
        if not hasattr(found, part):
            here = ".".join(parts[:position])
            classes = [key for key, value in vars(found).items() if isinstance(value, type)]
            hint = suggestion(part, classes, prefix=here + ".", noun="classes")
            raise MismatchError(f"{path} cannot be imported: {here} has no '{part}'; {hint}")
        found = getattr(found, part)
    return found
