"""Predicates as a frozen tree with one meaning everywhere: SQL's three-valued logic.

There is no node for NOT: negation is pushed to the leaves when a tree is built, where it is exact
also for nulls. A row is selected only if the predicate is TRUE for it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import PredicateError
from plait.model.value import Raw, raw_value

DEPTH_MAX = 100
LEAVES_MAX = 1_000
"""Arrow descends a level of the stack for each leaf, and does not come back from ten thousand."""
VALUES_MAX = 100_000
PATTERN_MAX = 65_536
_ESCAPES = re.compile(r"(?:[^\\]|\\[%_\\])*", re.DOTALL)
NEGATED = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", "<=": ">", ">": "<="}


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct column; with its type."""

    path: tuple[str, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Value:
    """A literal in the type of its column, as canonical text."""

    text: str
    type: pa.DataType

    @property
    def raw(self) -> Raw:
        """The value: dates and timestamps as numbers."""
        return raw_value(self.text, self.type)


@dataclass(frozen=True, slots=True)
class Always:
    """TRUE, FALSE or NULL for every row."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Fixed:
    """TRUE or FALSE where the column has a value, NULL where it has none."""

    column: Column
    value: bool


@dataclass(frozen=True, slots=True)
class Compare:
    """Column, one of = != < <= > >=, value."""

    column: Column
    op: str
    value: Value


@dataclass(frozen=True, slots=True)
class In:
    """Column in values, none of them null."""

    column: Column
    values: tuple[Value, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """Column is null; never NULL itself."""

    column: Column
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like:
    """Column matches an SQL pattern with % and _, backslash escapes.

    Raises:
        PredicateError: a backslash stands before anything but %, _ and itself, as Spark has it.
    """

    column: Column
    pattern: str
    negated: bool = False

    def __post_init__(self) -> None:
        """Refuse what Spark refuses."""
        if not pa.types.is_string(self.column.type):
            message = f"LIKE on column {'.'.join(self.column.path)!r}, which is no string"
            raise PredicateError(message, hint="compare it instead", text=self.pattern[:200])
        if len(self.pattern) > PATTERN_MAX:
            message = f"a LIKE pattern of {len(self.pattern)} characters"
            raise PredicateError(message, hint=f"at most {PATTERN_MAX}", text=self.pattern[:200])
        if _ESCAPES.fullmatch(self.pattern) is None:
            message = f"a backslash escapes nothing in the pattern {self.pattern[:200]!r}"
            hint = r"only \%, \_ and \\ are escapes; write a backslash as \\"
            raise PredicateError(message, hint=hint, text=self.pattern[:200])


@dataclass(frozen=True, slots=True)
class And:
    """All of them."""

    items: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of them."""

    items: tuple[Predicate, ...]


@dataclass(frozen=True, eq=False)
class Opaque:
    """A pyarrow expression: evaluated by Arrow, never looked into, so it prunes nothing."""

    expression: pc.Expression
    names: tuple[str, ...]
    schema: pa.Schema
    negated: bool = False


Predicate: TypeAlias = Always | Fixed | Compare | In | IsNull | Like | And | Or | Opaque


def negate(predicate: Predicate) -> Predicate:
    """Give NOT of a predicate, exact under three-valued logic."""
    match predicate:
        case Always(value):
            return Always(None if value is None else not value)
        case Fixed(column, value):
            return Fixed(column, not value)
        case Compare(column, op, value):
            return Compare(column, NEGATED[op], value)
        case In(column, values, negated):
            return In(column, values, not negated)
        case IsNull(column, negated):
            return IsNull(column, not negated)
        case Like(column, pattern, negated):
            return Like(column, pattern, not negated)
        case And(items):
            return any_of(*map(negate, items))
        case Or(items):
            return all_of(*map(negate, items))
        case Opaque(expression, names, schema, negated):
            return Opaque(expression, names, schema, not negated)


def all_of(*items: Predicate) -> Predicate:
    """Give AND, flattened, without what is always true, exclusions of values put together."""
    flat = [leaf for item in items for leaf in (item.items if isinstance(item, And) else (item,))]
    if any(_always(item, value=False) for item in flat):
        return Always(value=False)
    kept = _merged((item for item in flat if not _always(item, value=True)), negated=True)
    if len(kept) == 1:
        return kept[0]
    return (_fixed(kept, value=False) or And(kept)) if kept else Always(value=True)


def any_of(*items: Predicate) -> Predicate:
    """Give OR, flattened, without what is always false, values of a column put together.

    >>> column = Column(("id",), pa.int64())
    >>> leaves = [Compare(column, "=", Value(text, column.type)) for text in "12"]
    >>> [value.text for value in any_of(*leaves).values]
    ['1', '2']
    """
    flat = [leaf for item in items for leaf in (item.items if isinstance(item, Or) else (item,))]
    if any(_always(item, value=True) for item in flat):
        return Always(value=True)
    kept = _merged((item for item in flat if not _always(item, value=False)), negated=False)
    if len(kept) == 1:
        return kept[0]
    return (_fixed(kept, value=True) or Or(kept)) if kept else Always(value=False)


def _merged(items: Iterable[Predicate], *, negated: bool) -> tuple[Predicate, ...]:
    """Drop repetitions, and make one IN of the values that a column is compared with."""
    kept: dict[Predicate, None] = {}
    values: dict[Column, dict[Value, None]] = {}
    first: dict[Column, Predicate] = {}
    for item in items:
        found = _values_of(item, negated=negated)
        if found is None:
            kept[item] = None
            continue
        column, added = found
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


def _values_of(item: Predicate, *, negated: bool) -> tuple[Column, tuple[Value, ...]] | None:
    match item:
        case Compare(column, op, value) if op == ("!=" if negated else "="):
            return column, (value,)
        case In(column, values, found) if found is negated:
            return column, values
    return None


def _always(item: Predicate, *, value: bool) -> bool:
    return isinstance(item, Always) and item.value is value


def _fixed(items: tuple[Predicate, ...], *, value: bool) -> Fixed | None:
    """Find the SQL form of Fixed: ``c IS NOT NULL OR NULL``, ``c IS NULL AND NULL``."""
    match items:
        case (IsNull(column, negated), Always(None)) | (Always(None), IsNull(column, negated)):
            return Fixed(column, value) if negated is value else None
    return None


def leaves(predicate: Predicate) -> Iterator[Predicate]:
    """Give every leaf."""
    stack = [predicate]
    while stack:
        node = stack.pop()
        if isinstance(node, (And, Or)):
            stack.extend(reversed(node.items))
        else:
            yield node


def bounded(predicate: Predicate) -> Predicate:
    """Give the predicate back; raise PredicateError if it has too many conditions."""
    count = sum(1 for _ in itertools.islice(leaves(predicate), LEAVES_MAX + 1))
    if count > LEAVES_MAX:
        message = f"a predicate of more than {LEAVES_MAX} conditions"
        hint = "list the values of a column with IN, or give keys instead of a predicate"
        raise PredicateError(message, hint=hint, text="")
    return predicate


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Give the top-level columns that a predicate looks at."""
    names: set[str] = set()
    for leaf in leaves(predicate):
        if isinstance(leaf, Opaque):
            names.update(leaf.names)
        elif not isinstance(leaf, (Always, And, Or)):
            names.add(leaf.column.path[0])
    return frozenset(names)


def bind(predicate: Predicate, schema: pa.Schema) -> Predicate:
    """Give the predicate back if its columns are those of a schema.

    Raises:
        PredicateError: a column is not there, or has another type: it was made for another table;
            or there are too many conditions.
    """
    bounded(predicate)
    seen: set[Column] = set()
    for leaf in leaves(predicate):
        if isinstance(leaf, (Always, And, Or, Opaque)) or leaf.column in seen:
            continue
        found = find_column(schema, leaf.column.path, "")
        if found != leaf.column:
            name, kind = ".".join(leaf.column.path), leaf.column.type
            message = f"the predicate asks for column {name!r} of type {kind}, found {found.type}"
            hint = "parse it with the schema of this table"
            raise PredicateError(message, hint=hint, text="", column=name)
        seen.add(leaf.column)
    return predicate


def find_column(schema: pa.Schema, path: tuple[str, ...], text: str) -> Column:
    """Find a column by name, whatever its case; raise PredicateError if there is none."""
    fields = list(schema)
    names: list[str] = []
    kind: pa.DataType | None = None
    if not path:
        message = "a column without a name"
        raise PredicateError(message, text=text)
    for part in path:
        found = [field for field in fields if field.name == part]
        found = found or [field for field in fields if field.name.lower() == part.lower()]
        if not found:
            known = ", ".join(field.name for field in fields[:20]) or "none"
            message = f"no column is called {'.'.join(path)!r}"
            raise PredicateError(message, hint=f"columns: {known}", text=text, column=part)
        names.append(found[0].name)
        kind = found[0].type
        fields = list(kind.fields) if pa.types.is_struct(kind) else []
    return Column(tuple(names), kind)
