"""SQL text to predicates. The only file that knows the SQL parser."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import pyarrow as pa

from plait.errors import MissingDependencyError, PredicateError
from plait.expr.literal import (
    Literal,
    compare,
    contained,
    day_of,
    moment_of,
    narrowed,
    null_safe,
)
from plait.expr.tree import (
    DEPTH_MAX,
    VALUES_MAX,
    Always,
    Column,
    IsNull,
    Like,
    Predicate,
    all_of,
    any_of,
    bounded,
    find_column,
    negate,
)

if TYPE_CHECKING:
    from sqlglot import exp

_TEXT_MAX = 1 << 20
_SUPPORTED = (
    "columns compared with literals by = != < <= > >= <=>, IN, BETWEEN, LIKE, IS [NOT] NULL, "
    "IS [NOT] DISTINCT FROM, AND, OR, NOT"
)
# Any other argument of a node is a modifier (FORMAT, ESCAPE, a query): it must not be lost.
_ARGUMENTS = frozenset(
    ("this", "expression", "expressions", "low", "high", "negate", "table", "db", "catalog")
)
_OF_LITERALS = frozenset(("this", "to", "safe", "is_string", "_type"))
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?\s*", re.ASCII)
_WORDS = {"nan": "nan", "inf": "inf", "infinity": "inf"}
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def parse_sql(text: str, schema: pa.Schema) -> Predicate:
    """Read a condition as Spark SQL does; column names match whatever their case.

    A timestamp without a zone is UTC, whatever the zone of a session. A literal must fit the type
    of its column without loss: numbers between two values of the column change the comparison.

    Raises:
        PredicateError: it cannot be parsed, is more than a condition on columns and literals, or
            compares what cannot be compared.
    """
    tree = parse_tree(text, "predicate", _SUPPORTED)
    try:
        return bounded(_Reader(text, schema).read(tree, 0))
    except RecursionError as error:
        raise _unparsed(text, error, "predicate", _SUPPORTED) from error


def parse_tree(text: str, what: str, supported: str) -> exp.Expr:
    """Give the parser's tree of one expression; raise PredicateError, naming what it is."""
    if len(text) > _TEXT_MAX:
        message = f"a {what} of {len(text)} characters"
        raise PredicateError(message, hint=f"at most {_TEXT_MAX}", text=text[:100])
    try:
        import sqlglot  # noqa: PLC0415 - slow to import, and needed only for SQL text
        from sqlglot.errors import SqlglotError  # noqa: PLC0415
    except ImportError as error:
        message = f"a {what} in SQL needs sqlglot"
        raise MissingDependencyError(
            message, hint="pip install sqlglot", library="sqlglot", extra=""
        ) from error
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect="spark") if tree is not None]
    except (SqlglotError, RecursionError) as error:
        raise _unparsed(text, error, what, supported) from error
    if len(trees) != 1:
        message = f"{len(trees)} {what}s instead of one: {text[:200]!r}"
        raise PredicateError(message, hint=f"supported: {supported}", text=text)
    return trees[0]


def _unparsed(text: str, error: Exception, what: str, supported: str) -> PredicateError:
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    found = re.search(r"Line (\d+), Col: (\d+)", first)
    position = None
    if found is not None:
        above = sum(len(line) for line in text.splitlines(keepends=True)[: int(found[1]) - 1])
        position = above + int(found[2]) - 1
    message = f"cannot parse the {what} {text[:200]!r}: {first[:200]}"
    return PredicateError(message, hint=f"supported: {supported}", text=text, position=position)


