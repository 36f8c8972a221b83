"""Formulas: new values of columns, and the conditions of a merge, as a frozen tree.

A predicate (``tree``) is a condition on columns and literals that prunes files and is recorded in
decisions. A formula is never recorded: it computes, so it knows arithmetic, texts and functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import PredicateError
from plait.expr.tree import Column, find_column

TARGET, SOURCE = "t", "s"
ALIASES: Final = {"t": TARGET, "target": TARGET, "s": SOURCE, "source": SOURCE}
"""What the two sides of a merge may be called."""


@dataclass(frozen=True, slots=True)
class Name:
    """A column as it was written; no side and type yet."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """A column of one side, or a field of a struct column."""

    side: str
    column: Column


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function; ``name`` is one that ``formula_out`` knows."""

    name: str
    items: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true; the last one has no condition."""

    branches: tuple[tuple[Formula | None, Formula], ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """A value in another type."""

    item: Formula
    type: pa.DataType


@dataclass(frozen=True, eq=False)
class Arrow:
    """A pyarrow expression; evaluated by Arrow as it stands."""

    expression: pc.Expression


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the caller's: rows as a record batch in, an Arrow array of values out."""

    call: Callable[[pa.RecordBatch], object]


Formula: TypeAlias = Name | Ref | Constant | Call | Case | Cast | Arrow | Function
KINDS: Final = (Name, Ref, Constant, Call, Case, Cast, Arrow, Function)


def resolve(formula: Formula, sides: Mapping[str, pa.Schema], text: str) -> Formula:
    """Find the column of every name.

    Raises:
        PredicateError: a column is not there, or both sides of a merge have one of that name.
    """
    match formula:
        case Name(parts):
            return _find(parts, sides, text)
        case Call(_, items):
            return replace(formula, items=tuple(resolve(item, sides, text) for item in items))
        case Case(branches):
            found = tuple(
                (None if when is None else resolve(when, sides, text), resolve(item, sides, text))
                for when, item in branches
            )
            return Case(found)
        case Cast(item, kind):
            return Cast(resolve(item, sides, text), kind)
        case _:
            return formula


def _find(parts: tuple[str, ...], sides: Mapping[str, pa.Schema], text: str) -> Ref:
    side = ALIASES.get(parts[0].lower()) if len(parts) > 1 else None
    if len(sides) == 1:
        (only, schema), *_ = sides.items()
        known = {name.lower() for name in schema.names}
        if side is None or parts[0].lower() in known:
            return Ref(only, find_column(schema, parts, text))
    if side is not None:
        if side not in sides:
            which = "source" if side == SOURCE else "target"
            message = f"{'.'.join(parts)!r} asks for the {which}, which this value has not"
            hint = (
                "values of rows that are inserted come from the source, of others without a match"
            )
            raise PredicateError(message, hint=hint + " from the table", text=text)
        return Ref(side, find_column(sides[side], parts[1:], text))
    having = [
        each
        for each, schema in sides.items()
        if parts[0].lower() in {name.lower() for name in schema.names}
    ]
    if len(having) > 1:
        message = f"both the source and the table have a column {parts[0]!r}"
        hint = f"write s.{parts[0]} for the source's, t.{parts[0]} for the table's"
        raise PredicateError(message, hint=hint, text=text, column=parts[0])
    chosen = having[0] if having else next(iter(sides))
    return Ref(chosen, find_column(sides[chosen], parts, text))


def parts_of(formula: Formula) -> Iterator[Formula]:
    """Give a formula and everything in it."""
    stack: list[Formula] = [formula]
    while stack:
        node = stack.pop()
        yield node
        match node:
            case Call(_, items):
                stack.extend(items)
            case Case(branches):
                stack.extend(part for pair in branches for part in pair if part is not None)
            case Cast(item, _):
                stack.append(item)


def columns_read(formula: Formula, side: str) -> frozenset[str] | None:
    """Give the top-level columns of a side that a formula looks at; None: nobody can tell."""
    names: set[str] = set()
    for part in parts_of(formula):
        if isinstance(part, (Arrow, Function)):
            return None
        if isinstance(part, Ref) and part.side == side:
            names.add(part.column.path[0])
    return frozenset(names)
