"""Expressions: one frozen tree for conditions on rows and for the values that rows get.

A predicate is a Boolean expression, with SQL's three-valued logic: a row is selected only if the
predicate is TRUE for it. Binding (``bind``) looks up the columns and pushes every NOT into the
conditions, which is exact for nulls too. The predicates that are stored as JSON, sent to Spark and
used for pruning are ANDs and ORs of conditions on one column and literals (``is_simple``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import PredicateError
from plait.model.value import Raw, from_text, raw_text, raw_value

DEPTH_MAX: Final = 100
LEAVES_MAX: Final = 1_000
"""Conditions in a predicate: engines descend a level of their stack for each."""
VALUES_MAX: Final = 100_000
PATTERN_MAX: Final = 65_536
NEGATED: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", "<=": ">", ">": "<="}
TARGET, SOURCE = "t", "s"
"""The table's rows, and the rows that a merge brings."""
_ESCAPES = re.compile(r"(?:[^\\]|\\[%_\\])*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Name:
    """A column as it was written, before binding."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one side, or a field of a struct column; with its type."""

    path: tuple[str, ...]
    type: pa.DataType
    side: str = TARGET


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as canonical text, so that equal values are equal nodes; None is NULL."""

    text: str | None
    type: pa.DataType

    @classmethod
    def of(cls, raw: Raw, kind: pa.DataType) -> Self:
        """Return the literal of a raw value; raise ValueError if the type cannot hold it."""
        text = raw_text(raw, kind)
        raw_value(text, kind)
        return cls(text, kind)

    @property
    def raw(self) -> Raw:
        """The value, with dates and timestamps as numbers; it is not NULL."""
        return raw_value(self.text or "", self.type)

    @property
    def scalar(self) -> pa.Scalar:
        """The value as Arrow has it."""
        return pa.scalar(None, self.type) if self.text is None else from_text(self.text, self.type)


TRUE: Final = Literal("true", pa.bool_())
FALSE: Final = Literal("false", pa.bool_())
NULL: Final = Literal(None, pa.bool_())


@dataclass(frozen=True, slots=True)
class Compare:
    """One of = != < <= > >= <=> between two values; the last treats null as a value.

    Of a column and a literal there is no ``<=>`` after binding.
    """

    left: Expression
    op: str
    right: Expression


@dataclass(frozen=True, slots=True)
class In:
    """The item is one of the values; after binding none of these is NULL."""

    item: Expression
    values: tuple[Literal, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """The item is null; never NULL itself."""

    item: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like:
    """The item matches an SQL pattern with % and _, backslash escapes.

    Raises:
        PredicateError: a backslash stands before anything but %, _ and itself, as Spark has it.
    """

    item: Expression
    pattern: str
    negated: bool = False

    def __post_init__(self) -> None:
        """Refuse what Spark refuses."""
        item = self.item
        if isinstance(item, Column) and not pa.types.is_string(item.type):
            message = f"LIKE on column {'.'.join(item.path)!r}, which is not a string"
            raise PredicateError(
                message, hint="compare it with = or IN instead", text=self.pattern[:200]
            )
        if len(self.pattern) > PATTERN_MAX:
            message = f"a LIKE pattern of {len(self.pattern)} characters"
            raise PredicateError(message, hint=f"at most {PATTERN_MAX}", text=self.pattern[:200])
        if _ESCAPES.fullmatch(self.pattern) is None:
            message = f"invalid escape in the pattern {self.pattern[:200]!r}"
            hint = r"only \%, \_ and \\ are escapes; write a backslash as \\"
            raise PredicateError(message, hint=hint, text=self.pattern[:200])


@dataclass(frozen=True, slots=True)
class And:
    """All of them."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of them."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Any other operator, or a function; ``name`` is one that ``evaluate`` knows."""

    name: str
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is TRUE; the last one has no condition."""

    branches: tuple[tuple[Expression | None, Expression], ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """A value in another type."""

    item: Expression
    type: pa.DataType


@dataclass(frozen=True, eq=False)
class Arrow:
    """A pyarrow expression: Arrow evaluates it. We look into it to prune (``expr/implied.py``)."""

    expression: pc.Expression


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the caller's: rows as a record batch in, an Arrow array of values out."""

    call: Callable[[pa.RecordBatch], object]


Expression: TypeAlias = (
    Name
    | Column
    | Literal
    | Compare
    | In
    | IsNull
    | Like
    | And
    | Or
    | Call
    | Case
    | Cast
    | Arrow
    | Function
)
KINDS: Final = (
    *(Name, Column, Literal, Compare, In, IsNull, Like),
    *(And, Or, Call, Case, Cast, Arrow, Function),
)
Predicate: TypeAlias = Expression
"""An expression whose value is TRUE, FALSE or NULL."""


def negate(predicate: Predicate) -> Predicate:
    """Return NOT of a predicate, exact under three-valued logic."""
    match predicate:
        case Literal(text, kind) if pa.types.is_boolean(kind):
            return {"true": FALSE, "false": TRUE}.get(text or "", NULL)
        case Compare(left, op, right) if op in NEGATED:
            return Compare(left, NEGATED[op], right)
        case In() | IsNull() | Like():
            return replace(predicate, negated=not predicate.negated)
        case And(items):
            return any_of(*map(negate, items))
        case Or(items):
            return all_of(*map(negate, items))
        case Call("not", (item,)):
            return item
        case Arrow(expression):
            return Arrow(~expression)
    return Call("not", (predicate,))


def all_of(*items: Predicate) -> Predicate:
    """Return AND, flattened, without what is always true, exclusions of values put together."""
    flat = [leaf for item in items for leaf in (item.items if isinstance(item, And) else (item,))]
    if FALSE in flat:
        return FALSE
    kept = _merged((item for item in flat if item != TRUE), negated=True)
    return And(kept) if len(kept) > 1 else kept[0] if kept else TRUE


def any_of(*items: Predicate) -> Predicate:
    """Return OR, flattened, without what is always false, values of a column put together.

    >>> column = Column(("id",), pa.int64())
    >>> leaves = [Compare(column, "=", Literal(text, column.type)) for text in "12"]
    >>> [value.text for value in any_of(*leaves).values]
    ['1', '2']
    """
    flat = [leaf for item in items for leaf in (item.items if isinstance(item, Or) else (item,))]
    if TRUE in flat:
        return TRUE
    kept = _merged((item for item in flat if item != FALSE), negated=False)
    return Or(kept) if len(kept) > 1 else kept[0] if kept else FALSE


def _merged(items: Iterable[Predicate], *, negated: bool) -> tuple[Predicate, ...]:
    """Drop repetitions, and make one IN of the values that a column is compared with."""
    kept: dict[Predicate, None] = {}
    values: dict[Column, dict[Literal, None]] = {}
    first: dict[Column, Predicate] = {}
    for item in items:
        column_values = _values_of(item, negated=negated)
        if column_values is None:
            kept[item] = None
            continue
        column, added = column_values
        if column not in first:
            first[column] = item
            kept[item] = None
        values.setdefault(column, {}).update(dict.fromkeys(added))
    whole = {
        item: In(column, tuple(values[column]), negated)
        for column, item in first.items()
        if values[column].keys() != set((_values_of(item, negated=negated) or (column, ()))[1])
    }
    return tuple(whole.get(item, item) for item in kept)


def _values_of(item: Predicate, *, negated: bool) -> tuple[Column, tuple[Literal, ...]] | None:
    match item:
        case Compare(Column() as column, op, Literal() as value):
            return (column, (value,)) if op == ("!=" if negated else "=") else None
        case In(Column() as column, values, found) if found is negated:
            return column, values
    return None


def is_simple(predicate: Predicate) -> bool:
    """Tell whether this is a constant or a condition on one column and literals.

    Such a condition has an answer for every row, whatever its values.
    """
    match predicate:
        case Literal(_, kind):
            return bool(pa.types.is_boolean(kind))
        case Compare(Column(), _, Literal()) | In(Column()) | IsNull(Column()) | Like(Column()):
            return True
    return False


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """Return the predicates that must all be TRUE."""
    return predicate.items if isinstance(predicate, And) else (predicate,)


def leaves(predicate: Predicate) -> Iterator[Predicate]:
    """Yield the conditions that AND and OR join."""
    stack = [predicate]
    while stack:
        node = stack.pop()
        if isinstance(node, (And, Or)):
            stack.extend(reversed(node.items))
        else:
            yield node


def bounded(predicate: Predicate) -> Predicate:
    """Return the predicate itself; raise PredicateError if it has too many conditions."""
    count = sum(1 for _ in itertools.islice(leaves(predicate), LEAVES_MAX + 1))
    if count > LEAVES_MAX:
        message = f"a predicate of more than {LEAVES_MAX} conditions"
        hint = "use IN for many values of a column, or pass keys instead of a predicate"
        raise PredicateError(message, hint=hint, text="")
    return predicate


def parts_of(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and everything in it that is computed from rows."""
    stack: list[Expression] = [expression]
    while stack:
        node = stack.pop()
        yield node
        match node:
            case Compare(left, _, right):
                stack += (left, right)
            case In(item) | IsNull(item) | Like(item) | Cast(item):
                stack.append(item)
            case And(items) | Or(items) | Call(_, items):
                stack += items
            case Case(branches):
                stack += [part for pair in branches for part in pair if part is not None]


def columns_read(expression: Expression, side: str = TARGET) -> frozenset[str] | None:
    """Return the top-level columns of a side that are looked at; None if nobody can tell."""
    names: set[str] = set()
    for part in parts_of(expression):
        if isinstance(part, (Arrow, Function)):
            return None
        if isinstance(part, Column) and part.side == side:
            names.add(part.path[0])
    return frozenset(names)


def paths_in(predicate: Predicate) -> list[tuple[str, ...]]:
    """Return the paths of the columns, and of their members, that are looked at, each once."""
    found = (part.path for part in parts_of(predicate) if isinstance(part, Column))
    return list(dict.fromkeys(found))


def opaque(predicate: Predicate, what: str) -> PredicateError:
    """Return the error for a predicate of which more is wanted than to evaluate it."""
    expression = predicate.expression if isinstance(predicate, Arrow) else predicate
    shown = str(expression)[:200]
    message = f"the expression {shown} cannot be {what}"
    return PredicateError(message, hint="pass the predicate as SQL text", text=shown)
