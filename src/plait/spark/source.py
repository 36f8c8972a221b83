"""The data source ``plait``: ``spark.read.format("plait")`` and ``df.write.format("plait")``.

It is for code that knows only Spark's own interface. ``Table.writer()`` and ``scan().to_spark()``
are faster: Spark lays rows out for the one, and reads Parquet itself for the other.

Spark makes this object in a Python process beside the driver, and pickles it from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource as ds

from plait.errors import OptionError
from plait.model.plan import CHANGED, LIVE, Snapshot
from plait.model.schema import Schema
from plait.model.store_address import StoreAddress
from plait.read.change_scan import ADDED_COLUMNS, ChangeScan
from plait.read.scan import Scan
from plait.spark.change_shares import ChangeShares, check_asked
from plait.spark.frame import check_types, in_spark_types
from plait.spark.options import FOLLOWING, READING, STREAMING, WRITING, SourceOptions
from plait.spark.reader import PlaitStreamReader
from plait.spark.shares import SHARE_BYTES
from plait.spark.sink import PlaitWriter, begin_write
from plait.spark.stream import PlaitStreamWriter, begin_epoch
from plait.spark.transfer import packed, unpacked
from plait.spark.values import spark_schema
from plait.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SHARE_BYTES = 128 << 20
"""What one task reads of a version, about."""


class PlaitSource(ds.DataSource):
    """A table as Spark sees it."""

    _pinned: int | None = None
    """The version whose schema Spark was told, so that the rows are of that version too."""
    _known: Schema | None = None
    """The schema, once it is known."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "plait"

    def schema(self) -> StructType:
        """Return the schema of the rows, and pin the version."""
        options = self._options({**READING, **FOLLOWING})
        if options.find("since") is not None:
            changes = self._changes(None)
            self._pinned = changes.until
            return spark_schema(changes.schema)
        snapshot = self._scan(None).snapshot
        self._pinned, self._known = snapshot.version, snapshot.spec.schema
        added = ADDED_COLUMNS if options.flag("changes") else ()
        return spark_schema(pa.schema([*snapshot.spec.schema.arrow, *added]))

    def reader(self, schema: StructType) -> ds.DataSourceReader:
        """Plan to read the columns of a schema: all, or those that the caller asked for."""
        options, names = self._options(READING), tuple(schema.fieldNames())
        if options.find("since") is not None:
            changes = self._changes(names)
            check_asked(schema, changes.window.snapshot.spec.schema)
            shares = changes.divided(SHARE_BYTES) or [CHANGED.empty_table()]
            return PlaitReader(ChangeShares.of(changes, names), shares)
        where = options.find("where")
        scan = self._scan(names, where)
        check_types(schema, spark_schema(scan.schema))
        snapshot = replace(scan.snapshot, files=LIVE.empty_table())
        reader = VersionShares(scan.store.address, snapshot, names, where)
        return PlaitReader(reader, _shares_of(scan.plan.files))

    def streamReader(self, schema: StructType) -> PlaitStreamReader:  # noqa: N802 - Spark's
        """Plan to follow the table, with the columns of a schema."""
        return PlaitStreamReader(self._options(FOLLOWING), schema, self._known)

    def writer(self, schema: StructType, overwrite: bool) -> PlaitWriter:  # noqa: FBT001 - Spark's
        """Check the columns and begin a write."""
        return begin_write(SourceOptions.of(self.options, WRITING), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PlaitStreamWriter:  # noqa: FBT001, N802 - Spark's
        """Check the columns and begin an epoch."""
        return begin_epoch(self._options(STREAMING), schema, overwrite=overwrite)

    def _options(self, known: Mapping[str, str]) -> SourceOptions:
        return SourceOptions.of(self.options, known)

    def _scan(self, columns: Sequence[str] | None, where: str | None = None) -> Scan:
        options = self._options({**READING, **FOLLOWING})
        version, as_of = options.find("version"), options.find("as_of")
        if version is not None and not (version.isascii() and version.isdigit()):
            message = f"version={version!r} is not a version"
            raise OptionError(message, hint="for example 3", key="version", value=version)
        if options.find("until") is not None:
            message = "until needs since"
            raise OptionError(message, hint="set since too, or use version", key="until", value="")
        number = self._pinned if version is None else int(version)
        moment = int(as_of) if as_of and as_of.isascii() and as_of.isdigit() else as_of
        instant = moment if self._pinned is None else None
        return options.table().scan(columns, where=where, version=number, as_of=instant)

    def _changes(self, columns: Sequence[str] | None) -> ChangeScan:
        options = self._options(READING)
        for key in ("version", "as_of"):
            if options.find(key) is not None:
                message = f"{key} cannot be used with since"
                raise OptionError(
                    message, hint="set the end of a change read with until", key=key, value=""
                )
        since, where = options.find("since") or "", options.find("where")
        until = options.find("until") if self._pinned is None else self._pinned
        return options.table().changes(since, until, columns=columns, where=where)


@dataclass(frozen=True, slots=True)
class VersionShares:
    """Reads a share of a version's files; goes to executors as it is."""

    store: StoreAddress
    snapshot: Snapshot
    """Without files: each share brings its own."""
    columns: tuple[str, ...]
    where: str | None

    def read(self, share: bytes) -> Iterator[pa.RecordBatch]:
        """Return the rows in Spark's types."""
        snapshot = replace(self.snapshot, files=unpacked(share))
        scan = Scan(open_store(self.store), snapshot, columns=self.columns, where=self.where)
        return in_spark_types(scan.to_reader())


class PlaitReader(ds.DataSourceReader):
    """Reads one version, or the changes of a window, as Arrow batches: a share of the files a task.

    Filters are not taken from Spark: 4.2 gives a DataFrame one reader for all of its queries, so
    that a filter pushed for the first would take rows from the next. ``option("where", ...)`` is
    the way to skip files; Spark applies its own filters to what comes.
    """

    def __init__(self, reader: VersionShares | ChangeShares, shares: Sequence[pa.Table]) -> None:
        self._reader, self._shares = reader, shares

    def partitions(self) -> Sequence[ds.InputPartition]:
        """Return one partition a share, with its files."""
        return [ds.InputPartition(packed(share)) for share in self._shares]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the share of one task."""
        return self._reader.read(partition.value)

    def __getstate__(self) -> dict[str, object]:
        """Leave the shares behind on the way to a task: it gets its own."""
        return {**self.__dict__, "_shares": ()}


def _shares_of(files: pa.Table) -> list[pa.Table]:
    """Divide files (LIVE) among tasks by size; at least one task, whose rows say the schema."""
    shares: list[pa.Table] = []
    start, size = 0, 0
    for at, grown in enumerate(files["bytes"].to_pylist()):
        if size and size + grown > _SHARE_BYTES:
            shares.append(files.slice(start, at - start))
            start, size = at, 0
        size += grown
    return [*shares, files.slice(start)]
