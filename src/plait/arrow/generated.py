"""Rows get the values of generated columns, or are refused if they bring others (RFC 0031)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.constraints import constraint_error
from plait.definition.generated import Generated
from plait.errors import PredicateError
from plait.expr.functions import compared
from plait.expr.prune import Flags
from plait.files.partition_values import values_of
from plait.files.sample import sample_of
from plait.model.partitioning import PartitionField, is_transform, parse_field
from plait.model.schema import Check

Rest: TypeAlias = Callable[[], Iterable[pa.RecordBatch]]


def computed(columns: Iterable[Generated], rows: pa.RecordBatch, rest: Rest) -> pa.RecordBatch:
    """Return rows with the values of generated columns.

    Args:
        columns: the generated columns.
        rows: in the columns of the table; null where a value did not come.
        rest: gives further rows, which are only counted.

    Raises:
        ConstraintError: a row brings another value; names the column and how many such rows.
        BadRecordError: a value cannot be computed.
    """
    for each in columns:
        values = each.values(rows)
        broken = other_values(rows.column(each.name), values)
        if broken.any():
            more = (
                int(other_values(part.column(each.name), each.values(part)).sum())
                for part in rest()
            )
            count = int(broken.sum()) + sum(more)
            sample = sample_of(rows, int(np.argmax(broken)), each.name)
            raise constraint_error(rule_of(each), count, each.name, sample)
        at = rows.schema.get_field_index(each.name)
        rows = rows.set_column(at, rows.schema.field(at), values)
    return rows


def rule_of(column: Generated) -> Check:
    """Return what a row with another value breaks, to name it in errors."""
    return Check(f"{column.name} GENERATED", f"{column.name} = {column.text}")


def different(column: Generated, rows: pa.RecordBatch) -> Flags:
    """Tell which rows have another value than the expression gives, null among them."""
    same = compared("<=>", rows.column(column.name), column.values(rows))
    flags: Flags = pc.invert(same).to_numpy(zero_copy_only=False)
    return flags


def other_values(given: pa.Array, values: pa.Array) -> Flags:
    """Tell which rows bring another value than the computed one; null counts as none."""
    if given.null_count == len(given):
        return np.zeros(len(given), np.bool_)
    other = pc.and_(pc.is_valid(given), pc.invert(compared("<=>", given, values)))
    flags: Flags = other.to_numpy(zero_copy_only=False)
    return flags


@dataclass(frozen=True, slots=True)
class Transformed:
    """A transform as the value of an update: rows in, its values out."""

    field: PartitionField

    @classmethod
    def find(cls, text: object) -> Transformed | None:
        """Return the transform that a text calls; None if it calls none.

        Raises:
            PredicateError: it calls one wrongly.
        """
        if not isinstance(text, str) or not is_transform(text):
            return None
        try:
            return cls(parse_field(text))
        except ValueError as error:
            hint = "write it as partition_by does, such as day(c) or bucket(16, c)"
            raise PredicateError(str(error), hint=hint, text=text) from error

    def __call__(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the value of each row."""
        (name,) = self.field.sources
        if name not in rows.schema.names:
            message = f"unknown column {name!r} in {self.field.text!r}"
            hint = f"columns: {', '.join(rows.schema.names[:20])}"
            raise PredicateError(message, hint=hint, text=self.field.text, column=name)
        try:
            self.field.kind(rows.schema)
        except ValueError as error:
            raise PredicateError(str(error), text=self.field.text, column=name) from error
        return values_of(self.field, rows)
