"""The documentation of a field: the comment beside it, or else the lines of comment above it.

The source is read only when somebody asks, so declaring params costs nothing.
"""

import ast
import inspect
import io
import re
import textwrap
import tokenize
from dataclasses import dataclass

# What tools read in a comment, and readers need not.
_MARKS = re.compile(r"#\s*(noqa|type:|fmt:|pyright:).*")


def field_comment(cls: type, name: str) -> str:
    """The comment of field `name` in the source of `cls`; empty if there is none or no source."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
        body = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return ""
    if not isinstance(body, ast.ClassDef):
        return ""
    for statement in body.body:
        target = statement.target if isinstance(statement, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id == name:
            comments = _comments(source)
            beside = comments.get(statement.end_lineno or statement.lineno)
            if beside is not None and not beside.alone:
                return beside.words
            return _above(comments, statement.lineno)
    return ""


@dataclass(frozen=True)
class _Comment:
    """A comment: its words, and whether its line has nothing else."""

    words: str
    alone: bool


def _comments(source: str) -> dict[int, _Comment]:
    """The comments of a source by line."""
    result = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            words = _MARKS.sub("", token.string).lstrip("#: ").rstrip()
            result[line] = _Comment(words, alone=not token.line[:column].strip())
    return result


def _above(comments: dict[int, _Comment], line: int) -> str:
    """The lines of comment right above `line`."""
    words: list[str] = []
    while (above := comments.get(line := line - 1)) and above.alone:
        words.insert(0, above.words)
    return " ".join(words)
