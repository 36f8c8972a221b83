"""Another Plait table as a sink: all batches between two flushes are one commit of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from plait.errors import OptionError, SchemaMismatchError, redacted_url
from plait.replicate.sink import SinkSchema
from plait.table import Table, handle_of


@dataclass(frozen=True, slots=True, repr=False)
class TableSink:
    """A Plait table in another place, which exists and has the same columns and keys.

    Many batches are one commit there: a session keeps them until it is flushed.
    """

    name: str
    uri: str
    storage_options: Mapping[str, object] = field(default_factory=dict)
    allow: tuple[str, ...] = ()
    """The places outside of that table that it may name, such as the servers of its lock."""

    def __repr__(self) -> str:
        """Show the place without a user and a password."""
        return f"TableSink(name={self.name!r}, uri={redacted_url(self.uri)!r})"

    @property
    def buffers(self) -> bool:
        """A session takes many batches before it commits them together."""
        return True

    @property
    def removes(self) -> bool:
        """A table removes rows by key."""
        return True

    def open(self, schema: SinkSchema) -> TableSession:
        """Open the table.

        Raises:
            OptionError: its keys, partitions or ordering column are others.
            SchemaMismatchError: its columns are others.
        """
        options = dict(self.storage_options) or None
        table = Table.open(self.uri, storage_options=options, allow=self.allow)
        spec = handle_of(table).cache.known().table.spec
        if spec.transforms_outside_key:
            message = f"table {self.name} keeps rows apart by {spec.transforms_outside_key[0].text}"
            hint = "have its columns in the record key, or partition by a column"
            raise OptionError(message, hint=hint, key="replicas", value=self.name)
        if spec.unique_in_table:
            message = f"table {self.name} has one row a key in all partitions, this one may not"
            hint = "create it with unique='partition'"
            raise OptionError(message, hint=hint, key="replicas", value=self.name)
        own = SinkSchema.of(spec)
        if own.key != schema.key or schema.ordering not in (None, own.ordering):
            message = f"table {self.name} is keyed by {own.key} and ordered by {own.ordering}"
            hint = f"create it with the key {schema.key} and the ordering column {schema.ordering}"
            raise OptionError(message, hint=hint, key="replicas", value=self.name)
        found = {each.name: each.type for each in own.arrow}
        if found != {each.name: each.type for each in schema.arrow}:
            message = f"the columns of table {self.name} are not those of this table"
            hint = "create the replica with the schema of the table"
            expected = schema.arrow.names
            raise SchemaMismatchError(
                message, hint=hint, column="", expected=expected, found=list(found)
            )
        return TableSession(table, schema, ordered=own.ordering is not None)


@dataclass(frozen=True, slots=True)
class TableSession:
    """Keeps batches, and commits them to a table."""

    table: Table
    schema: SinkSchema
    ordered: bool
    """Whether the table itself keeps the row with the greater ordering value."""
    kept: list[tuple[pa.RecordBatch, bool]] = field(default_factory=list)
    """Records, and keys to remove, since the last flush."""

    def batch_put(self, records: pa.RecordBatch) -> None:
        """Keep the records for the next commit."""
        self.kept.append((records, False))

    def batch_remove(self, keys: pa.RecordBatch) -> None:
        """Keep the removal of keys for the next commit."""
        self.kept.append((keys, True))

    def flush(self) -> None:
        """Commit everything that was kept, in its order."""
        if not self.kept:
            return
        with self.table.writer("upsert", on_conflict="retry") as writer:
            for rows, removes in self._grouped():
                if removes or self._last_wins:
                    writer.remove(rows.select(list(self.schema.key)))
                if not removes:
                    writer.write(rows)
        self.kept.clear()

    @property
    def _last_wins(self) -> bool:
        """Whether a put replaces a greater value too, though the table orders rows."""
        return self.ordered and self.schema.ordering is None

    def _grouped(self) -> Iterator[tuple[pa.Table, bool]]:
        """Return what was kept, in its order, with few calls of the writer."""
        if self._last_wins:
            for rows, removes in self.kept:
                yield pa.Table.from_batches([rows]), removes
            return
        for removes, group in itertools.groupby(self.kept, lambda each: each[1]):
            yield pa.Table.from_batches([rows for rows, _ in group]), removes

    def held(self) -> Iterator[pa.RecordBatch]:
        """Return the rows of the newest version."""
        for batch in self.table.scan(columns=self.schema.arrow.names).to_reader():
            yield batch.cast(self.schema.arrow)

    def close(self) -> None:
        """Do nothing: a table is no connection."""
