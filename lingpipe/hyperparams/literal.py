"""Literals: text such as `[1, 'a', None]` read into plain values and written, without `eval`.

The reader takes Python's literals and, beyond them, the names `inf`, `nan`, `true`, `false` and
`null`, so that JSON is understood too. Only lists, tuples, dicts with string keys, strings, numbers
and those names exist; anything else is a `MismatchError`.
"""

import ast
import json
import math
import warnings
from typing import Any

from lingpipe.hyperparams.errors import MismatchError

_NAMES = {
    "true": True,
    "false": False,
    "null": None,
    "inf": math.inf,
    "Infinity": math.inf,
    "nan": math.nan,
    "NaN": math.nan,
}


def read_literal(text: str, json_first: bool = False) -> Any:
    """The plain value that a literal writes.

    Args:
        text: the literal, on one line.
        json_first: read by JSON's rules if they fit, as for text typed by a user; the two notations
            differ in a few escapes inside strings only.

    Raises:
        MismatchError: the text is no literal.
    """
    text = text.strip()
    if json_first:
        try:
            return json.loads(text, object_pairs_hook=_dict_of_pairs, parse_float=_float)
        except (ValueError, RecursionError):
            pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Unknown escapes in strings: kept as they stand.
            tree = ast.parse(text, mode="eval")
        return _value(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise MismatchError(
            f"{text!r} cannot be read as a literal such as [1, 2] or 'word'"
        ) from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=float() as number):
            if math.isinf(number):
                raise MismatchError("a number is too large for a float; write inf for infinity")
            return number
        case ast.Constant(value=bool() | int() | str() | None):
            return node.value
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _value(operand)
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise MismatchError("a sign must stand before a number")
            return -number if isinstance(sign, ast.USub) else number
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Dict(keys=keys, values=values) if None not in keys:  # None stands for `**`.
            pairs = zip(keys, values, strict=True)
            return _dict_of_pairs([(_value(key), _value(value)) for key, value in pairs if key])
    raise MismatchError(f"{ast.unparse(node)!r} is no literal; put words in quotes")


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise MismatchError(f"{text} is too large for a float; write inf for infinity")
    return number


def _dict_of_pairs(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if not isinstance(key, str):
            raise MismatchError(f"the key {key!r} must be a string")
        if key in result:
            raise MismatchError(f"the key {key!r} is given twice")
        result[key] = value
    return result
