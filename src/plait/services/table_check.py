"""``Table.check``: whether a table is sound, and what repairs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, overload

from plait.services.verify.checks import VerifyReport, verify
from plait.services.verify.foreign import ForeignFile, ForeignRemoval, list_foreign, remove_foreign
from plait.services.verify.repair import RepairPlan, RepairReport, plan_repair, repair
from plait.services.verify.replica_repair import ReplicaRepairReport, repair_from_replica
from plait.services.verify.sink_status import require_in_step
from plait.storage import open_store
from plait.txn.table_handle import Namespace, open_handle, require_plan


class Soundness(Namespace):
    """Whether a table is sound, and what repairs it. No call changes a row that can be read."""

    def verify(self, *, data: bool = True, history: bool = False) -> VerifyReport:
        """Check the invariants on storage; change nothing.

        Args:
            data: also read every live file.
            history: check only the timeline: isolation, lost updates, double decisions.
        """
        return verify(self._handle, data=data, history=history)

    @overload
    def repair(
        self,
        plan: RepairPlan | None = None,
        *,
        source: str | None = None,
        storage_options: Mapping[str, object] | None = None,
        accept_loss: Sequence[str] = (),
        dry_run: Literal[False] = False,
    ) -> RepairReport: ...
    @overload
    def repair(
        self,
        plan: None = None,
        *,
        source: str | None = None,
        storage_options: Mapping[str, object] | None = None,
        accept_loss: Sequence[str] = (),
        dry_run: Literal[True],
    ) -> RepairPlan: ...
    def repair(
        self,
        plan: RepairPlan | None = None,
        *,
        source: str | None = None,
        storage_options: Mapping[str, object] | None = None,
        accept_loss: Sequence[str] = (),
        dry_run: bool = False,
    ) -> RepairReport | RepairPlan:
        """Verify the table, and repair what can be repaired; each repair is provably right.

        Args:
            plan: what to repair; each finding is judged again first. It names the copy from which
                bytes are taken.
            source: the URI of a copy of the table, such as a backup.
            storage_options: options of the copy's store.
            accept_loss: ids of findings of lost files. Their rows in the newest version are given
                up by a delete, so that the rest can be read and written again. Or the id of a lost
                slot: every commit from it on is given up. End all writers and services before that.
            dry_run: only say what can be done about each finding.

        Raises:
            OptionError: ``source`` is not a copy of this table, or ``accept_loss`` names nothing
                that the newest version has lost.
            PlanStaleError: slots came to what ``accept_loss`` gives up, or went from it.
        """
        require_plan(RepairPlan, plan, dry_run=dry_run, source=source, accept_loss=accept_loss)
        place = source if plan is None else plan.source
        copy = None if place is None else open_store(place, storage_options)
        planned = plan or plan_repair(self._handle, copy, accept_loss=accept_loss)
        return planned if dry_run else repair(self._handle, planned, copy)

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

    def foreign(self) -> tuple[ForeignFile, ...]:
        """List the files in the table's directories that no decision names, and whose they are."""
        return list_foreign(self._handle)

    def remove_foreign(self, files: Iterable[ForeignFile]) -> ForeignRemoval:
        """Remove foreign files where a decision proves that nobody will ever need them.

        An instant that nobody knows is rolled back first. Each file is judged again; those of
        writers at work and those with other names stay.
        """
        return remove_foreign(self._handle, files)
