"""Binding: columns looked up by name, and each literal in the type of the column beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from plait.errors import PredicateError
from plait.expr.literal import compare, contained
from plait.expr.tree import (
    NULL,
    SOURCE,
    TARGET,
    And,
    Call,
    Case,
    Cast,
    Column,
    Compare,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Or,
    Predicate,
    all_of,
    any_of,
    negate,
    parts_of,
)
from plait.model.schema import type_name

ALIASES: Final = {"t": TARGET, "target": TARGET, "s": SOURCE, "source": SOURCE}
"""What the two sides of a merge may be called."""
_NO_MEMBERS: Final = pa.struct([])


class MergeSides(dict[str, pa.Schema]):
    """The rows that a clause of a merge sees, one side or both.

    In every clause an alias before a dot is the side, whatever the columns are called: else a new
    column of the table or of a source would change what a clause means.
    """


_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def bind(expression: Expression, sides: Mapping[str, pa.Schema], text: str = "") -> Expression:
    """Look up every column of an expression.

    Args:
        expression: what was parsed.
        sides: the schema of the rows on each side; in a merge, ``MergeSides``.
        text: what the user wrote, for messages.

    Raises:
        PredicateError: a column is not there, is there on both sides of a merge, or cannot be
            compared with its literal.
    """
    match expression:
        case Name(parts):
            return _find(parts, sides, text)
        case Compare(left, op, right):
            return _compared(bind(left, sides, text), op, bind(right, sides, text), text)
        case In(item, values, negated):
            contained = _contained(bind(item, sides, text), values, text)
            return negate(contained) if negated else contained
        case And(items):
            return all_of(*(condition(item, sides, text) for item in items))
        case Or(items):
            return any_of(*(condition(item, sides, text) for item in items))
        case Call("not", (item,)):
            return negate(condition(item, sides, text))
        case Call(name, items):
            return Call(name, tuple(bind(item, sides, text) for item in items))
        case Case(branches):
            return Case(tuple(_branch(*branch, sides, text) for branch in branches))
        case IsNull() | Like() | Cast():
            return replace(expression, item=bind(expression.item, sides, text))
    return expression


def condition(expression: Expression, sides: Mapping[str, pa.Schema], text: str = "") -> Predicate:
    """Bind an expression that stands where a condition must stand."""
    bound = bind(expression, sides, text)
    match bound:
        case Literal(None, _):
            return NULL
        case Column(_, kind) if pa.types.is_boolean(kind):
            return Compare(bound, "=", Literal("true", kind))
        case Column(_, kind) | Literal(_, kind) | Cast(_, kind) if not pa.types.is_boolean(kind):
            shown = ".".join(bound.path) if isinstance(bound, Column) else text[:100]
            message = f"{shown!r} is {type_name(kind)}, not a condition"
            raise PredicateError(message, hint="write a comparison", text=text)
    return bound


def _branch(
    when: Expression | None, value: Expression, sides: Mapping[str, pa.Schema], text: str
) -> tuple[Expression | None, Expression]:
    return None if when is None else condition(when, sides, text), bind(value, sides, text)


def _compared(left: Expression, op: str, right: Expression, text: str) -> Predicate:
    match left, right:
        case Column() as column, Literal() as literal:
            return compare(column, op, literal, text)
        case Literal() as literal, Column() as column:
            return compare(column, _MIRRORED.get(op, op), literal, text)
    return Compare(left, op, right)


def _contained(item: Expression, values: tuple[Literal, ...], text: str) -> Predicate:
    if isinstance(item, Column):
        return contained(item, values, text)
    known = tuple(value for value in values if value.text is not None)
    known_in = In(item, known) if known else NULL
    return known_in if len(known) == len(values) else any_of(known_in, NULL)


def _find(parts: tuple[str, ...], sides: Mapping[str, pa.Schema], text: str) -> Column:
    side = ALIASES.get(parts[0].lower()) if len(parts) > 1 else None
    having = [each for each, schema in sides.items() if _place(schema, parts[0]) is not None]
    aliased = isinstance(sides, MergeSides) or len(sides) > 1
    if side is not None and (aliased or not having):
        return _find_in(side, parts, sides, having, text)
    if len(having) > 1:
        message = f"both the source and the table have a column {parts[0]!r}"
        hint = f"write s.{parts[0]} for the source's, t.{parts[0]} for the table's"
        raise PredicateError(message, hint=hint, text=text, column=parts[0])
    side, *_ = having or sides
    return find_column(sides[side], parts, text, side)


def _find_in(
    side: str,
    parts: tuple[str, ...],
    sides: Mapping[str, pa.Schema],
    having: Sequence[str],
    text: str,
) -> Column:
    """Find what follows an alias; the error says how to reach a column that is called like it."""
    alias, name = parts[0], ".".join(parts)
    which = {SOURCE: "source", TARGET: "table"}
    ways = " or ".join(f"{each}.{name} for the {which[each]}'s column {alias!r}" for each in having)
    if side in sides:
        try:
            return find_column(sides[side], parts[1:], text, side)
        except PredicateError as error:
            if not ways:
                raise
            message = f"{error.message} in the {which[side]}, which {alias!r} stands for in a merge"
            hint = f"write {ways}; {error.hint}"
            raise PredicateError(message, hint=hint, text=text, column=parts[1]) from error
    message = f"{name!r} refers to the {which[side]}, which is not available here"
    hint = "inserted rows have only a source, and unmatched table rows only the table"
    hint += f"; write {ways}" if ways else " from the table"
    raise PredicateError(message, hint=hint, text=text, column=parts[1])


def require_bound(predicate: Predicate, schema: pa.Schema) -> Predicate:
    """Return a predicate that was bound before; raise PredicateError if to another table."""
    for column in {part for part in parts_of(predicate) if isinstance(part, Column)}:
        column_now = find_column(schema, column.path)
        if column_now != column:
            name = ".".join(column.path)
            message = f"the predicate asks for column {name!r} of type {column.type}, "
            message += f"found {column_now.type}"
            hint = "parse it with the schema of this table"
            raise PredicateError(message, hint=hint, text="", column=name)
    return predicate


def find_column(
    schema: pa.Schema, path: tuple[str, ...], text: str = "", side: str = TARGET
) -> Column:
    """Find a column by name, whatever its case; raise PredicateError if there is none."""
    within: pa.Schema | pa.StructType = schema
    names: list[str] = []
    kind: pa.DataType | None = None
    if not path:
        raise PredicateError("a column without a name", text=text)
    for part in path:
        at = _place(within, part)
        if at is None:
            known = ", ".join(within.names[:20]) or "none"
            message = f"unknown column {'.'.join(path)!r}"
            raise PredicateError(message, hint=f"columns: {known}", text=text, column=part)
        found = within.field(at)
        names.append(found.name)
        kind = found.type
        within = kind if pa.types.is_struct(kind) else _NO_MEMBERS
    return Column(tuple(names), kind, side)


def _place(within: pa.Schema | pa.StructType, name: str) -> int | None:
    """Return the place of a field: the one with exactly this name, or else in another case."""
    at = int(within.get_field_index(name))  # most names are exact, and this looks at no other
    if at >= 0:
        return at
    low, names = name.lower(), within.names
    if name in names:
        return int(names.index(name))
    return next((at for at, each in enumerate(names) if each.lower() == low), None)
