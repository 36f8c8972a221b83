"""SQL text in the definition of a table: conditions, bound to columns; texts with other names."""

from __future__ import annotations

import pyarrow as pa

from plait.errors import PredicateError
from plait.expr.bind import ALIASES, condition
from plait.expr.evaluate import Sides, holds
from plait.expr.parser import VALUE, parsed, refused
from plait.expr.sql import parse_expression
from plait.expr.tree import TARGET, Name, Predicate, bounded, columns_read, negate, parts_of
from plait.model.schema import Check


def bound_check(check: Check, schema: pa.Schema) -> Predicate:
    """Return the condition of a check over these columns.

    Raises:
        PredicateError: it is not understood, or does not fit the columns.
    """
    text = check.predicate
    plain = pa.schema([field.remove_metadata() for field in schema])
    bound = bounded(condition(parse_expression(text), {TARGET: plain}, text))
    try:
        holds(bound, Sides({TARGET: plain.empty_table()}, 0))
    except (pa.ArrowException, TypeError) as error:
        message = f"{text[:100]!r} is not a condition: {str(error)[:200]}"
        raise PredicateError(message, hint="write a comparison", text=text) from error
    return bound


def require_own_names(text: str, schema: pa.Schema) -> None:
    """Refuse the table's alias of a merge: a column that is called so later would be meant.

    Raises:
        PredicateError: the text names a column by it, or is not understood.
    """
    known = {name.lower() for name in schema.names}
    for part in parts_of(parse_expression(text)):
        if not isinstance(part, Name):
            continue
        first, *rest = part.parts
        if rest and ALIASES.get(first.lower()) == TARGET and first.lower() not in known:
            message = f"{'.'.join(part.parts)!r} names a column by {first!r}, as only merges do"
            hint = f"write {'.'.join(rest)!r}"
            raise PredicateError(message, hint=hint, text=text, column=rest[0])


def violation(check: Check, schema: pa.Schema) -> Predicate:
    """Return the condition of the rows that break a check; null breaks none.

    Raises:
        PredicateError: as ``bound_check``.
    """
    return negate(bound_check(check, schema))


def checked_columns(check: Check, schema: pa.Schema) -> frozenset[str]:
    """Return the columns that a check looks at."""
    return columns_read(bound_check(check, schema)) or frozenset()


def renamed_check(check: Check, old: str, new: str) -> Check:
    """Return a check in which a column has another name.

    >>> renamed_check(Check("paid", "fare > 0 AND tip.eur < fare"), "fare", "the price").predicate
    '`the price` > 0 AND tip.eur < `the price`'
    """
    return Check(check.name, renamed_text(check.predicate, old, new))


def renamed_text(text: str, old: str, new: str) -> str:
    """Return SQL text in which a column has another name."""
    with parsed(text, VALUE) as tree:
        for column in [node for node in tree.walk() if node.key == "column"]:
            first = column.parts[0]  # type: ignore[attr-defined]  # of a column
            if first.name.lower() == old.lower():
                first.set("this", new)
                first.set("quoted", True)  # noqa: FBT003 - sqlglot's
        renamed = tree.sql(dialect="spark")
    if not renamed:
        why = f"cannot rename a column in {text[:100]!r}"
        raise refused(text, VALUE, why)
    return renamed
