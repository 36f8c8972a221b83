"""Sources that are versions of a table of Plait: of this table, or of another."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from plait.model.consent import AllowedAddress, Consent
from plait.model.plan import Snapshot
from plait.queries.opening import open_expected
from plait.queries.pins import pin
from plait.read.frames import Frames
from plait.read.scan import Scan
from plait.read.stretches import StretchScan
from plait.repush.parts import RowPart, SourceOrigin, spans, stretches
from plait.services.maintenance.restore import visible_rows
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
    """Pin of the version; None if an open repush already keeps it."""
    with_row_version: bool = False
    """Whether its rows are to come with the versions that wrote them."""
    spark: SparkSession | None = None
    """Session whose executors read the version; None reads it in this process."""

    @classmethod
    def of(
        cls,
        handle: TableHandle,
        version: int,
        *,
        with_row_version: bool,
        spark: SparkSession | None,
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
        snapshot = snapshot.with_row_version() if with_row_version else snapshot
        # Executors take no rows with the version that wrote them.
        return cls(
            handle,
            snapshot,
            with_row_version=with_row_version,
            spark=None if with_row_version else spark,
        )

    @classmethod
    def elsewhere(
        cls,
        allowed: AllowedAddress,
        options: Mapping[str, object],
        version: int | None,
        consent: Consent,
        *,
        spark: SparkSession | None,
    ) -> Self:
        """Read a version of another table, by default the newest, under a lease.

        Raises:
            TableNotFoundError: there is no table.
            InstantNotFoundError, InstantExpiredError: the version cannot be read any more.
        """
        handle = open_expected(allowed.text, options, consent=consent)
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

    @property
    def origin(self) -> SourceOrigin:
        """Partition columns and key of the version, and what a copy of its rows loses."""
        spec = self.snapshot.spec
        found = [("checks", spec.schema.checks), ("generated columns", spec.schema.generated)]
        lost = [f"{what} of the table are not brought over" for what, each in found if each]
        lost.append("its properties, savepoints and older versions are not brought over")
        return SourceOrigin(spec.layout.partition_by, spec.key, tuple(lost))

    def parts(self, rows: int) -> list[RowPart]:
        """Cut its files, in the order of partition, bucket and path; large ones are divided."""
        # A fixed order, since tasks are numbered: a process that resumes must cut the same ones.
        files = self.snapshot.files.sort_by(_IN_ORDER)
        cut = list(stretches(files["rows"].to_pylist(), rows))
        edges = spans([len(span) for _, span in cut], rows)
        tasks = [_Task.of(files, cut[low:high]) for low, high in edges]
        return [RowPart(task.rows, functools.partial(self._read, task)) for task in tasks]

    def _read(self, task: _Task) -> object:
        spec, store = self.snapshot.spec, self.handle.store
        columns = spec.copied if self.with_row_version else list(spec.schema.names)
        snapshot = replace(self.snapshot, files=task.files, total=None)
        scan: Frames
        if task.whole:
            scan = Scan(store, snapshot, columns=columns)  # Spark reads whole files faster itself
        else:
            scan = StretchScan(store, snapshot, task.spans, columns)
        return scan.to_reader() if self.spark is None else scan.to_spark(self.spark)

    def close(self) -> None:
        """Release the lease."""
        if self.lease is not None:
            self.lease.release()


@dataclass(frozen=True, slots=True)
class _Task:
    """Stretches of files, one of each file."""

    files: pa.Table
    """The files of the task (LIVE)."""
    spans: tuple[range, ...]

    @classmethod
    def of(cls, files: pa.Table, cut: Sequence[tuple[int, range]]) -> Self:
        """Take files that are next to each other."""
        joined: dict[int, range] = {}
        for file, span in cut:
            joined[file] = range(joined.get(file, span).start, span.stop)
        first = next(iter(joined), 0)
        return cls(files.slice(first, len(joined)), tuple(joined.values()))

    @property
    def whole(self) -> bool:
        """Whether every file is read from its first row to its last."""
        counts = self.files["rows"].to_pylist()
        return all(span == range(rows) for span, rows in zip(self.spans, counts, strict=True))

    @property
    def rows(self) -> int:
        """How many rows it has, with hidden ones where a file is divided."""
        return visible_rows(self.files) if self.whole else sum(map(len, self.spans))
