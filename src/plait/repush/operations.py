"""The calls of ``Table`` that lay it out anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from plait.model.decision import CommitResult
from plait.model.schema import names_of
from plait.repush.begin import ROWS_PER_TASK, NewLayout, cancel
from plait.repush.run import RepushReport, repush
from plait.repush.undo import undo
from plait.txn.table_handle import TableHandle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Repushing:
    """Rebuild the table under its writers. None of the calls changes a row."""

    _handle: TableHandle

    def repush(  # noqa: PLR0913 - one parameter an option
        self,
        *,
        buckets: int | None = None,
        partition_by: str | Sequence[str] | None = None,
        ordering: str | None = None,
        table_type: str | None = None,
        properties: Mapping[str, object] | None = None,
        rows_per_task: int = ROWS_PER_TASK,
        spark: SparkSession | None = None,
    ) -> RepushReport:
        """Lay the table out anew while others read and write it; what is not named stays.

        Rows are copied into new files, which follow what others commit meanwhile; then one
        decision swaps them in. Older versions stay readable as they were. A writer that is at work
        at the swap stages its rows again by itself. If the call is killed, the same call goes on
        where it was, in any process.

        Args:
            buckets: number of buckets in each partition.
            partition_by: the column or columns whose values divide the table; ``()`` for none.
            ordering: the ordering column; ``""`` for none.
            table_type: ``cow`` or ``mor``.
            properties: options that change with the swap.
            rows_per_task: how many rows one commit of the copy has; a kill repeats one at most.
            spark: the session whose executors copy the rows; by default this process does.

        Raises:
            OptionError, SchemaError: the table cannot have this layout; nothing was written.
            RepushOpenError: another repush is open.
            RepushRefusedError: keys are not unique under this layout; the table is as it was.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-repush", "id bigint", record_key="id", buckets=2)
        >>> t.upsert(pa.table({"id": range(10)})).version
        1
        >>> t.repush(buckets=5).version, t.scan().count()
        (3, 10)
        """
        places = None if partition_by is None else names_of(partition_by, "partition_by")
        values = dict(properties or {})
        wanted = NewLayout(buckets, places, ordering, table_type, values, rows_per_task)
        return repush(self._handle, wanted, spark=spark)

    def undo_repush(self) -> RepushReport:
        """Give the table the layout back that it had before the newest repush; no row is lost.

        While nobody has written since and the old files are kept, that is one decision. Otherwise
        it is a repush to the former layout. Options that changed with the swap stay as they are.

        Raises:
            InstantNotFoundError: the newest change of the layout is no repush.
            RepushOpenError: a repush is open.
        """
        return undo(self._handle)

    def cancel_repush(self) -> CommitResult | None:
        """Cancel the open repush and delete what it built; None if none is open."""
        return cancel(self._handle)
