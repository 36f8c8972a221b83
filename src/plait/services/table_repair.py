"""The calls of ``Table`` that mend what is damaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plait.services.verify.repair import RepairPlan, RepairReport, plan_repair, repair
from plait.services.verify.replica_repair import ReplicaRepairReport, repair_from_replica
from plait.services.verify.sink_status import require_in_step
from plait.storage import open_store
from plait.txn.table_handle import TableHandle, open_handle


class Mends:
    """Mend a table from a copy or a replica. None of them changes a row that can be read."""

    _handle: TableHandle

    def plan_repair(
        self,
        *,
        source: str | None = None,
        storage_options: Mapping[str, object] | None = None,
        accept_loss: Sequence[str] = (),
    ) -> RepairPlan:
        """Verify the table and say what can be done about each finding; write nothing.

        Args:
            source: the URI of a copy of the table, such as a backup.
            storage_options: options of the copy's store.
            accept_loss: ids of findings of lost files. Their rows in the newest version are given
                up by a delete, so that the rest can be read and written again. Or the id of a lost
                slot: every commit from it on is given up. End all writers and services before that.

        Raises:
            OptionError: ``source`` is not a copy of this table, or ``accept_loss`` names nothing
                that the newest version has lost.
        """
        copy = None if source is None else open_store(source, storage_options)
        return plan_repair(self._handle, copy, accept_loss=accept_loss)

    def repair_from_replica(
        self,
        replica: str,
        *,
        sink: str | None = None,
        storage_options: Mapping[str, object] | None = None,
        dry_run: bool = False,
    ) -> ReplicaRepairReport:
        """Take the rows of buckets whose files are lost or damaged from another table.

        Only these buckets are read there, if it is laid out alike, and only they are written here,
        in one decision. There must be as many rows as this table's metadata says, and every row
        that can still be read here must be among them. A change read shows nothing of it.

        Args:
            replica: the URI of a table with the same rows, such as a sink of a dual write.
            sink: its name, if it is a sink. By default it may be any whose address the table's
                definition does not give.
            storage_options: options of its store.
            dry_run: only say what is damaged.

        Raises:
            OptionError: it is no replica, its rows are others, or it is a sink that is not in step
                with the table; nothing was written.
            RetryableConflictError: somebody else changed one of the buckets meanwhile.
        """
        store = open_store(replica, storage_options)
        theirs = open_handle(store, self._handle.ports, self._handle.consent)
        require_in_step(self._handle, theirs.store.address.uri, sink)
        return repair_from_replica(self._handle, theirs, dry_run=dry_run)

    def repair(
        self, plan: RepairPlan, *, storage_options: Mapping[str, object] | None = None
    ) -> RepairReport:
        """Make the mends of a plan; each is provably right, and each is judged again first.

        Args:
            plan: it names the copy from which bytes are taken.
            storage_options: options of the copy's store.
        """
        copy = None if plan.source is None else open_store(plan.source, storage_options)
        return repair(self._handle, plan, copy)
