"""Finds rows that a table would refuse: they are dead letters, and must stop nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.cast import demanding, missing_value
from plait.arrow.constraints import Constraints
from plait.arrow.generated import other_values
from plait.definition.generated import Generated, generated_in
from plait.errors import BadRecordError
from plait.expr.prune import Flags
from plait.kafka.records.decode import Undecodable
from plait.model.plan import TableSpec

_ALONE: Final = 1


@dataclass(frozen=True, slots=True)
class _Values:
    """Demands on the values of columns: none is lacking, and all have an order."""

    demanding: Sequence[pa.Field]
    reject_nan: Sequence[str]

    @classmethod
    def of(
        cls, schema: Sequence[pa.Field], key: Collection[str], reject_nan: Collection[str]
    ) -> _Values:
        strict = [each.with_nullable(each.nullable and each.name not in key) for each in schema]
        floats = [each.name for each in schema if pa.types.is_floating(each.type)]
        return cls(
            [each for each in strict if demanding(each)],
            [name for name in floats if name in reject_nan],
        )

    def refused(self, rows: pa.Table) -> Iterator[Undecodable]:
        for each in self.demanding:
            column = rows[each.name]
            if pa.types.is_nested(each.type):
                yield from _missing(column.combine_chunks(), each, 0)
            elif column.null_count:
                yield from _flagged(
                    column.is_null().to_numpy(), f"no value for the required column {each.name!r}"
                )
        for name in self.reject_nan:
            found = pc.fill_null(pc.is_nan(rows[name]), fill_value=False)
            reason = f"NaN in column {name!r}, whose values must have an order"
            yield from _flagged(found.to_numpy(), reason)


class RowCheck:
    """What a table demands of a row: of its values, and of what follows from them."""

    def __init__(
        self,
        schema: pa.Schema,
        key: Sequence[str],
        reject_nan: Collection[str],
        *,
        generated: Sequence[Generated] = (),
        constraints: Constraints | None = None,
    ) -> None:
        """Demand no null in a key, and no NaN where values must have an order.

        Args:
            schema: the columns of the rows.
            key: the columns of the record key.
            reject_nan: columns whose values must have an order.
            generated: columns whose value others of the row give, if it brings none itself.
            constraints: conditions that no row may break.
        """
        made = {each.name for each in generated}
        self._given = _Values.of(
            [each for each in schema if each.name not in made], key, reject_nan
        )
        self._made = _Values.of([each for each in schema if each.name in made], key, reject_nan)
        self._generated = generated
        self._constraints = constraints or Constraints()

    @classmethod
    def of(cls, spec: TableSpec) -> Self:
        """Check rows of a table."""
        return cls(
            spec.schema.arrow,
            spec.key,
            {*spec.key, *spec.partition_sources, *filter(None, [spec.layout.ordering])},
            generated=generated_in(spec.schema),
            constraints=Constraints.of(spec.schema),
        )

    def refused(self, rows: pa.Table) -> Iterator[Undecodable]:
        """Return the places of such rows, with the reason; the same one may come twice."""
        yield from self._given.refused(rows)
        if not self._generated and not self._constraints.every:
            return
        first = 0
        for batch in rows.to_batches():
            yield from self._contradicting(batch, first)
            first += batch.num_rows

    def _contradicting(self, rows: pa.RecordBatch, first: int) -> Iterator[Undecodable]:
        """Look at a batch; in halves, if something cannot be computed for one of its rows."""
        try:
            found = list(self._contradictions(rows))
        except BadRecordError as error:
            if rows.num_rows == _ALONE:
                yield Undecodable(first, error.message)
                return
            half = rows.num_rows // 2
            yield from self._contradicting(rows.slice(0, half), first)
            yield from self._contradicting(rows.slice(half), first + half)
        else:
            yield from (Undecodable(first + at, reason) for at, reason in found)

    def _contradictions(self, rows: pa.RecordBatch) -> Iterator[Undecodable]:
        """Compare what a row brings with what follows from it, and that with the constraints."""
        for column in self._generated:
            at = rows.schema.get_field_index(column.name)
            values = column.values(rows)
            reason = f"another value in column {column.name!r} than {column.text[:100]} gives"
            yield from _flagged(other_values(rows.column(at), values), reason)
            rows = rows.set_column(at, rows.schema.field(at), values)
        yield from self._made.refused(pa.Table.from_batches([rows]))
        for constraint in self._constraints.every:
            check = constraint.check
            reason = f"it breaks the constraint {check.name!r} ({check.predicate[:100]})"
            yield from _flagged(constraint.broken_by(rows), reason)


def _flagged(flags: Flags, reason: str) -> Iterator[Undecodable]:
    return (Undecodable(int(at), reason) for at in np.flatnonzero(flags))


def _missing(array: pa.Array, wanted: pa.Field, first: int) -> Iterator[Undecodable]:
    """Return the rows in which a field of a nested column is null and must not be."""
    path = missing_value(array, wanted) if len(array) else None
    if path is None:
        return
    if len(array) == _ALONE:
        yield Undecodable(first, f"no value for the required column {path!r}")
        return
    half = len(array) // 2
    yield from _missing(array.slice(0, half), wanted, first)
    yield from _missing(array.slice(half), wanted, first + half)
