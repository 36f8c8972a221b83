"""The SQL parser: bounded in what it is given, before it is given it.

Text comes from tables that anybody may have written, so its size is counted first, in time that
grows with its length alone.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from plait.errors import MissingDependencyError, PredicateError, SchemaError, TableError
from plait.expr.tree import DEPTH_MAX
from plait.model.texts import is_text

if TYPE_CHECKING:
    from sqlglot import exp

_TEXT_MAX: Final = 1 << 20
_TOKENS_MAX: Final = 25_000
"""The parser takes some 50 microseconds for each: more values go into a scan as ``isin``."""
_JOINS_MAX: Final = 5_000
"""Maximum number of AND and OR. Comparisons of one column become one IN; at most
``LEAVES_MAX`` may be left."""
DIGITS_MAX: Final = 400
"""Maximum number of digits of a number; a double has 309 before the point."""
_FRAMES: Final = 20_000
"""Calls that the parser nests for ``DEPTH_MAX`` parentheses, and room to spare."""
PREDICATE, VALUE, SCHEMA, CHANGE = "predicate", "value", "schema", "change"
"""What a text may be."""
_INSTEAD: Final = {
    PREDICATE: "scan with pyarrow.compute.field(column).isin(values), or delete by keys",
    VALUE: "pass a pyarrow expression or a function",
    SCHEMA: "pass a pyarrow schema",
    CHANGE: "change a few columns at a time",
}
_SUPPORTED: Final = {
    PREDICATE: (
        "supported: columns compared with literals by = != < <= > >= <=>, IN, BETWEEN, LIKE, "
        "IS [NOT] NULL, IS [NOT] DISTINCT FROM, AND, OR, NOT"
    ),
    VALUE: (
        "supported: columns, literals, + - * / %, comparisons, AND, OR, NOT, IS NULL, IN, BETWEEN, "
        "LIKE, CASE, IF, COALESCE, NULLIF, GREATEST, LEAST, ABS, FLOOR, CEIL, UPPER, LOWER, TRIM, "
        "LTRIM, RTRIM, LENGTH, SUBSTRING, CONCAT, ||, CAST; or pass a function"
    ),
    SCHEMA: "for example: id bigint not null, day date, tags array<string>",
    CHANGE: (
        "supported: ADD COLUMN c TYPE [NOT NULL] [DEFAULT v] [COMMENT 'c'] [FIRST | AFTER d] "
        "[GENERATED ALWAYS AS (e)], DROP COLUMN c, RENAME COLUMN c TO d, ALTER COLUMN c TYPE t | "
        "SET NOT NULL | DROP NOT NULL | SET DEFAULT v | DROP DEFAULT | COMMENT 'c' | FIRST | "
        "AFTER d | SET EXPRESSION AS (e) | DROP EXPRESSION, ADD CONSTRAINT n CHECK (p), "
        "DROP CONSTRAINT n"
    ),
}
_AROUND: Final = {SCHEMA: ("CAST(NULL AS STRUCT<", ">)"), CHANGE: ("ALTER TABLE t ", "")}
"""What makes an expression of a text."""
_PREFIXES: Final = frozenset(("-", "+", "~", "!", "not"))
_PARSING: Final = threading.Lock()
_TOKEN: Final = re.compile(
    r"""'(?:[^'\\]|\\.?)*(?:'|\Z)|"(?:[^"\\]|\\.?)*(?:"|\Z)|`[^`]*(?:`|\Z)|[\w.]+|[^\s\w]""",
    re.DOTALL,
)
"""Words, texts and signs, each found in one step over its characters."""


@contextmanager
def parsed(text: str, what: str) -> Iterator[exp.Expr]:
    """Parse one text, and yield its tree with room for its depth.

    Raises:
        PredicateError: the text is too large, nested too deeply, or not one expression; of a
            schema, SchemaError.
    """
    _require_small(text, what)
    with _PARSING:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(before, _FRAMES))
        try:
            yield _tree(text, what)
        except RecursionError as error:
            why = f"the {what} {text[:100]!r} is nested too deeply"
            raise refused(text, what, why) from error
        finally:
            sys.setrecursionlimit(before)


