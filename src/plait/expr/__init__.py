"""Expressions: SQL text or Arrow expressions in, one frozen tree, rows, Spark and JSON out."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import PredicateError
from plait.expr.bind import condition, require_bound
from plait.expr.ddl import parse_ddl
from plait.expr.implied import named_in
from plait.expr.json import from_json, retyped, to_json
from plait.expr.prune import Bounds, key_points, may_match
from plait.expr.spark_sql import to_sql
from plait.expr.sql import parse_expression, parse_predicate
from plait.expr.tree import (
    KINDS,
    TARGET,
    TRUE,
    Arrow,
    Expression,
    Function,
    Literal,
    Predicate,
    bounded,
    columns_read,
    negate,
)
from plait.model.value import is_plain, plain_value, to_text

Where: TypeAlias = str | pc.Expression | Predicate | None


def parse_where(where: Where, schema: pa.Schema) -> Predicate:
    """Return the predicate of any form that users may write; None matches every row.

    A pyarrow expression is evaluated by Arrow as it stands. Files are pruned by what follows from
    it (``expr/implied.py``). It can neither be recorded in a table nor handed to Spark, and has to
    name its columns.

    Raises:
        PredicateError: it cannot be understood, or does not fit the schema.
    """
    if where is None:
        return TRUE
    if isinstance(where, str):
        return bounded(condition(parse_predicate(where), {TARGET: schema}, where))
    if isinstance(where, pc.Expression):
        return _of_arrow(where, schema)
    if isinstance(where, KINDS):
        return bounded(require_bound(where, schema))
    message = f"not a predicate: {type(where).__qualname__}"
    raise PredicateError(
        message, hint="pass SQL text or a pyarrow expression", text=str(where)[:200]
    )


def _of_arrow(expression: pc.Expression, schema: pa.Schema) -> Predicate:
    # one row of nulls: some mistakes show only when there is a row
    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
    row = pa.table([pa.nulls(1, field.type) for field in plain], schema=plain)
    try:
        row.filter(expression)
    except (pa.ArrowException, NotImplementedError, TypeError) as error:
        shown = str(expression)[:200]
        message = f"the expression {shown} does not fit the table: {str(error)[:200]}"
        hint = f"columns: {', '.join(schema.names[:20])}"
        raise PredicateError(message, hint=hint, text=shown) from error
    named_in(expression, schema)
    return Arrow(expression)


def parse_value(value: object) -> Expression:
    """Return the expression, not bound yet, of anything that callers may write for a value.

    Text is SQL; so ``"'x'"`` is the text x, and ``"x"`` is a column.

    Raises:
        PredicateError: the text is not understood, or this is no value.

    >>> parse_value(3).raw
    3
    """
    if isinstance(value, KINDS):
        return value
    if isinstance(value, str):
        return parse_expression(value)
    if isinstance(value, pc.Expression):
        return Arrow(value)
    if callable(value):
        return Function(value)
    try:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        shown = repr(value)[:200]
        hint = "pass SQL text, a literal, a pyarrow scalar or expression, or a function"
        raise PredicateError(f"not a value of a column: {shown}", hint=hint, text=shown) from error
    if not scalar.is_valid or is_plain(scalar.type):
        try:
            return Literal(to_text(scalar, scalar.type), scalar.type)
        except ValueError as error:
            message = f"not a value of a column: {plain_value(scalar)}, which is not UTF-8"
            raise PredicateError(message, hint="decode it first", text="") from error
    return Arrow(pc.scalar(scalar))


__all__ = [
    "TRUE",
    "Bounds",
    "Predicate",
    "Where",
    "columns_read",
    "from_json",
    "key_points",
    "may_match",
    "negate",
    "parse_ddl",
    "parse_value",
    "parse_where",
    "retyped",
    "to_json",
    "to_sql",
]
