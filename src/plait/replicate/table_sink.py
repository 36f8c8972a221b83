"""Another Plait table as a sink: each batch is one commit of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from plait.errors import OptionError, SchemaMismatchError
from plait.replicate.sink import Layout
from plait.table import Table


@dataclass(frozen=True, slots=True)
class TableSink:
    """A Plait table in another place, which exists and has the same columns and keys.

    Each batch is one commit there, so use a large ``batch_size``.
    """

    name: str
    uri: str
    storage_options: Mapping[str, object] = field(default_factory=dict, repr=False)

    @property
    def removes(self) -> bool:
        """A table removes rows by key."""
        return True

    def open(self, layout: Layout) -> TableSession:
        """Open the table.

        Raises:
            OptionError: its keys, partitions or ordering column are others.
            SchemaMismatchError: its columns are others.
        """
        table = Table.open(self.uri, storage_options=dict(self.storage_options) or None)
        spec = table.handle.cache.known().table.spec
        own = Layout.of(spec)
        if own.key != layout.key or layout.ordering not in (None, own.ordering):
            message = f"table {self.name} is keyed by {own.key} and ordered by {own.ordering}"
            hint = f"create it with the key {layout.key} and the ordering column {layout.ordering}"
            raise OptionError(message, hint=hint, key="replicas", value=self.name)
        found = {each.name: each.type for each in own.schema}
        if found != {each.name: each.type for each in layout.schema}:
            message = f"the columns of table {self.name} are not those of this table"
            hint = "create the replica with the schema of the table"
            expected = layout.schema.names
            raise SchemaMismatchError(
                message, hint=hint, column="", expected=expected, found=list(found)
            )
        return TableSession(table, layout, ordered=own.ordering is not None)


@dataclass(frozen=True, slots=True)
class TableSession:
    """Commits batches to a table."""

    table: Table
    layout: Layout
    ordered: bool
    """Whether the table itself keeps the row with the greater ordering value."""

    def batch_put(self, records: pa.RecordBatch) -> None:
        """Commit the records."""
        if not self.ordered or self.layout.ordering is not None:
            self.table.upsert(records, on_conflict="retry")
            return
        rows = pa.Table.from_batches([records])
        with self.table.transaction(on_conflict="retry") as tx:  # the last put wins
            tx.delete(keys=rows.select(self.layout.key))
            tx.upsert(rows)

    def batch_remove(self, keys: pa.RecordBatch) -> None:
        """Commit the removal of keys."""
        self.table.delete(keys=keys, on_conflict="retry")

    def flush(self) -> None:
        """Return: each batch is committed before its call returns."""

    def held(self) -> Iterator[pa.RecordBatch]:
        """Return the rows of the newest version."""
        for batch in self.table.scan(columns=self.layout.schema.names).to_reader():
            yield batch.cast(self.layout.schema)

    def close(self) -> None:
        """Do nothing: a table is no connection."""