def refused(text: str, what: str, why: str, position: int | None = None) -> TableError:
    """Return the error for a text of which something is not understood, where the parser saw it."""
    hint = _SUPPORTED[what]
    if what == CHANGE:
        return SchemaError(why, hint=hint, text=text[:200], position=position)
    if what != SCHEMA:
        return PredicateError(why, hint=hint, text=text, position=position)
    at = min(max((position or 0) - len(_AROUND[what][0]), 0), len(text))
    message = f"cannot read the schema at character {at}: {why}"
    return SchemaError(message, hint=hint, text=text[:200], position=at)


def start_of(node: exp.Expr) -> int | None:
    """Return the first character of what a node was made from, if the parser kept it."""
    starts = (part.meta["start"] for part in node.walk() if "start" in part.meta)
    return min(starts, default=None)


def _tree(text: str, what: str) -> exp.Expr:
    try:
        import sqlglot  # noqa: PLC0415 - slow to import, and needed only for SQL text
        from sqlglot.errors import SqlglotError  # noqa: PLC0415
    except ImportError as error:
        message = f"a {what} in SQL needs sqlglot"
        raise MissingDependencyError(
            message, hint="pip install sqlglot", library="sqlglot", extra=""
        ) from error
    before, after = _AROUND.get(what, ("", ""))
    log = logging.getLogger("sqlglot")
    was_disabled, log.disabled = log.disabled, True  # what it cannot read is said in the error
    try:
        parsed_trees = sqlglot.parse(before + text + after, dialect="spark")
    except SqlglotError as error:
        raise _unparsed(text, what, error) from error
    finally:
        log.disabled = was_disabled
    trees = [tree for tree in parsed_trees if tree is not None]
    if len(trees) != 1:
        why = f"{len(trees)} {what}s, expected one: {text[:200]!r}"
        raise refused(text, what, why)
    return trees[0]


def _unparsed(text: str, what: str, error: Exception) -> TableError:
    """Return the error for a text that the parser refuses, with the place that it names."""
    why, position = str(error).partition("\n")[0], None
    before, after = _AROUND.get(what, ("", ""))
    for problem in getattr(error, "errors", ())[:1]:
        lines = (before + text + after).splitlines(keepends=True)[: problem["line"] - 1]
        position = sum(map(len, lines)) + problem["col"] - len(problem["highlight"])
        why = problem["description"]
    message = f"cannot parse the {what} {text[:200]!r}: {why[:200]}"
    if what == SCHEMA:
        message = "expected a name and a type for each column, with commas between them"
    return refused(text, what, message, position)


def _require_small(text: str, what: str) -> None:
    """Refuse what is too large, in time that grows with the length alone."""
    if not is_text(text):
        shown = text[:200].encode(errors="backslashreplace").decode()
        raise refused(shown, what, f"the {what} {shown!r} has half of a character")
    found, most, unit, remedy = len(text), _TEXT_MAX, "characters", _INSTEAD[what]
    if found <= most:
        opening, closing = ("([<", ")]>") if what in (SCHEMA, CHANGE) else ("([", ")]")
        tokens = joins = depth = run = deepest = digits = 0
        for token in _TOKEN.finditer(text):
            word = token[0]
            tokens += 1
            depth += (word in opening) - (word in closing)
            run = run + 1 if word.lower() in _PREFIXES else 0
            deepest = max(deepest, depth + run)
            joins += word.lower() in ("and", "or")
            digits = max(digits, len(word) if word[0] in "0123456789." else 0)
        sizes = (
            (tokens, _TOKENS_MAX, "words and signs", remedy),
            (joins, _JOINS_MAX, "AND and OR", "list the values of one column with IN"),
            (deepest, DEPTH_MAX, "levels of parentheses and signs", "leave needless ones out"),
            (digits, DIGITS_MAX, "digits in a number", "no column holds a longer number"),
        )
        over = [size for size in sizes if size[0] > size[1]]
        if not over:
            return
        found, most, unit, remedy = over[0]
    message = f"a {what} of {found} {unit} is too large: {text[:100]!r}"
    hint = f"at most {most}; {remedy}"
    if what in (SCHEMA, CHANGE):
        raise SchemaError(message, hint=hint, text=text[:100], position=0)
    raise PredicateError(message, hint=hint, text=text[:100])
