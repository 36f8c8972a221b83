"""Sources that are versions of a table of Plait: of this table, or of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from plait.files.data_file import live_files
from plait.model.plan import Snapshot
from plait.queries.opening import open_expected
from plait.queries.pins import pin
from plait.read.scan import Scan
from plait.read.slices import SliceReader
from plait.repush.parts import RowPart, spans, stretches
from plait.services.restore import visible_rows
from plait.txn.read_pin import ReadPin
from plait.txn.table_handle import TableHandle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IN_ORDER = [("partition", "ascending"), ("bucket", "ascending"), ("path", "ascending")]


@dataclass(frozen=True, slots=True)
class VersionSource:
    """One version of a table."""

    handle: TableHandle
    snapshot: Snapshot
    lease: ReadPin | None = None
    """None: an open repush keeps the version."""
    dated: bool = False
    """Whether its rows are to come with the versions that wrote them."""
    spark: SparkSession | None = None
    """Whose executors read it; None: this process."""

    @classmethod
    def of(
        cls, handle: TableHandle, version: int, *, dated: bool, spark: SparkSession | None
    ) -> Self:
        """Read a version of the table that is laid out anew, in the columns of the newest one.

        Columns are told apart by their ids, as in a change read.

        Raises:
            InstantNotFoundError, InstantExpiredError: it cannot be read.
        """
        state = handle.cache.refresh()
        snapshot = state.snapshot(handle.store, version=version)
        spec = replace(snapshot.spec, schema=state.table.spec.schema)
        snapshot = replace(snapshot, spec=spec, schemas=dict(state.table.schemas))
        # Executors take no rows with the version that wrote them.
        return cls(handle, snapshot, dated=dated, spark=None if dated else spark)

    @classmethod
    def elsewhere(
        cls,
        uri: str,
        options: Mapping[str, object],
        version: int | None,
        *,
        spark: SparkSession | None,
    ) -> Self:
        """Read a version of another table, by default the newest, under a lease.

        Raises:
            TableNotFoundError: there is no table.
            InstantNotFoundError, InstantExpiredError: the version cannot be read any more.
        """
        handle = open_expected(uri, options)
        snapshot, lease = pin(handle, version, None)
        return cls(handle, snapshot, lease, spark=spark)

    @property
    def version(self) -> int:
        """The version."""
        return self.snapshot.version

    @property
    def digest(self) -> str:
        """Return nothing: the version tells."""
        return ""

    @property
    def rows(self) -> int:
        """How many rows it has, by its metadata."""
        return visible_rows(self.snapshot.files)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the version."""
        return self.snapshot.spec.schema.arrow

    def parts(self, rows: int) -> list[RowPart]:
        """Cut its files, in the order of partition, bucket and path; large ones are divided."""
        files = self.snapshot.files.sort_by(_IN_ORDER)
        cut = list(stretches(files["rows"].to_pylist(), rows))
        edges = spans([len(span) for _, span in cut], rows)
        tasks = [_Task.of(files, cut[low:high]) for low, high in edges]
        return [self._part(tasks, number) for number in range(len(tasks))]

    def _part(self, tasks: Sequence[_Task], number: int) -> RowPart:
        task, after = tasks[number], number + 1
        if self.spark is not None and task.begins:
            # Spark reads a file whole: it does all tasks at once that have a stretch of one.
            while after < len(tasks) and not tasks[after].begins:
                after += 1
            task = _Task.joined(tasks[number:after])
        return RowPart(task.rows, lambda: self._read(task), after - number)

    def _read(self, task: _Task) -> object:
        spec = self.snapshot.spec
        columns = spec.copied if self.dated else list(spec.schema.names)
        snapshot = replace(self.snapshot, files=task.files, total=None)
        scan = Scan(self.handle.store, snapshot, columns=columns)
        if not task.whole:
            batches = self._stretches(task, scan.schema)
            return pa.RecordBatchReader.from_batches(scan.schema, batches)
        return scan.to_reader() if self.spark is None else scan.to_spark(self.spark)

    def _stretches(self, task: _Task, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        reader = SliceReader.of(self.handle.store, self.snapshot)
        for file, span in zip(live_files(task.files), task.spans, strict=True):
            for part in reader.stretch(file, span, columns=schema.names):
                yield pa.record_batch(part.rows.columns, schema=schema)

    def close(self) -> None:
        """Release the lease."""
        if self.lease is not None:
            self.lease.release()


@dataclass(frozen=True, slots=True)
class _Task:
    """Stretches of files, one of each file."""

    files: pa.Table
    """LIVE."""
    spans: tuple[range, ...]

    @classmethod
    def of(cls, files: pa.Table, cut: Sequence[tuple[int, range]]) -> Self:
        """Take files that are next to each other."""
        joined: dict[int, range] = {}
        for file, span in cut:
            joined[file] = range(joined.get(file, span).start, span.stop)
        first = next(iter(joined), 0)
        return cls(files.slice(first, len(joined)), tuple(joined.values()))

    @classmethod
    def joined(cls, tasks: Sequence[_Task]) -> Self:
        """Return the whole files of tasks that follow each other, each file once."""
        starts = [[span.start == 0 for span in task.spans] for task in tasks]
        parts = [
            t.files.filter(pa.array(s, pa.bool_())) for t, s in zip(tasks, starts, strict=True)
        ]
        files = pa.concat_tables(parts)
        return cls(files, tuple(range(count) for count in files["rows"].to_pylist()))

    @property
    def begins(self) -> bool:
        """Whether no task before it has a stretch of its first file."""
        return not self.spans or self.spans[0].start == 0

    @property
    def whole(self) -> bool:
        """Whether every file is read from its first row to its last."""
        counts = self.files["rows"].to_pylist()
        return all(span == range(rows) for span, rows in zip(self.spans, counts, strict=True))

    @property
    def rows(self) -> int:
        """How many rows it has, with hidden ones where a file is divided."""
        return visible_rows(self.files) if self.whole else sum(map(len, self.spans))
