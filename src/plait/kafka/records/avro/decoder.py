"""Avro values become rows: of a schema that each value names, or of one for all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from plait.errors import OptionError
from plait.kafka.records.avro.columns import Columns, misfit
from plait.kafka.records.avro.cursors import STEPS_PART, Bytes, Cursors, Ints, SpentError
from plait.kafka.records.avro.schema import Node, Record, parts_of
from plait.kafka.records.decode import Decoded, Undecodable

HEADER: Final = 5
"""Confluent's wire format: a byte 0, and the number of the schema in four, big-endian."""
_BODY_MAX: Final = 64 << 20
_COUNTED_MAX: Final = 1000
_SMALLER: Final = 8
_LARGER: Final = 2


class SchemaSource(Protocol):
    """Knows schemas by their numbers."""

    def find(self, number: int) -> Node | str:
        """Return a schema, or say why there is none.

        Raises:
            StorageError: what knows them cannot be reached.
        """
        ...


class AvroDecoder:
    """Decodes Avro values, field by field for all values at once.

    Names are those of the columns; a column that the schema does not have is null, and a field
    that is no column is passed over. Values must fit the columns without a change. A schema that
    is not a record fills the only column.
    """

    def __init__(self, schema: pa.Schema, schemas: SchemaSource | Node) -> None:
        """Decode values with a header that names their schema; or, of one schema, without.

        Raises:
            OptionError: no value of this one schema fits the columns.
        """
        self._schema = pa.schema(
            [each.with_nullable(nullable=True).remove_metadata() for each in schema]
        )
        self._row = pa.struct(list(self._schema))
        self._counted: dict[int, tuple[int, Node]] = {}
        """By the identity of a schema, how many parts it has; the schema is kept with it."""
        self._schemas: SchemaSource | None = None
        self._one: Node | None = None
        if hasattr(schemas, "find"):
            self._schemas = schemas
            return
        self._one = self._rooted(schemas)
        why = misfit(self._one, self._row) or self._absence(self._one)
        if why:
            message = f"the Avro schema does not fit the table: {why}"
            hint = "name its fields as the columns, with types that fit"
            raise OptionError(message, hint=hint, key="schema_file", value="")

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Return a row for each value that is one."""
        bad: list[Undecodable] = []
        parts: list[pa.Table] = []
        for start, end in itertools.pairwise(_pieces(values)):
            for first, rows, refused in self._within(values[start:end]):
                parts.append(rows)
                bad += [Undecodable(start + first + at, refused[at]) for at in sorted(refused)]
        return Decoded(pa.concat_tables(parts or [self._schema.empty_table()]), tuple(bad))

    def _within(self, values: Sequence[bytes]) -> Iterator[tuple[int, pa.Table, dict[int, str]]]:
        """Decode values within their budget; return pieces, each with the place of its first value.

        Values that are decoded together share one. Where it is spent, they are decoded in smaller
        pieces, until each that spends its own stands alone.
        """
        first, size = 0, len(values)
        while first < len(values):
            piece = values[first : first + size]
            try:
                rows, refused = self._piece(piece)
            except (SpentError, RecursionError) as error:
                if len(piece) > 1:
                    size = max(1, len(piece) // _SMALLER)
                    continue
                rows, refused = self._schema.empty_table(), {0: f"the value is refused: {error}"}
            else:
                size *= _LARGER
            yield first, rows, refused
            first += len(piece)

    def _piece(self, values: Sequence[bytes]) -> tuple[pa.Table, dict[int, str]]:
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        cursors = Cursors.of(values, lengths)
        every = np.arange(len(values))
        if self._one is not None:
            parts, order = [self._records(cursors, self._one, every)], every
        else:
            parts, order = self._by_schema(cursors, every)
        cursors.finish()
        stays = np.ones(len(values), dtype=np.bool_)
        stays[list(cursors.refused)] = False
        rows = pa.concat_tables(parts or [self._schema.empty_table()])
        if len(parts) > 1:
            rows = rows.take(pa.array(np.argsort(order, kind="stable")))
        rows = rows if stays.all() else rows.filter(pa.array(stays))
        return rows, cursors.refused

    def _by_schema(self, cursors: Cursors, every: Ints) -> tuple[list[pa.Table], Ints]:
        """Read records by their schemas; return the rows, and from which record each is."""
        numbers = _numbers(cursors, every)
        parts: list[pa.Table] = []
        owners: list[Ints] = []
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            node = self._find(number) if number >= 0 else "no schema"
            if isinstance(node, str):
                cursors.refuse(rows, node)
                parts.append(_nulls(self._schema, len(rows)))
            else:
                parts.append(self._records(cursors, node, rows))
            owners.append(rows)
        return parts, np.concatenate([every[:0], *owners])

    def _find(self, number: int) -> Node | str:
        found = "no schema" if self._schemas is None else self._schemas.find(number)
        if isinstance(found, str):
            return found
        rooted = self._rooted(found)
        return self._absence(rooted) or rooted

    def _records(self, cursors: Cursors, node: Node, rows: Ints) -> pa.Table:
        cursors.budget.left += STEPS_PART * self._parts(node) * len(rows)
        made = Columns(cursors).read(node, self._row, rows)
        return pa.Table.from_arrays(made.flatten(), schema=self._schema)

    def _parts(self, node: Node) -> int:
        known = self._counted.get(id(node))
        if known is None:
            if len(self._counted) >= _COUNTED_MAX:
                self._counted.clear()
            known = self._counted[id(node)] = (parts_of(node), node)
        return known[0]

    def _rooted(self, node: Node) -> Node:
        """Return a schema of rows; one that is not a record is that of the only column."""
        if isinstance(node, Record) or len(self._schema) != 1:
            return node
        return Record("", [(self._schema.names[0], node)])

    def _absence(self, node: Node) -> str:
        """Say that nothing of a schema is a column: it is meant for another table."""
        if not isinstance(node, Record):
            return "the schema is not a record"
        if any(name in self._schema.names for name, _ in node.fields):
            return ""
        return f"no field of the record {node.name!r} is a column"


def _numbers(cursors: Cursors, every: Ints) -> Ints:
    """Read the headers: return the numbers of schemas, -1 where there is none."""
    short = cursors.left(every) < HEADER
    cursors.refuse(every[short], "the value is too short for the number of a schema")
    starts = cursors.spans_of(every, np.where(short, 0, HEADER)).starts
    head: Bytes = cursors.data[starts[:, None] + np.arange(HEADER)]
    other = ~short & (head[:, 0] != 0)
    cursors.refuse(every[other], "the value does not begin with byte 0 and the number of a schema")
    numbers = head[:, 1:].astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    return np.where(short | other, -1, numbers)


def _pieces(values: Sequence[bytes]) -> list[int]:
    """Return where to divide values, so that each piece fits the offsets of Arrow."""
    count = max(1, min(len(values), -(-sum(map(len, values)) // _BODY_MAX)))
    return [len(values) * number // count for number in range(count + 1)] if values else [0]


def _nulls(schema: pa.Schema, count: int) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(count, each) for each in schema.types], schema=schema)