class _Reader:
    """Walks the parser's tree for one text."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        from sqlglot import exp  # noqa: PLC0415 - see parse_sql

        self._text, self._schema = text, schema
        self._exp = exp
        self._comparisons: dict[type, str] = {
            exp.EQ: "=",
            exp.NEQ: "!=",
            exp.LT: "<",
            exp.LTE: "<=",
            exp.GT: ">",
            exp.GTE: ">=",
            exp.NullSafeEQ: "<=>",
        }
        self._nodes: dict[type, Callable[[exp.Expr, int], Predicate]] = {
            exp.Paren: lambda node, depth: self.read(node.this, depth + 1),
            exp.Not: lambda node, depth: negate(self.read(node.this, depth + 1)),
            exp.And: self._and,
            exp.Or: self._or,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Like: self._like,
            exp.Is: self._is,
            exp.NullSafeNEQ: lambda node, _: negate(self._comparison(node, "<=>")),
            exp.Boolean: lambda node, _: Always(bool(node.this)),
            exp.Null: lambda _node, _: Always(None),
            exp.Cast: self._constant,
            exp.TryCast: self._constant,
            exp.Column: lambda node, _: self._truth(node),
            exp.Dot: lambda node, _: self._truth(node),
        }

    def read(self, node: exp.Expr, depth: int) -> Predicate:
        """Read one condition."""
        if depth > DEPTH_MAX:
            message = "the predicate is nested too deeply"
            raise PredicateError(message, hint=f"at most {DEPTH_MAX} levels", text=self._text)
        op = self._comparisons.get(type(node))
        reader = self._nodes.get(type(node))
        cast = isinstance(node, self._exp.Cast)
        if not cast and any(value and name not in _ARGUMENTS for name, value in node.args.items()):
            raise self._unsupported(node)
        if op is not None:
            return self._comparison(node, op)
        if reader is None:
            raise self._unsupported(node)
        return reader(node, depth)

    def _and(self, node: exp.Expr, depth: int) -> Predicate:
        return all_of(*(self.read(item, depth + 1) for item in node.flatten()))

    def _or(self, node: exp.Expr, depth: int) -> Predicate:
        return any_of(*(self.read(item, depth + 1) for item in node.flatten()))

    def _comparison(self, node: exp.Expr, op: str) -> Predicate:
        left, right = node.this, node.expression
        if not self._is_column(left) and self._is_column(right):
            left, right, op = right, left, _MIRRORED[op]
        return self._compared(self._column(left), op, self._literal(right))

    def _compared(self, column: Column, op: str, literal: Literal | None) -> Predicate:
        if literal is None:
            return IsNull(column) if op == "<=>" else Always(None)
        if op == "<=>":
            return null_safe(column, literal, text=self._text)
        return compare(column, op, literal, text=self._text)

    def _in(self, node: exp.Expr, _depth: int) -> Predicate:
        column = self._column(node.this)
        items = node.expressions
        if len(items) > VALUES_MAX:
            message = f"IN with {len(items)} values"
            raise PredicateError(message, hint=f"at most {VALUES_MAX}", text=self._text[:100])
        literals = [self._literal(item) for item in items]
        known = [literal for literal in literals if literal is not None]
        found = contained(column, known, text=self._text)
        # x IN (1, NULL) is TRUE for 1 and NULL for everything else
        return found if len(known) == len(literals) else any_of(found, Always(None))

    def _between(self, node: exp.Expr, _depth: int) -> Predicate:
        column = self._column(node.this)
        low, high = self._literal(node.args["low"]), self._literal(node.args["high"])
        return all_of(self._compared(column, ">=", low), self._compared(column, "<=", high))

    def _like(self, node: exp.Expr, _depth: int) -> Predicate:
        column, pattern = self._column(node.this), self._literal(node.expression)
        if not isinstance(pattern, str) or not pa.types.is_string(column.type):
            raise self._unsupported(node)
        return Like(column, pattern, negated=bool(node.args.get("negate")))

    def _is(self, node: exp.Expr, _depth: int) -> Predicate:
        column = self._column(node.this)
        right = node.expression
        if isinstance(right, self._exp.Null):
            return IsNull(column)
        if isinstance(right, self._exp.Boolean) and pa.types.is_boolean(column.type):
            return null_safe(column, bool(right.this), text=self._text)
        raise self._unsupported(node)

    def _truth(self, node: exp.Expr) -> Predicate:
        column = self._column(node)
        if not pa.types.is_boolean(column.type):
            raise self._unsupported(node)
        return compare(column, "=", literal=True, text=self._text)

    def _constant(self, node: exp.Expr, _depth: int) -> Predicate:
        value = self._literal(node)
        if value is not None and not isinstance(value, bool):
            raise self._unsupported(node)
        return Always(value)

    def _is_column(self, node: exp.Expr) -> bool:
        while isinstance(node, self._exp.Paren):
            node = node.this
        return isinstance(node, (self._exp.Column, self._exp.Dot))

    def _column(self, node: exp.Expr) -> Column:
        exp = self._exp
        while isinstance(node, exp.Paren):
            node = node.this
        parts = node.parts if isinstance(node, (exp.Column, exp.Dot)) else []
        if not parts or not all(isinstance(part, exp.Identifier) for part in parts):
            raise self._unsupported(node)
        return find_column(self._schema, tuple(part.name for part in parts), self._text)

    def _literal(self, node: exp.Expr) -> Literal | None:
        exp = self._exp
        while isinstance(node, exp.Paren):
            node = node.this
        if any(value and name not in _OF_LITERALS for name, value in node.args.items()):
            raise self._unsupported(node)
        match node:
            case exp.Null():
                return None
            case exp.Boolean():
                return bool(node.this)
            case exp.HexString():
                return self._bytes(node)
            case exp.Literal():
                return str(node.this) if node.is_string else self._number(node)
            case exp.Neg():
                return self._negative(node)
            case exp.Cast():
                return self._cast(node)
        raise self._unsupported(node)

    def _negative(self, node: exp.Expr) -> Literal:
        number = self._literal(node.this)
        if isinstance(number, (Decimal, float)):
            return number.copy_negate() if isinstance(number, Decimal) else -number
        raise self._unsupported(node)

    def _number(self, node: exp.Expr) -> Decimal:
        text = str(node.this)
        if _NUMBER.fullmatch(text) is None:
            raise self._unsupported(node)
        return Decimal(text)

    def _bytes(self, node: exp.Expr) -> bytes:
        start = start_of(node)
        if start is not None and self._text[start] not in "xX":
            raise self._unsupported(node)  # 0x10 is no literal of Spark's
        digits = str(node.this)
        try:
            return bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0"))
        except ValueError as error:
            raise self._unsupported(node) from error

    def _cast(self, node: exp.Expr) -> Literal | None:
        """Take a typed literal (DATE '...', 5L, CAST('...' AS T)), if it loses nothing."""
        value, kind = self._literal(node.this), node.args["to"]
        if value is None:
            return None
        found: Literal | None = None
        try:
            if isinstance(value, str):
                found = _of_text(value, kind.this.name)
            if found is None and isinstance(value, (str, Decimal)):
                found = _of_number(str(value), kind.this.name, kind.expressions)
            if found is None and isinstance(value, bytes):
                found = _of_bytes(value, kind.this.name)
        except (ValueError, InvalidOperation, ArithmeticError) as error:
            message = f"{value!s} is no {kind.sql(dialect='spark')}, in {self._text[:200]!r}"
            hint = "write DATE '2026-01-31' or TIMESTAMP '2026-01-31 12:00:00Z', or a plain number"
            raise PredicateError(
                message, hint=hint, text=self._text, position=start_of(node)
            ) from error
        if found is None:
            raise self._unsupported(node)
        return found

    def _unsupported(self, node: exp.Expr) -> PredicateError:
        position = start_of(node)
        try:
            part = node.sql(dialect="spark")[:100]
        except RecursionError:
            part = self._text[position or 0 :][:100]
        message = f"{part!r} is not supported in the predicate {self._text[:200]!r}"
        hint = f"supported: {_SUPPORTED}"
        if isinstance(node, self._exp.Concat):
            hint = r"write a quote inside text as \'; texts are not joined"
        return PredicateError(message, hint=hint, text=self._text, position=position)


def start_of(node: exp.Expr) -> int | None:
    """Give the first character of what a node was made from, if the parser kept it."""
    starts = (part.meta["start"] for part in node.walk() if "start" in part.meta)
    return min(starts, default=None)


def _of_text(text: str, kind: str) -> Literal | None:
    match kind:
        case "DATE":
            return day_of(text)
        case "TIMESTAMP" | "TIMESTAMPTZ" | "TIMESTAMPLTZ":
            return moment_of(text)
        case "TIMESTAMPNTZ":
            moment = moment_of(text)
            if moment.zoned:
                raise ValueError(text)
            return moment
        case "TEXT":
            return text
        case "BOOLEAN" if text.strip().lower() in ("true", "false"):
            return text.strip().lower() == "true"
    return None


def _of_bytes(value: bytes, kind: str) -> Literal | None:
    if kind == "TEXT":
        return value.decode()
    return value if kind in ("BINARY", "VARBINARY") else None


def _of_number(text: str, kind: str, arguments: list[exp.Expr]) -> Literal | None:
    word = _WORDS.get(text.strip().lstrip("+-").lower())
    if kind in ("FLOAT", "DOUBLE"):
        if word is None and _NUMBER.fullmatch(text) is None:
            raise ValueError(text)
        number = float(text.strip())
        return narrowed(number) if kind == "FLOAT" else number
    if kind not in _BITS and kind != "DECIMAL":
        return None
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    value = Decimal(text.strip())
    if kind == "DECIMAL":
        precision, scale = (int(item.name) for item in arguments) if arguments else (10, 0)
    else:
        precision, scale = 19, 0
    whole = value.quantize(Decimal(1).scaleb(-scale))
    if whole != value or len(whole.as_tuple().digits) > precision:
        raise ValueError(text)
    limit = 2 ** (_BITS[kind] - 1) if kind in _BITS else None
    if limit is not None and not -limit <= value < limit:
        raise ValueError(text)
    return value
