"""SQL text to expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NoReturn

import pyarrow as pa

from plait.errors import PredicateError
from plait.expr.cast import cast
from plait.expr.ddl import type_of
from plait.expr.literal import has_zone, temporal
from plait.expr.parser import DIGITS_MAX, PREDICATE, VALUE, parsed, refused, start_of
from plait.expr.tree import (
    DEPTH_MAX,
    And,
    Call,
    Case,
    Cast,
    Compare,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Or,
)
from plait.model.value import is_plain, to_text

if TYPE_CHECKING:
    from sqlglot import exp

_COMPARISONS: Final = {
    "eq": "=",
    "neq": "!=",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
    "nullsafeeq": "<=>",
    "nullsafeneq": "<=>",  # under a NOT
}
_OPERATORS: Final = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "mod": "%",
    "dpipe": "concat",
    "nullif": "nullif",
}
"""Nodes of two operands."""
_FUNCTIONS: Final = frozenset(
    ("abs", "floor", "ceil", "upper", "lower", "length", "coalesce", "greatest", "least", "concat")
)
"""Nodes of one operand, or of a list."""
_TRIMS: Final = {"": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
# Any other argument of a node is a modifier (FORMAT, ESCAPE, a query) that would be lost.
_ARGUMENTS: Final = frozenset(
    ("this", "expression", "expressions", "low", "high", "ifs", "default", "true", "to", "start")
) | {"length", "position", "false", "safe", "typed", "is_string", "ignore_nulls", "table", "db"}
_OWN_ARGUMENTS: Final = {
    **dict.fromkeys(("cast", "trycast"), frozenset(("this", "to", "_type"))),
    "coalesce": _ARGUMENTS | {"is_nvl", "is_null"},
    "column": _ARGUMENTS | {"catalog"},
    "like": _ARGUMENTS | {"negate"},
}
ARGUMENTS_MAX: Final = 1_000
_NUMBER: Final = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)


def parse_predicate(text: str) -> Expression:
    """Return a condition on columns and literals as Spark SQL reads it, not bound yet.

    A timestamp without a zone is UTC, whatever the zone of a session.

    Raises:
        PredicateError: the text cannot be parsed, or is more than conditions on one column and
            literals, joined by AND, OR and NOT.
    """
    return _read(text, PREDICATE)


def parse_expression(text: str) -> Expression:
    """Return any supported expression as Spark SQL reads it, not bound yet.

    Raises:
        PredicateError: the text cannot be parsed, or a part of it is not supported.
    """
    return _read(text, VALUE)


def _read(text: str, what: str) -> Expression:
    with parsed(text, what) as tree:
        return _Reader(text, what).read(tree, 0)


class _Reader:
    """Walks the parser's tree for one text."""

    def __init__(self, text: str, what: str) -> None:
        self._text, self._what = text, what
        self._narrow = what == PREDICATE
        self._nodes: dict[str, Callable[[exp.Expr, int], Expression]] = {
            "paren": lambda node, depth: self.read(node.this, depth + 1),
            "column": lambda node, _: self._name(node),
            "dot": lambda node, _: self._name(node),
            "null": lambda _node, _: Literal(None, pa.null()),
            "boolean": lambda node, _: _boolean(node),
            "literal": lambda node, _: self._literal(node),
            "hexstring": lambda node, _: self._bytes(node),
            "neg": self._negative,
            "cast": self._cast,
            "trycast": self._cast,
            "not": lambda node, depth: _not(self.read(node.this, depth + 1)),
            "and": lambda node, depth: And(self._joined(node, depth)),
            "or": lambda node, depth: Or(self._joined(node, depth)),
            **dict.fromkeys(_COMPARISONS, self._comparison),
            "nullsafeneq": lambda node, depth: _not(self._comparison(node, depth)),
            "is": self._is,
            "in": self._in,
            "between": self._between,
            "like": self._like,
        }
        if not self._narrow:
            self._nodes |= {
                "case": self._case,
                "if": self._if,
                "trim": self._trim,
                "substring": self._substring,
                **dict.fromkeys(_OPERATORS, self._binary),
                **dict.fromkeys(_FUNCTIONS, self._function),
            }

    def read(self, node: exp.Expr, depth: int) -> Expression:
        """Read one node."""
        if depth > DEPTH_MAX:
            message = f"the {self._what} {self._text[:100]!r} is nested too deeply"
            raise PredicateError(message, hint=f"at most {DEPTH_MAX} levels", text=self._text)
        allowed = _OWN_ARGUMENTS.get(node.key, _ARGUMENTS)
        if any(given and name not in allowed for name, given in node.args.items()):
            self._refuse(node)
        reader = self._nodes.get(node.key)
        if reader is None:
            self._refuse(node)
        return reader(node, depth)

    def _operands(self, nodes: Sequence[exp.Expr], depth: int) -> tuple[Expression, ...]:
        """Read what is compared or computed with; in a predicate one column and literals."""
        items = tuple(self.read(node, depth + 1) for node in nodes)
        if self._narrow:
            mirrored = len(items) == 2 and isinstance(items[0], Literal)  # noqa: PLR2004 - a pair
            for at, item in enumerate(items):
                if not isinstance(item, Name if at == mirrored else Literal):
                    self._refuse(nodes[0] if isinstance(item, Literal) else nodes[at])
        return items

    def _binary(self, node: exp.Expr, depth: int) -> Expression:
        return Call(_OPERATORS[node.key], self._operands((node.this, node.expression), depth))

    def _function(self, node: exp.Expr, depth: int) -> Expression:
        given = [item for item in (node.args.get("this"), *node.expressions) if item]
        if len(given) > ARGUMENTS_MAX:
            message = f"{node.key.upper()} of {len(given)} values, in {self._text[:100]!r}"
            hint = f"a function takes at most {ARGUMENTS_MAX}"
            raise PredicateError(message, hint=hint, text=self._text[:200])
        return Call(node.key, self._operands(given, depth))

    def _comparison(self, node: exp.Expr, depth: int) -> Expression:
        left, right = self._operands((node.this, node.expression), depth)
        return Compare(left, _COMPARISONS[node.key], right)

    def _joined(self, node: exp.Expr, depth: int) -> tuple[Expression, ...]:
        return tuple(self.read(item, depth + 1) for item in node.flatten())

    def _is(self, node: exp.Expr, depth: int) -> Expression:
        (item,) = self._operands((node.this,), depth)
        if node.expression.key == "null":
            return IsNull(item)
        if node.expression.key != "boolean":
            self._refuse(node)
        return Compare(item, "<=>", _boolean(node.expression))

    def _in(self, node: exp.Expr, depth: int) -> Expression:
        if not node.expressions:
            self._refuse(node)
        item, *values = self._operands((node.this, *node.expressions), depth)
        literals = tuple(value for value in values if isinstance(value, Literal))
        if len(literals) == len(values):
            return In(item, literals)
        return Or(tuple(Compare(item, "=", value) for value in values))

    def _between(self, node: exp.Expr, depth: int) -> Expression:
        ends = node.this, node.args["low"], node.args["high"]
        item, low, high = self._operands(ends, depth)
        return And((Compare(item, ">=", low), Compare(item, "<=", high)))

    def _like(self, node: exp.Expr, depth: int) -> Expression:
        item, pattern = self._operands((node.this, node.expression), depth)
        if not isinstance(pattern, Literal) or pattern.type != pa.string() or pattern.text is None:
            self._refuse(node)
        return Like(item, pattern.text, negated=bool(node.args.get("negate")))

    def _case(self, node: exp.Expr, depth: int) -> Expression:
        subject = None if node.this is None else self.read(node.this, depth + 1)
        branches: list[tuple[Expression | None, Expression]] = []
        for branch in node.args["ifs"]:
            when = self.read(branch.this, depth + 1)
            when = when if subject is None else Compare(subject, "=", when)
            branches.append((when, self.read(branch.args["true"], depth + 1)))
        return Case((*branches, self._last(node.args.get("default"), depth)))

    def _if(self, node: exp.Expr, depth: int) -> Expression:
        when = self.read(node.this, depth + 1)
        branch = when, self.read(node.args["true"], depth + 1)
        return Case((branch, self._last(node.args.get("false"), depth)))

    def _last(self, node: exp.Expr | None, depth: int) -> tuple[None, Expression]:
        return None, Literal(None, pa.null()) if node is None else self.read(node, depth + 1)

    def _trim(self, node: exp.Expr, depth: int) -> Expression:
        name = _TRIMS.get(str(node.args.get("position") or "").upper())
        if name is None or node.args.get("expression") is not None:
            self._refuse(node)
        return Call(name, (self.read(node.this, depth + 1),))

    def _substring(self, node: exp.Expr, depth: int) -> Expression:
        given = [node.args[name] for name in ("this", "start", "length") if node.args.get(name)]
        item, *ends = self._operands(given, depth)
        if not ends or not all(
            isinstance(end, Literal) and pa.types.is_integer(end.type) for end in ends
        ):
            self._refuse(node)
        return Call("substring", (item, *ends))

    def _name(self, node: exp.Expr) -> Name:
        parts = getattr(node, "parts", [])  # of Column and Dot
        if not parts or any(part.key != "identifier" for part in parts):
            self._refuse(node)
        return Name(tuple(part.name for part in parts))

    # --- literals ------------------------------------------------------------------------------

    def _literal(self, node: exp.Expr, sign: str = "") -> Literal:
        text = str(node.this)
        if node.is_string:
            return Literal(text, pa.string())
        if len(text) > DIGITS_MAX or _NUMBER.fullmatch(text) is None:
            self._refuse(node)
        if "e" in text.lower():
            return Literal.of(float(sign + text), pa.float64())
        value = Decimal(sign + text)
        if "." not in text:
            for kind in (pa.int32(), pa.int64()):
                if -(1 << (kind.bit_width - 1)) <= value < 1 << (kind.bit_width - 1):
                    return Literal(str(int(value)), kind)
        kind = pa.scalar(value).type
        if not is_plain(kind):
            self._refuse(node)  # more digits than any column has
        return Literal.of(value, kind)

    def _negative(self, node: exp.Expr, depth: int) -> Expression:
        if node.this.key == "literal" and not node.this.is_string:
            return self._literal(node.this, "-")
        item = self.read(node.this, depth + 1)
        if self._narrow:
            self._refuse(node)
        return Call("negate", (item,))

    def _bytes(self, node: exp.Expr) -> Literal:
        start, digits = start_of(node), str(node.this)
        if start is not None and self._text[start] not in "xX":
            self._refuse(node)  # 0x10 is no literal of Spark's
        try:
            value = bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0"))
        except ValueError:
            self._refuse(node)
        return Literal.of(value, pa.binary())

    def _cast(self, node: exp.Expr, depth: int) -> Expression:
        """Read a cast; that of a literal (DATE '...', 5L) is a literal itself."""
        try:
            wanted = type_of(node.args["to"])
        except ValueError:
            self._refuse(node)
        item = self.read(node.this, depth + 1)
        if isinstance(item, Literal):
            return self._typed(node, item, wanted)
        if self._narrow:
            self._refuse(node)
        return Cast(item, wanted)

    def _typed(self, node: exp.Expr, literal: Literal, kind: pa.DataType) -> Literal:
        if literal.text is None:
            return Literal(None, kind)
        if not is_plain(kind):
            self._refuse(node)
        try:
            if pa.types.is_string(literal.type) and pa.types.is_temporal(kind):
                if self._narrow and pa.types.is_timestamp(kind) and not has_zone(literal.text):
                    kind = pa.timestamp("us")  # compares with columns of both kinds
                return temporal(literal.text, kind)
            return Literal(to_text(cast(literal.scalar, kind), kind), kind)
        except PredicateError:
            self._refuse(node)
        except (ValueError, pa.ArrowException) as error:
            name = node.args["to"].sql(dialect="spark")
            message = f"{literal.text[:200]} is not a valid {name}, in {self._text[:200]!r}"
            hint = "write DATE '2026-01-31' or TIMESTAMP '2026-01-31 12:00:00Z', or a plain number"
            raise PredicateError(
                message, hint=hint, text=self._text, position=start_of(node)
            ) from error

    def _refuse(self, node: exp.Expr) -> NoReturn:
        position = start_of(node)
        try:
            part = node.sql(dialect="spark")[:100]
        except RecursionError:
            part = self._text[position or 0 :][:100]
        message = f"{part!r} is not supported in the {self._what} {self._text[:200]!r}"
        if self._narrow and node.key == "concat":
            hint = r"write a quote inside text as \'; adjacent texts are not joined"
            raise PredicateError(message, hint=hint, text=self._text, position=position)
        raise refused(self._text, self._what, message, position)


def _boolean(node: exp.Expr) -> Literal:
    return Literal("true" if node.this else "false", pa.bool_())


def _not(item: Expression) -> Expression:
    return Call("not", (item,))
