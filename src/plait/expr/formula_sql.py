"""SQL text, literals, pyarrow expressions and functions to formulas."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import PredicateError, SchemaError
from plait.expr.ddl import parse_ddl
from plait.expr.formula import (
    KINDS,
    Arrow,
    Call,
    Case,
    Cast,
    Constant,
    Formula,
    Function,
    Name,
)
from plait.expr.literal import day_of, moment_of
from plait.expr.sql import parse_tree, start_of
from plait.expr.tree import DEPTH_MAX

if TYPE_CHECKING:
    from sqlglot import exp

_OPERATORS: Final = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "mod": "%",
    "eq": "=",
    "neq": "!=",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
    "nullsafeeq": "<=>",
    "and": "and",
    "or": "or",
    "dpipe": "concat",
    "nullif": "nullif",
}
"""Nodes of two operands."""
_FUNCTIONS: Final = {
    "neg": "negate",
    "not": "not",
    "abs": "abs",
    "floor": "floor",
    "ceil": "ceil",
    "upper": "upper",
    "lower": "lower",
    "length": "length",
    "coalesce": "coalesce",
    "greatest": "greatest",
    "least": "least",
    "concat": "concat",
}
"""Nodes of one operand, or of a list."""
_TRIMS: Final = {"": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
# Any other argument of a node is a modifier that would be lost.
_ARGUMENTS: Final = frozenset(
    ("this", "expression", "expressions", "low", "high", "ifs", "default", "true", "to", "start")
) | {"length", "position", "false", "safe", "typed", "is_string", "ignore_nulls", "table", "negate"}
_DATES: Final = frozenset(("DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ"))
SUPPORTED: Final = (
    "columns, literals, + - * / %, comparisons, AND, OR, NOT, IS NULL, IN, BETWEEN, LIKE, CASE, "
    "IF, COALESCE, NULLIF, GREATEST, LEAST, ABS, FLOOR, CEIL, UPPER, LOWER, TRIM, LTRIM, RTRIM, "
    "LENGTH, SUBSTRING, CONCAT, ||, CAST"
)


def parse_formula(value: object) -> Formula:
    """Give the formula of anything that callers may write for a value.

    Text is SQL; so ``"'x'"`` is the text x, and ``"x"`` is a column.

    Raises:
        PredicateError: the text is not understood, or this is no value.

    >>> parse_formula(3).value.as_py()
    3
    """
    if isinstance(value, KINDS):
        return value
    if isinstance(value, str):
        return _parsed(value)
    if isinstance(value, pc.Expression):
        return Arrow(value)
    if isinstance(value, pa.Scalar):
        return Constant(value)
    if callable(value):
        return Function(value)
    try:
        return Constant(pa.scalar(value))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        shown = repr(value)[:200]
        message = f"not a value of a column: {shown}"
        hint = "SQL text, a literal, a pyarrow scalar or expression, or a function of the rows"
        raise PredicateError(message, hint=hint, text=shown) from error


def _parsed(text: str) -> Formula:
    tree = parse_tree(text, "value", SUPPORTED)
    try:
        return _Reader(text).read(tree, 0)
    except RecursionError as error:
        message = f"the value {text[:100]!r} is nested too deeply"
        raise PredicateError(message, hint=f"at most {DEPTH_MAX} levels", text=text) from error


class _Reader:
    """Walks the parser's tree for one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._nodes: dict[str, Callable[[exp.Expr, int], Formula]] = {
            "paren": lambda node, depth: self.read(node.this, depth + 1),
            "column": lambda node, _: self._name(node),
            "dot": lambda node, _: self._name(node),
            "null": lambda _node, _: Constant(pa.scalar(None)),
            "boolean": lambda node, _: Constant(pa.scalar(bool(node.this))),
            "literal": lambda node, _: self._literal(node),
            "nullsafeneq": lambda node, depth: _not(self._binary("<=>", node, depth)),
            "is": self._is,
            "in": self._in,
            "between": self._between,
            "like": self._like,
            "case": self._case,
            "if": self._if,
            "cast": self._cast,
            "trycast": self._cast,
            "trim": self._trim,
            "substring": self._substring,
        }

    def read(self, node: exp.Expr, depth: int) -> Formula:
        """Read one node."""
        if depth > DEPTH_MAX:
            message = f"the value {self._text[:100]!r} is nested too deeply"
            hint = f"at most {DEPTH_MAX} levels"
            raise PredicateError(message, hint=hint, text=self._text)
        reader = self._nodes.get(node.key)
        if node.key not in ("cast", "concat", "coalesce") and any(
            given and name not in _ARGUMENTS for name, given in node.args.items()
        ):
            raise self._unsupported(node)
        if reader is not None:
            return reader(node, depth)
        if node.key in _OPERATORS:
            return self._binary(_OPERATORS[node.key], node, depth)
        if node.key in _FUNCTIONS:
            return self._function(node, depth)
        raise self._unsupported(node)

    def _binary(self, name: str, node: exp.Expr, depth: int) -> Formula:
        left, right = self.read(node.this, depth + 1), self.read(node.expression, depth + 1)
        return Call(name, (left, right))

    def _function(self, node: exp.Expr, depth: int) -> Formula:
        if node.key == "concat" and node.args.get("coalesce"):
            raise self._unsupported(node)
        given = [item for item in (node.args.get("this"), *node.expressions) if item is not None]
        return Call(_FUNCTIONS[node.key], tuple(self.read(item, depth + 1) for item in given))

    def _is(self, node: exp.Expr, depth: int) -> Formula:
        item, right = self.read(node.this, depth + 1), node.expression
        if right.key == "null":
            return Call("is null", (item,))
        if right.key == "boolean":
            return Call("<=>", (item, Constant(pa.scalar(bool(right.this)))))
        raise self._unsupported(node)

    def _in(self, node: exp.Expr, depth: int) -> Formula:
        if not node.expressions:
            raise self._unsupported(node)
        items = (node.this, *node.expressions)
        return Call("in", tuple(self.read(item, depth + 1) for item in items))

    def _between(self, node: exp.Expr, depth: int) -> Formula:
        item = self.read(node.this, depth + 1)
        low, high = (self.read(node.args[end], depth + 1) for end in ("low", "high"))
        return Call("and", (Call(">=", (item, low)), Call("<=", (item, high))))

    def _like(self, node: exp.Expr, depth: int) -> Formula:
        pattern = node.expression
        if pattern.key != "literal" or not pattern.is_string:
            raise self._unsupported(node)
        found = self._binary("like", node, depth)
        return _not(found) if node.args.get("negate") else found

    def _case(self, node: exp.Expr, depth: int) -> Formula:
        subject = None if node.this is None else self.read(node.this, depth + 1)
        branches: list[tuple[Formula | None, Formula]] = []
        for branch in node.args["ifs"]:
            when = self.read(branch.this, depth + 1)
            when = when if subject is None else Call("=", (subject, when))
            branches.append((when, self.read(branch.args["true"], depth + 1)))
        return self._with_default(branches, node.args.get("default"), depth)

    def _if(self, node: exp.Expr, depth: int) -> Formula:
        when = self.read(node.this, depth + 1)
        branches = [(when, self.read(node.args["true"], depth + 1))]
        return self._with_default([*branches], node.args.get("false"), depth)

    def _with_default(
        self, branches: list[tuple[Formula | None, Formula]], last: exp.Expr | None, depth: int
    ) -> Formula:
        value = Constant(pa.scalar(None)) if last is None else self.read(last, depth + 1)
        return Case((*branches, (None, value)))

    def _cast(self, node: exp.Expr, depth: int) -> Formula:
        if any(given and name not in ("this", "to", "_type") for name, given in node.args.items()):
            raise self._unsupported(node)
        kind, item = node.args["to"], node.this
        try:
            wanted = parse_ddl(f"c {kind.sql(dialect='spark')}").field(0).type
        except SchemaError as error:
            raise self._unsupported(node) from error
        name = kind.this.name
        if item.key == "literal" and item.is_string and name in _DATES:
            return Constant(self._moment(node, str(item.this), wanted))
        return Cast(self.read(item, depth + 1), wanted)

    def _moment(self, node: exp.Expr, text: str, kind: pa.DataType) -> pa.Scalar:
        """Read a date or a time; without a zone it is UTC, whatever the zone of a session."""
        try:
            if pa.types.is_date(kind):
                return pa.scalar(day_of(text).days, pa.int32()).cast(kind)
            moment = moment_of(text)
            if moment.zoned and kind.tz is None:
                raise self._unsupported(node)
            return pa.scalar(moment.micros, pa.int64()).cast(kind)
        except ValueError as error:
            raise self._unsupported(node) from error

    def _trim(self, node: exp.Expr, depth: int) -> Formula:
        name = _TRIMS.get(str(node.args.get("position") or "").upper())
        if name is None or node.args.get("expression") is not None:
            raise self._unsupported(node)
        return Call(name, (self.read(node.this, depth + 1),))

    def _substring(self, node: exp.Expr, depth: int) -> Formula:
        ends = [self._whole(node, name) for name in ("start", "length") if node.args.get(name)]
        if not ends:
            raise self._unsupported(node)
        given = tuple(Constant(pa.scalar(number, pa.int64())) for number in ends)
        return Call("substring", (self.read(node.this, depth + 1), *given))

    def _whole(self, node: exp.Expr, name: str) -> int:
        found = self.read(node.args[name], 0)
        if isinstance(found, Call) and found.name == "negate" and name == "start":
            (inner,) = found.items
            sign = -1
        else:
            inner, sign = found, 1
        if isinstance(inner, Constant) and pa.types.is_integer(inner.value.type):
            return sign * int(inner.value.as_py())
        raise self._unsupported(node)

    def _name(self, node: exp.Expr) -> Formula:
        parts = getattr(node, "parts", [])  # of Column and Dot
        if not parts or any(part.key != "identifier" for part in parts):
            raise self._unsupported(node)
        return Name(tuple(part.name for part in parts))

    def _literal(self, node: exp.Expr) -> Formula:
        if node.is_string:
            return Constant(pa.scalar(str(node.this), pa.string()))
        text = str(node.this)
        if "e" in text.lower():
            return Constant(pa.scalar(float(text), pa.float64()))
        if "." in text:
            return Constant(pa.scalar(Decimal(text)))
        number = int(text)
        for kind in (pa.int32(), pa.int64()):
            if number < 1 << (kind.bit_width - 1):
                return Constant(pa.scalar(number, kind))
        return Constant(pa.scalar(Decimal(number)))

    def _unsupported(self, node: exp.Expr) -> PredicateError:
        try:
            part = node.sql(dialect="spark")[:100]
        except RecursionError:
            part = self._text[:100]
        message = f"{part!r} is not supported in the value {self._text[:200]!r}"
        hint = f"supported: {SUPPORTED}; or give a function of the rows"
        return PredicateError(message, hint=hint, text=self._text, position=start_of(node))


def _not(item: Formula) -> Formula:
    return Call("not", (item,))
