"""DataFrames that were made for older columns of a table, as rows of its columns now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from plait.errors import RetryableConflictError
from plait.expr.spark_sql import typed_literal
from plait.model.defaults import default_value
from plait.model.instant import Operation
from plait.model.request import WritePlan
from plait.model.schema import Schema, ids_by_path, type_name
from plait.model.value import to_text
from plait.spark.route import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def in_columns_of(plan: WritePlan, frames: Sequence[DataFrame], old: Schema) -> list[DataFrame]:
    """Return the DataFrames of a write in the columns that the table has now.

    Args:
        plan: what is to be done with them now.
        frames: what came.
        old: the columns under which it came.

    Raises:
        RetryableConflictError: the write has clauses, which name columns; or the members of a
            struct changed, which a cast of Spark tells apart by their places, not by their ids.
    """
    if plan.request.clauses is not None:
        message = "the columns of the table changed while this was written"
        raise RetryableConflictError(message, hint="run the write again")
    whole = plan.request.operation is not Operation.DELETE
    return [_with_columns(frame, old, plan.spec.schema, whole=whole) for frame in frames]


def _with_columns(frame: DataFrame, old: Schema, new: Schema, *, whole: bool) -> DataFrame:
    """Match columns by their ids, as ``arrow.restage`` does; ``whole``: add those that are new."""
    there = {new.field_id(name): name for name in new.names}
    chosen = []
    for name in frame.columns:
        now = there.get(old.field_id(name)) if name in old.names else name
        if now is None:
            continue
        value = quoted(name)
        if name in old.names:
            value = _cast(value, old.arrow.field(name), new.arrow.field(now))
        chosen.append(f"{value} AS {quoted(now)}")
    before = {old.field_id(name) for name in old.names}
    for number, name in there.items():
        if whole and number not in before:
            kind, default = new.arrow.field(name).type, default_value(new, name)
            text = None if default is None else to_text(default, kind)
            chosen.append(f"{typed_literal(text, kind)} AS {quoted(name)}")
    return frame.selectExpr(*chosen)


def _cast(value: str, was: pa.Field, now: pa.Field) -> str:
    if pa.types.is_nested(now.type) and list(ids_by_path([was])) != list(
        ids_by_path([now.with_name(was.name)])
    ):
        message = f"the parts of column {now.name!r} changed while this was written"
        raise RetryableConflictError(message, hint="run the write again", columns=[now.name])
    return value if was.type == now.type else f"CAST({value} AS {type_name(now.type)})"
