"""How the rows look that a sink of the dual write gets."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from plait.model.plan import TableSpec
from plait.model.schema import Schema, ids_by_path


@dataclass(frozen=True, slots=True)
class SinkSchema:
    """How the rows look that a sink gets."""

    arrow: pa.Schema
    """The columns, with the table's types and without metadata."""
    key: tuple[str, ...]
    """The columns that identify a row: those of the partitions, then those of the record key."""
    ordering: str | None = None
    """The column whose greater value wins among rows of one key; None: the last put wins."""

    @classmethod
    def of(cls, spec: TableSpec) -> SinkSchema:
        """Return the schema of a table's rows."""
        plain = [pa.field(f.name, f.type, f.nullable) for f in spec.schema.arrow]
        key = dict.fromkeys((*spec.partition_sources, *spec.key))
        return cls(pa.schema(plain), tuple(key), spec.layout.ordering)

    @staticmethod
    def alike(one: Schema, other: Schema) -> bool:
        """Tell whether rows of two schemas look the same to a sink: comments and defaults aside."""
        ids = (list(ids_by_path(each.arrow)) for each in (one, other))
        return one.arrow.equals(other.arrow) and next(ids) == next(ids)

    @property
    def keys(self) -> pa.Schema:
        """The columns of the key, in the order of the key."""
        return pa.schema([self.arrow.field(name) for name in self.key])
