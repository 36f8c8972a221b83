"""SQL text to predicates. The only file that knows the SQL parser."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import pyarrow as pa

from plait.errors import MissingDependencyError, PredicateError
from plait.expr.literal import Literal, compare, contained, null_safe
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
    find_column,
    negate,
)

if TYPE_CHECKING:
    from sqlglot import exp

_TEXT_MAX = 1 << 20
_SUPPORTED = (
    "columns compared with literals by = != < <= > >= <=>, IN, BETWEEN, LIKE, IS [NOT] NULL, "
    "AND, OR, NOT"
)
_ARGUMENTS = frozenset(
    ("this", "expression", "expressions", "low", "high", "negate", "table", "db", "catalog")
)
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}


def parse_sql(text: str, schema: pa.Schema) -> Predicate:
    """Read a condition as Spark SQL does; column names match whatever their case.

    Raises:
        PredicateError: it cannot be parsed, is more than a condition on columns and literals, or
            compares what cannot be compared.
    """
    if len(text) > _TEXT_MAX:
        message = f"a predicate of {len(text)} characters"
        raise PredicateError(message, hint=f"at most {_TEXT_MAX}", text=text[:100])
    try:
        import sqlglot  # noqa: PLC0415 - slow to import, and needed only for SQL text
        from sqlglot.errors import SqlglotError  # noqa: PLC0415
    except ImportError as error:
        message = "SQL predicates need sqlglot"
        raise MissingDependencyError(
            message, hint="pip install sqlglot", library="sqlglot", extra=""
        ) from error
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = f"cannot parse the predicate {text[:200]!r}: {first}"
        raise PredicateError(message, hint=f"supported: {_SUPPORTED}", text=text) from error
    return _Reader(text, schema).read(tree, 0)


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
            exp.Boolean: lambda node, _: Always(bool(node.this)),
            exp.Null: lambda _node, _: Always(None),
            exp.Column: lambda node, _: self._truth(node),
        }

    def read(self, node: exp.Expr, depth: int) -> Predicate:
        """Read one condition."""
        if depth > DEPTH_MAX:
            message = "the predicate is nested too deeply"
            raise PredicateError(message, hint=f"at most {DEPTH_MAX} levels", text=self._text)
        if any(value and name not in _ARGUMENTS for name, value in node.args.items()):
            raise self._unsupported(node)  # a modifier that is not known must not be lost
        op = self._comparisons.get(type(node))
        if op is not None:
            return self._comparison(node, op)
        reader = self._nodes.get(type(node))
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
        column, literal = self._column(left), self._literal(right)
        if literal is None:
            return IsNull(column) if op == "<=>" else Always(None)
        if op == "<=>":
            return null_safe(column, literal, text=self._text)
        return compare(column, op, literal, text=self._text)

    def _in(self, node: exp.Expr, _depth: int) -> Predicate:
        column = self._column(node.this)
        if node.args.get("query") is not None or node.args.get("unnest") is not None:
            raise self._unsupported(node)
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
        if low is None or high is None:
            raise self._unsupported(node)
        return all_of(
            compare(column, ">=", low, text=self._text),
            compare(column, "<=", high, text=self._text),
        )

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

    def _is_column(self, node: exp.Expr) -> bool:
        return isinstance(node, (self._exp.Column, self._exp.Dot))

    def _column(self, node: exp.Expr) -> Column:
        exp = self._exp
        if isinstance(node, exp.Paren):
            return self._column(node.this)
        if isinstance(node, (exp.Column, exp.Dot)):
            path = tuple(part.name for part in node.parts)
        else:
            raise self._unsupported(node)
        return find_column(self._schema, path, self._text)

    def _literal(self, node: exp.Expr) -> Literal | None:
        exp = self._exp
        if isinstance(node, exp.Paren):
            return self._literal(node.this)
        if isinstance(node, exp.Null):
            return None
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.HexString):
            return self._bytes(node)
        if isinstance(node, exp.Literal):
            return str(node.this) if node.is_string else self._number(node)
        if isinstance(node, exp.Neg):
            number = self._literal(node.this)
            if isinstance(number, Decimal):
                return -number
        if isinstance(node, (exp.Cast, exp.TsOrDsToDate)):
            return self._cast(node)
        raise self._unsupported(node)

    def _number(self, node: exp.Expr) -> Decimal:
        try:
            return Decimal(node.this)
        except InvalidOperation as error:
            raise self._unsupported(node) from error

    def _bytes(self, node: exp.Expr) -> bytes:
        try:
            digits = str(node.this)
            number = digits if node.args.get("is_integer") is None else f"{int(digits):x}"
            return bytes.fromhex(number.rjust(len(number) + len(number) % 2, "0"))
        except ValueError as error:
            raise self._unsupported(node) from error

    def _cast(self, node: exp.Expr) -> Literal:
        text = self._literal(node.this)
        kind = node.args["to"].this if isinstance(node, self._exp.Cast) else None
        types = self._exp.DataType.Type
        if isinstance(text, str) and kind is not None and kind in self._exp.DataType.NUMERIC_TYPES:
            return self._typed_number(text, node)
        if isinstance(text, str):
            try:
                if kind in (None, types.DATE):
                    return dt.date.fromisoformat(text.strip())
                if kind in (types.TIMESTAMP, types.TIMESTAMPTZ, types.TIMESTAMPNTZ):
                    return dt.datetime.fromisoformat(text.strip())
            except ValueError as error:
                message = f"{text!r} is no date or time, in {self._text[:200]!r}"
                hint = "write DATE '2026-01-31' or TIMESTAMP '2026-01-31 12:00:00'"
                raise PredicateError(message, hint=hint, text=self._text) from error
        raise self._unsupported(node)

    def _typed_number(self, text: str, node: exp.Expr) -> Literal:
        if text in ("nan", "NaN", "inf", "-inf", "Infinity", "-Infinity"):
            return float(text)
        try:
            return Decimal(text)
        except InvalidOperation as error:
            raise self._unsupported(node) from error

    def _unsupported(self, node: exp.Expr) -> PredicateError:
        part = node.sql(dialect="spark")[:100]
        message = f"{part!r} is not supported in the predicate {self._text[:200]!r}"
        position = self._text.find(part)
        return PredicateError(
            message, hint=f"supported: {_SUPPORTED}", text=self._text, position=position
        )
