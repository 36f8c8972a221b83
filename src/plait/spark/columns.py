"""Columns of one schema as those of another: of files that were written under it, of DataFrames."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from plait.errors import RetryableConflictError
from plait.model.defaults import default_value, initial_value
from plait.model.instant import Operation
from plait.model.request import WritePlan
from plait.model.schema import Schema, id_of, parts_of
from plait.model.value import to_text
from plait.spark.frame import arrow_schema
from plait.spark.values import Values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_T = pa.types


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """The columns of files as the schema has them that a table is read by."""

    values: Values
    written: Schema
    """What the files were written under."""
    reading: Schema

    def read(self, names: Collection[str]) -> pa.Schema:
        """Return what must be read of the files for some columns."""
        found = (self._stored(name) for name in self.reading.names if name in names)
        return pa.schema([field for field in found if field is not None])

    def at(self, path: Sequence[str]) -> Column:
        """Return a column, or what is at a path below it."""
        name, *below = path
        stored, wanted = self._stored(name), self.reading.arrow.field(name)
        if stored is not None:
            return self.values.member(self.values.column(stored.name), stored, wanted, below)
        if not below:
            return _literal(self.values, initial_value(self.reading, name), wanted.type)
        for part in below:
            wanted = wanted.type.field(part)
        return self.values.literal(None, wanted.type)

    def _stored(self, name: str) -> pa.Field | None:
        number = self.reading.ids[name]
        return next((field for field in self.written.stored if id_of(field) == number), None)


def in_columns_of(plan: WritePlan, frames: Sequence[DataFrame], old: Schema) -> list[DataFrame]:
    """Return the DataFrames of a write in the columns that the table has now.

    Args:
        plan: what is to be done with them now.
        frames: what came.
        old: the columns under which it came.

    Raises:
        RetryableConflictError: the write has clauses, which name columns.
    """
    if plan.request.clauses is not None:
        message = "the columns of the table changed while this was written"
        raise RetryableConflictError(message, hint="run the write again")
    whole = plan.request.operation is not Operation.DELETE
    return [_with_columns(frame, old, plan.spec.schema, whole=whole) for frame in frames]


def _with_columns(frame: DataFrame, old: Schema, new: Schema, *, whole: bool) -> DataFrame:
    """Match columns by their ids, as ``arrow.restage`` does; ``whole``: add those that are new.

    The types of values stay those that the caller gave them: the task that stages the rows checks
    and casts them, as it does with rows that come under the columns of now.
    """
    there = {new.ids[name]: name for name in new.names}
    given, values = arrow_schema(frame.schema), Values.of(frame)
    chosen = []
    for name in frame.columns:
        value, now = values.column(name), name
        if name in old.names:
            known = there.get(old.ids[name])
            if known is None:
                continue
            now, was = known, old.arrow.field(name)
            fields = _as_given(given.field(name).type, was, new.arrow.field(now))
            value = values.fitted(value, *fields)
        chosen.append(value.alias(now))
    before = {old.ids[name] for name in old.names}
    for number, name in there.items():
        if whole and number not in before:
            kind = new.arrow.field(name).type
            chosen.append(_literal(values, default_value(new, name), kind).alias(name))
    return frame.select(*chosen)


def _as_given(given: pa.DataType, old: pa.Field, new: pa.Field) -> tuple[pa.Field, pa.Field]:
    """Return the field that came, with ids, and the field of now, with the types that came.

    Members of what came have the names that the table had then, in any order.
    """
    kind, target = given, new.type
    if _T.is_struct(given) and _T.is_struct(new.type):
        then = {child.name: child for child in parts_of(old.type)}
        ids = {id_of(child): child for child in parts_of(old.type)}
        came, members = {child.name: child.type for child in given.fields}, []
        stored = {name: then[name].with_type(each) for name, each in came.items() if name in then}
        for member in parts_of(new.type):
            was, now = ids.get(id_of(member)), member
            if was is not None and was.name in stored:
                stored[was.name], now = _as_given(came[was.name], was, member)
            members.append(now)
        kind, target = pa.struct(list(stored.values())), pa.struct(members)
    elif _T.is_list(given) and _T.is_list(new.type):
        one, other = _as_given(given.value_type, old.type.value_field, new.type.value_field)
        kind, target = pa.list_(one), pa.list_(other)
    elif _T.is_map(given) and _T.is_map(new.type):
        one, other = _as_given(given.item_type, old.type.item_field, new.type.item_field)
        key = old.type.key_field.with_type(given.key_type)
        kind, target = pa.map_(key, one), pa.map_(key, other)
    else:
        target = given
    return old.with_type(kind), new.with_type(target)


def _literal(values: Values, value: pa.Scalar | None, kind: pa.DataType) -> Column:
    return values.literal(None if value is None else to_text(value, kind), kind)
