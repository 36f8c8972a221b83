"""``spark.readStream.format("plait")``: a table as a stream of commits (RFC 0006).

Spark runs the planning in a process of its own beside the driver, for as long as the query lives:
that process holds the lease. Tasks get shares of the files, and read them as change reads do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as ds
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from plait.errors import DeletedRowsError, OptionError
from plait.model.contract import Option
from plait.model.schema import Schema
from plait.model.value import plain_rows
from plait.read.change_scan import TYPE, VERSION, ChangeScan
from plait.read.changed import DELETE, INSERT, POST
from plait.spark.change_shares import ChangeShares, check_asked
from plait.spark.follow import Follower, Offset, ReadLimits
from plait.spark.options import SourceOptions
from plait.spark.shares import SHARE_BYTES
from plait.spark.transfer import packed
from plait.table import Table, handle_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

RAISE, SKIP = "raise", "skip"
_NEWS: Final = pa.array([INSERT, POST])
_SAMPLE = 5
Values: TypeAlias = dict[str, int | str]
"""An offset as Spark keeps it."""


class PlaitStreamReader(ds.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a table: rows as they were inserted or updated, or changes.

    A batch holds whole commits, in the order in which they were completed. Its rows are the same
    whenever it is repeated, so that a sink that takes a batch once has every row once.
    """

    def __init__(self, options: SourceOptions, asked: StructType, known: Schema | None) -> None:
        """Check what was asked; ``known`` are the table's columns, where Spark asked for them."""
        self._options = options
        self._changes = options.flag("changes")
        self._deletes = options.find("deletes") or RAISE
        if self._deletes not in (RAISE, SKIP):
            message = f"deletes={self._deletes!r} is unknown"
            hint = "use raise or skip; changes=true returns the deletes"
            raise OptionError(message, hint=hint, key="deletes", value=self._deletes)
        self._limits = _limits(options)
        self._columns = tuple(asked.fieldNames())
        self._schema = known or _current(options.table())
        check_asked(asked, self._schema)
        self._open: tuple[Table, Follower] | None = None

    def initialOffset(self) -> Values:  # noqa: N802 - Spark's
        """Say nothing: the end of the first batch says where the stream began."""
        return Offset().to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """Tell Spark whether there is a limit; what it is, ``latestOffset`` knows itself."""
        if not self._limits.any:
            return ReadAllAvailable()
        if self._limits.bytes is not None:
            return ReadMaxBytes(self._limits.bytes)
        return ReadMaxFiles(self._limits.files or 1)  # Spark has no limit for commits

    def latestOffset(self, start: Values, limit: ReadLimit) -> Values:  # noqa: N802 - Spark's
        """Return the end of the batch that begins here."""
        limited = not isinstance(limit, ReadAllAvailable)
        return self._follower.next(Offset.from_dict(start), limited=limited).to_dict()

    def reportLatestOffset(self) -> Values | None:  # noqa: N802 - Spark's
        """Return the newest version that was met, for the progress of the query."""
        return {"version": self._follower.seen}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Let the query end at the head of now."""
        self._follower.stop_at_head()

    def partitions(self, start: Values, end: Values) -> Sequence[ds.InputPartition]:
        """Divide the files of a batch among tasks."""
        if start == end:
            return []
        window = self._follower.window(Offset.from_dict(start), Offset.from_dict(end))
        added = () if self._changes else (TYPE, VERSION)
        columns = [*self._columns, *added]
        store, where = handle_of(self._table).store, self._options.find("where")
        scan = ChangeScan(store, window, columns=columns, where=where)
        reader = ChangeShares.of(scan, columns)
        shares = scan.divided(SHARE_BYTES)
        return [ds.InputPartition((reader, packed(share))) for share in shares]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one share."""
        reader, share = partition.value
        rows: Iterator[pa.RecordBatch] = reader.read(share)
        return rows if self._changes else map(self._news, rows)

    def commit(self, end: Values) -> None:
        """Let go of what is delivered."""
        self._follower.hold(Offset.from_dict(end).version)

    def stop(self) -> None:
        """Let go of everything."""
        if self._open is not None:
            self._follower.close()

    def __getstate__(self) -> dict[str, object]:
        """Leave the table behind on the way to a task, which needs none."""
        return {**self.__dict__, "_open": None}

    # --- inside ----------------------------------------------------------------------------

    @property
    def _follower(self) -> Follower:
        return self._opened()[1]

    @property
    def _table(self) -> Table:
        return self._opened()[0]

    def _opened(self) -> tuple[Table, Follower]:
        """Open the table in the one process that plans."""
        if self._open is None:
            table = self._options.table()
            start = self._options.find("start")
            self._open = table, Follower(handle_of(table), self._schema, start, self._limits)
        return self._open

    def _news(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Keep rows as they were inserted or became; what was deleted cannot be said."""
        kinds = rows.column(TYPE)
        gone = pc.equal(kinds, DELETE)
        if self._deletes == RAISE and pc.any(gone).as_py():
            lost = rows.filter(gone)
            version = lost.column(VERSION)[0].as_py()
            sample = plain_rows(lost.slice(0, _SAMPLE).select(self._columns))
            message = f"version {version} deleted rows, such as {sample[0]}"
            hint = "return deletes with changes=true, or ignore them with deletes=skip"
            raise DeletedRowsError(message, hint=hint, version=version, sample=sample)
        return rows.filter(pc.is_in(kinds, value_set=_NEWS)).select(self._columns)


def _current(table: Table) -> Schema:
    return handle_of(table).cache.refresh().table.spec.schema


def _limits(options: SourceOptions) -> ReadLimits:
    def number(key: str, kind: str) -> int | None:
        text = options.find(key)
        return None if text is None else int(Option(key, kind, "1", "").parse(text))

    return ReadLimits(
        number("max_versions", "count"), number("max_files", "count"), number("max_bytes", "size")
    )
