"""``Table.layout``: a table laid out anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from plait.definition.ttl import Ttl
from plait.errors import OptionError
from plait.model.decision import CommitResult
from plait.model.repush import SourceAddress
from plait.model.schema import names_of
from plait.model.words import TableType
from plait.repush.begin import ROWS_PER_TASK, RepushRequest, cancel, with_order
from plait.repush.run import RepushReport, repush
from plait.repush.source import WantedSource
from plait.repush.undo import undo
from plait.txn.table_handle import Namespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Layout(Namespace):
    """A table laid out anew under its writers. Only a repush from a source changes rows."""

    def repush(  # noqa: PLR0913 - one parameter an option
        self,
        *,
        buckets: int | None = None,
        bucket_by: str | Sequence[str] | None = None,
        partition_by: str | Sequence[str] | None = None,
        ordering: str | None = None,
        table_type: TableType | None = None,
        sort_by: str | Sequence[str] | None = None,
        properties: Mapping[str, object] | None = None,
        rows_per_task: int = ROWS_PER_TASK,
        source: int | str | None = None,
        source_options: Mapping[str, object] | None = None,
        expire: Ttl | str | None = None,
        commit_id: str | None = None,
        spark: SparkSession | None = None,
    ) -> RepushReport:
        """Lay the table out anew while others read and write it; what is not named stays.

        Rows are copied into new files, which follow what others commit meanwhile; then one
        decision swaps them in. Older versions stay readable as they were. A writer that is at work
        at the swap stages its rows again by itself. If the call is killed, the same call goes on
        where it was, in any process. Name a ``commit_id`` if it may be repeated after the swap.

        Args:
            buckets: number of buckets in each partition.
            bucket_by: the columns of the record key whose hash chooses the bucket; ``()`` for all.
            partition_by: the column or columns whose values divide the table; ``()`` for none.
            ordering: the ordering column; ``""`` for none.
            table_type: ``cow`` or ``mor``.
            sort_by: the columns by which rows are ordered in each bucket, the first one the most
                important; ``()`` for none. It sets ``cluster.by`` and ``cluster.kind``.
            properties: options that change with the swap.
            rows_per_task: how many rows one commit of the copy has; a kill repeats one at most.
            source: whose rows replace those that the table had when the repush began; by default
                it keeps them. A version of the table, the name of a savepoint, the place of another
                table of Plait (with a slash in it), ``delta:PLACE``, ``iceberg:PLACE`` or
                ``parquet:PLACE``. What is committed meanwhile is carried over, row by row.
            source_options: what is needed to reach the source; never kept in the table.
            expire: rows that are older are removed before the copy begins, in commits of their own,
                which change reads show as deletes. As ``ttl`` of ``Table.create``, such as
                ``"at 30d row"`` or ``"written 30d row"``, for this time only; by default none is.
            commit_id: names this repush: once it was swapped in, a call with the same commit id
                changes nothing and returns its version. Without one it begins another repush.
            spark: the session whose executors copy the rows; by default this process does.

        Raises:
            ConsentError: the source names a file elsewhere that the caller did not allow.
            OptionError, SchemaError: the table cannot have this layout, or the source has other
                columns, or ``spark`` is no session; nothing was written.
            CapabilityMissingError: executors cannot reach the table, or the source; nothing was
                written.
            SchemaMismatchError: the table has no column that ``expire`` names.
            ClockUnavailableError: the store tells no time, so nothing can be too old.
            InstantError: the source is a version that cannot be read; nothing was written.
            RepushOpenError: another repush is open.
            RepushCancelledError: somebody cancelled this one; the table is as it was.
            RepushRefusedError: keys are not unique under this layout, or its ordering column is
                NaN in a row, or the source went away, or what was committed cannot be carried
                over, or ``commit_id`` is that of another operation; the table is as it was.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-repush", "id bigint", record_key="id", buckets=2)
        >>> t.upsert(pa.table({"id": range(10)})).version
        1
        >>> t.layout.repush(buckets=5).version, t.scan().count()
        (3, 10)
        >>> t.delete(where="id < 9").version
        4
        >>> t.layout.repush(source=1).source, t.scan().count()
        ('version:1', 10)
        """
        places = None if partition_by is None else names_of(partition_by, "partition_by")
        by = None if bucket_by is None else names_of(bucket_by, "bucket_by")
        values = with_order(properties, sort_by)
        asked = None
        if source_options and source is None:
            message = "source_options need a source"
            hint = "name the source that they reach"
            raise OptionError(message, hint=hint, key="source_options", value="")
        if source is not None:
            asked = WantedSource(SourceAddress.of(source), dict(source_options or {}), given=True)
        request = RepushRequest(
            buckets=buckets,
            partition_by=places,
            ordering=ordering,
            table_type=table_type,
            properties=values,
            rows_per_task=rows_per_task,
            bucket_by=by,
            source=asked,
            expire=Ttl.of(expire),
            commit_id=commit_id,
        )
        return repush(self._handle, request, spark=spark)

    def undo(self, version: int | None = None) -> RepushReport:
        """Give the table the layout back that it had before the newest repush; no row is lost.

        While nobody has written since and the old files are kept, that is one decision. Otherwise
        it is a repush to the former layout. Options that changed with the swap stay as they are.
        After a repush from a source, the table gets the rows back that it had, with what was
        written since. If the call is killed, the same call goes on where it was.

        Args:
            version: the version of the repush, as ``RepushReport.version`` tells it. Name it where
                a call may be repeated: without it, a second call undoes the undo.

        Raises:
            OptionError: the former layout does not go with what was set since.
            InstantExpiredError: the repush had a source, and the rows before it were cleaned.
            RepushRefusedError: it had, and rows without keys were changed since; or the former
                ordering column is NaN in a row by now.
            InstantNotFoundError: the newest change of the layout is no repush, or not that of
                ``version``.
            RepushOpenError: another repush is open.
        """
        return undo(self._handle, version)

    def cancel(self) -> CommitResult | None:
        """Cancel the open repush and delete what it built; None if none is open."""
        return cancel(self._handle)
