"""Paths: `model.layers[0].ffn.dropout`, from a root of params to one of its values.

A step is a field name, an index of a list (`layers[0]` or `layers.0`) or a key of a dict
(`weights['en-fr']` or `weights.en-fr`). Paths are printed in the form with brackets.
"""

import ast
import re
from dataclasses import dataclass
from typing import Any

from lingpipe.hyperparams.errors import ParamsNameError
from lingpipe.hyperparams.frozen import Tree
from lingpipe.hyperparams.names import suggestion

QUOTED = r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""
_STEP = re.compile(rf"\[\s*(?P<inner>{QUOTED}|[^\[\]'\"=]+?)\s*\]|(?P<dot>\.)?(?P<word>[\w-]+)")


def field_path(prefix: str, name: str) -> str:
    """The path of a field below `prefix`, which is empty at the root."""
    return f"{prefix}.{name}" if prefix else name


def split_path(text: str) -> tuple[list[str], str]:
    """The steps at the start of `text`, and what stands behind them."""
    steps: list[str] = []
    position = 0
    while match := _STEP.match(text, position):
        if match["word"] is not None and (match["dot"] is None) != (not steps):
            break
        step = match["word"] if match["inner"] is None else match["inner"]
        try:
            steps.append(str(ast.literal_eval(step)) if step[0] in "'\"" else step)
        except (SyntaxError, ValueError):  # An escape that no string has.
            break
        position = match.end()
    return steps, text[position:]


def steps_of(path: str) -> list[str]:
    """The steps of a whole path.

    Raises:
        ParamsNameError: it is no path.
    """
    steps, rest = split_path(path.strip())
    if rest or not steps:
        raise ParamsNameError(
            f"'{path}' is no path of a params field; write one such as model.layers[0].dropout."
        )
    return steps


@dataclass(frozen=True)
class Place:
    """Where a path leads: a field of a node, and the way on into the field's list or dict.

    Attributes:
        node: the params that own the field.
        name: the field.
        inner: indices and keys that lead from the field's value to the item meant.
        path: the whole path, in its printed form.
    """

    node: Any
    name: str
    inner: tuple[int | str, ...]
    path: str


def _item_step(value: Any, step: str, path: str) -> int | str:
    """`step` as an index or key that exists in the list, tuple or dict `value`."""
    if isinstance(value, dict):
        if step not in value:
            hint = suggestion(step, value, noun="keys")
            raise ParamsNameError(f"{path} has no key '{step}'; {hint}")
        return step
    if not re.fullmatch(r"[0-9]+", step):
        raise ParamsNameError(
            f"{path} holds a {'tuple' if isinstance(value, tuple) else 'list'}; "
            f"'{step}' is no index of it, write one such as {path}[0]."
        )
    if int(step) >= len(value):
        counted = f"{len(value)} item{'' if len(value) == 1 else 's'}"
        last = f"; the last is {path}[{len(value) - 1}]" if value else ""
        raise ParamsNameError(f"{path} has {counted} and no [{int(step)}]{last}.")
    return int(step)


def locate(root: Any, path: str) -> Place:
    """Follows a path from `root`.

    Raises:
        ParamsNameError: a step does not exist; the message has the path so far and the nearest.
    """
    node: Any = root
    name, here = "", ""
    inner: list[int | str] = []
    value: Any = root
    for step in steps_of(path):
        if isinstance(value, Tree):
            node, name, inner = value, step, []
            node.require_field(step, prefix=here)
            here = field_path(here, step)
            value = node.__dict__[step]
        elif isinstance(value, list | tuple | dict):
            key = _item_step(value, step, here)
            inner = [*inner, key]
            here = f"{here}[{key!r}]"
            value = value[key]  # type: ignore[index]
        else:
            raise ParamsNameError(
                f"{here} is {value!r} and has nothing inside, so there is no '{path}'; "
                f"set {here} itself first."
            )
    return Place(node=node, name=name, inner=tuple(inner), path=here)
