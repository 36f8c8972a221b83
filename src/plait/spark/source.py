"""The data source ``plait``: ``spark.read.format("plait")`` and ``df.write.format("plait")``.

``Table.writer()`` and ``scan().to_spark()`` are the fast ways; this one is for code that knows
only Spark's own interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql.pandas.types import from_arrow_schema

from plait.errors import OptionError
from plait.model.plan import Snapshot, StoreSpec
from plait.read.scan import Scan
from plait.spark.sink import PlaitWriter, begin_write
from plait.storage import open_store
from plait.table import Table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SPLIT_BYTES = 128 << 20


class PlaitSource(ds.DataSource):
    """A table as Spark sees it. Options: ``path``, and those of reading or writing."""

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return "plait"

    def schema(self) -> StructType:
        """Give the table's schema."""
        return from_arrow_schema(_plain(self._table().schema))

    def reader(self, schema: StructType) -> PlaitReader:
        """Pin a version and plan nothing yet."""
        table = self._table()
        version, as_of = self.options.get("version"), self.options.get("as_of")
        if version is not None and not version.isdigit():
            message = f"version={version!r} is no version"
            raise OptionError(message, hint="for example 3", key="version", value=version)
        scan = table.scan(version=None if version is None else int(version), as_of=as_of)
        return PlaitReader(scan.store.spec, scan.snapshot)

    def writer(self, schema: StructType, overwrite: bool) -> PlaitWriter:  # noqa: FBT001 - Spark's signature
        """Begin a write: from here on what the base shows is protected."""
        return begin_write(self._table(), dict(self.options), overwrite=overwrite)

    def _table(self) -> Table:
        path = self.options.get("path")
        if not path:
            message = "no path is given"
            raise OptionError(message, hint='.save("/path/of/table")', key="path", value="")
        return Table.open(path.removeprefix("file:"))


@dataclass
class _Files(ds.InputPartition):
    """Files that one task reads: a LIVE table."""

    files: pa.Table


class PlaitReader(ds.DataSourceReader):
    """Reads a pinned version.

    Filters are not taken: Spark 4.2 keeps a reader with the filters of the first query, and uses
    it again for the next query of the same DataFrame, which would lose rows.
    """

    def __init__(self, store: StoreSpec, snapshot: Snapshot) -> None:
        self._store = store
        self._snapshot = snapshot

    def partitions(self) -> Sequence[ds.InputPartition]:
        """Divide the files among tasks, by size."""
        files = self._scan(self._snapshot.files).plan.files
        groups: list[ds.InputPartition] = []
        start, size = 0, 0
        for at, grown in enumerate(files["bytes"].to_pylist()):
            if size and size + grown > _SPLIT_BYTES:
                groups.append(_Files(files.slice(start, at - start)))
                start, size = at, 0
            size += grown
        return [*groups, _Files(files.slice(start))]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of one task as Arrow batches."""
        files: pa.Table = partition.files  # type: ignore[attr-defined]  # made by partitions()
        for batch in self._scan(files).to_reader():
            if batch.num_rows:
                yield batch

    def _scan(self, files: pa.Table) -> Scan:
        snapshot = replace(self._snapshot, files=files)
        return Scan(open_store(self._store), snapshot)


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.remove_metadata() for field in schema])
