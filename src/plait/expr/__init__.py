"""Predicates: SQL text or Arrow expressions in, one frozen tree, Arrow, Spark and JSON out."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import PredicateError
from plait.expr.arrow_in import from_arrow
from plait.expr.arrow_out import to_arrow
from plait.expr.ddl import parse_ddl
from plait.expr.json import from_json, to_json
from plait.expr.prune import Bounds, key_points, may_match, on_partition, overlap
from plait.expr.spark_out import to_sql
from plait.expr.sql import parse_sql
from plait.expr.tree import (
    Always,
    And,
    Compare,
    Fixed,
    In,
    IsNull,
    Like,
    Opaque,
    Or,
    Predicate,
    bind,
    columns_of,
    negate,
)

Where: TypeAlias = str | pc.Expression | Predicate | None
_KINDS = (Always, Fixed, Compare, In, IsNull, Like, And, Or, Opaque)


def parse_where(where: Where, schema: pa.Schema) -> Predicate:
    """Give the predicate of any form that users may write; None matches every row.

    A pyarrow expression keeps the meaning that Arrow gives it. One that is more than a condition
    on columns and literals (it calls functions, casts, compares columns) is evaluated by Arrow as
    it stands: it prunes no files, and can neither be recorded in a table nor handed to Spark.

    Raises:
        PredicateError: it cannot be understood, or does not fit the schema.
    """
    if where is None:
        return Always(value=True)
    if isinstance(where, str):
        return parse_sql(where, schema)
    if isinstance(where, pc.Expression):
        return _of_arrow(where, schema)
    if isinstance(where, _KINDS):
        return bind(where, schema)
    message = f"not a predicate: {type(where).__qualname__}"
    raise PredicateError(message, hint="SQL text or a pyarrow expression", text=str(where)[:200])


def _of_arrow(expression: pc.Expression, schema: pa.Schema) -> Predicate:
    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
    found = from_arrow(expression, plain)
    if found is not None:
        return found
    # one row of nulls: some mistakes show only when there is a row
    row = pa.table([pa.nulls(1, field.type) for field in plain], schema=plain)
    try:
        row.filter(expression)
    except (pa.ArrowException, NotImplementedError, TypeError) as error:
        shown = str(expression)[:200]
        message = f"the expression {shown} does not fit the table: {str(error)[:200]}"
        hint = f"columns: {', '.join(schema.names[:20])}"
        raise PredicateError(message, hint=hint, text=shown) from error
    return Opaque(expression, tuple(schema.names), plain)


__all__ = [
    "Always",
    "Bounds",
    "Predicate",
    "Where",
    "columns_of",
    "from_json",
    "key_points",
    "may_match",
    "negate",
    "on_partition",
    "overlap",
    "parse_ddl",
    "parse_sql",
    "parse_where",
    "to_arrow",
    "to_json",
    "to_sql",
]
