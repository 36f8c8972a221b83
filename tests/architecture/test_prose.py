"""The prose of the source is plain, and the hard rooms explain their reasoning."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
DOCSTRINGS = (
    *("Of ", "So many ", "So much ", "So long ", "So often ", "Whose ", "Whom ", "Gives "),
    *("Those ", "They ", "Their ", "It ", "Its ", "That ", "None:", "Hear ", "Hears "),
)
"""A docstring begins with its noun or its verb: it can be read without the line before it."""
MESSAGES = ("who ", "whoever ", "nobody ", "so ", "of ", "a commit that ", "a writer that ")
"""An error names what the caller did or what happened, not the kind of client that did it."""
COMMENTED = ("txn", "stream", "state", "repush", "locks")
COMMENTS_PER_THOUSAND = 20
"""Comment lines that explain, in a thousand lines of a room where the reasoning is hard."""
_MARKS = re.compile(r"#\s*(noqa|type:|ruff:|pragma:|---)")


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield every docstring, also those of fields and constants, with its line."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the beginning of each text of an error, and of each ``message``, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "message":
            value = node.value
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith("Error"):
            value = node.args[0]
        else:
            continue
        if isinstance(value, ast.JoinedStr) and value.values:
            value = value.values[0]
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield node.lineno, value.value


def comment_lines(source: str) -> int:
    """Count the lines with a comment, but for marks of linters and lines that divide a file."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = (token.string for token in tokens if token.type == tokenize.COMMENT)
    return sum(not _MARKS.match(text) for text in found)


def test_docstrings_and_errors_can_be_read_without_the_line_before_them() -> None:
    riddles = []
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = [each for each in texts(tree) if each[1].startswith(DOCSTRINGS)]
        found += [each for each in messages(tree) if each[1].startswith(MESSAGES)]
        riddles += [f"{path.relative_to(ROOT)}:{line}: {text[:80]}" for line, text in found]
    assert riddles == []


@pytest.mark.parametrize("room", COMMENTED)
def test_hard_rooms_say_why(room: str) -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "src" / "plait" / room).rglob("*.py"))
    ]
    lines = sum(len(source.splitlines()) for source in sources)
    comments = sum(map(comment_lines, sources))
    needed = -(-lines * COMMENTS_PER_THOUSAND // 1000)
    assert comments >= needed, f"{room} has {comments} comment lines of {needed}: say why"
