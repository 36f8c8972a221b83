"""``Table.maintenance``: keep the files of a table in shape, and do what falls due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

from plait.definition.ttl import Ttl
from plait.expr import Where
from plait.interop.publication import PublishReport, catch_up
from plait.model.instant import Instant
from plait.model.words import OrderKind
from plait.services.maintenance.archive import ArchivePlan, ArchiveReport, archive, plan_archive
from plait.services.maintenance.clean import (
    CleanPlan,
    CleanReport,
    CleanUndone,
    clean,
    plan_clean,
    undo_clean,
)
from plait.services.maintenance.clustering import (
    ClusteringPlan,
    ClusteringReport,
    cluster,
    plan_clustering,
)
from plait.services.maintenance.compaction import (
    CompactionPlan,
    CompactionReport,
    compact,
    plan_compaction,
)
from plait.services.maintenance.expiry import ExpiryPlan, ExpiryReport, expire, plan_expiry
from plait.services.maintenance.runner import OptimizeReport, optimize
from plait.services.verify.rebuild import RebuildPlan, RebuildReport, plan_rebuild, rebuild
from plait.txn.recovery import RollbackReport, roll_back, roll_back_failed
from plait.txn.table_handle import Namespace, require_plan


class Maintenance(Namespace):
    """The upkeep of a table. Only ``expire`` removes rows; no other call changes one.

    Where a call has a plan, ``dry_run=True`` returns it and writes nothing. The call with that plan
    executes it. Without either, the call plans and executes.
    """

    @overload
    def compact(
        self,
        plan: CompactionPlan | None = None,
        *,
        full: bool = False,
        spark: object = None,
        dry_run: Literal[False] = False,
    ) -> CompactionReport: ...
    @overload
    def compact(
        self, plan: None = None, *, full: bool = False, spark: object = None, dry_run: Literal[True]
    ) -> CompactionPlan: ...
    def compact(
        self,
        plan: CompactionPlan | None = None,
        *,
        full: bool = False,
        spark: object = None,
        dry_run: bool = False,
    ) -> CompactionReport | CompactionPlan:
        """Merge log files, small files and files with hidden rows, by the table's policy.

        It changes no row. Writers go on meanwhile: none fails, waits or starts again because of it.

        Args:
            plan: what to do, whether or not it is the newest.
            full: compact every bucket that is not one file without hidden rows.
            spark: the session whose executors do the work; by default this process does it.
            dry_run: only return the plan.

        Raises:
            RolledBackError: it was taken for dead.
            CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        """
        require_plan(CompactionPlan, plan, dry_run=dry_run, full=full)
        planned = plan or plan_compaction(self._handle, full=full)
        return planned if dry_run else compact(self._handle, planned, spark)

    @overload
    def cluster(
        self,
        plan: ClusteringPlan | None = None,
        *,
        order_by: str | Sequence[str] = (),
        kind: OrderKind | None = None,
        where: Where = None,
        spark: object = None,
        dry_run: Literal[False] = False,
    ) -> ClusteringReport: ...
    @overload
    def cluster(
        self,
        plan: None = None,
        *,
        order_by: str | Sequence[str] = (),
        kind: OrderKind | None = None,
        where: Where = None,
        spark: object = None,
        dry_run: Literal[True],
    ) -> ClusteringPlan: ...
    def cluster(
        self,
        plan: ClusteringPlan | None = None,
        *,
        order_by: str | Sequence[str] = (),
        kind: OrderKind | None = None,
        where: Where = None,
        spark: object = None,
        dry_run: bool = False,
    ) -> ClusteringReport | ClusteringPlan:
        """Put rows that are near in some columns next to each other.

        Scans with predicates on these columns then skip files and row groups. It changes no row,
        and no writer fails, waits or starts again because of it. In a table with a record key it
        puts each bucket in order by itself.

        Args:
            plan: what to do, whether or not it is the newest; then nothing else is needed.
            order_by: the columns, once and for every file. None: the order of the properties
                ``cluster.by`` and ``cluster.kind``, for what is not in it yet.
            kind: ``sort``, the first column the most important; or along a curve, ``zorder`` or
                ``hilbert`` (the default), where all columns count the same.
            where: only files in which rows may match, in a table with a record key their buckets.
            spark: the session whose executors do the work; by default this process does it.
            dry_run: only return the plan.

        Raises:
            OptionError: there is no such order, or none is recorded.
            RolledBackError: it was taken for dead.
            CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        """
        require_plan(
            ClusteringPlan, plan, dry_run=dry_run, order_by=order_by, kind=kind, where=where
        )
        planned = plan or plan_clustering(self._handle, order_by, kind=kind, where=where)
        return planned if dry_run else cluster(self._handle, planned, spark)

    def optimize(self) -> OptimizeReport:
        """Do all upkeep that falls due: roll the dead back, compact, cluster, clean, archive.

        Raises:
            TableError: one of them failed; what was done before stands.
        """
        return optimize(self._handle)

    @overload
    def clean(
        self, plan: CleanPlan | None = None, *, now: bool = False, dry_run: Literal[False] = False
    ) -> CleanReport: ...
    @overload
    def clean(
        self, plan: None = None, *, now: bool = False, dry_run: Literal[True]
    ) -> CleanPlan: ...
    def clean(
        self, plan: CleanPlan | None = None, *, now: bool = False, dry_run: bool = False
    ) -> CleanReport | CleanPlan:
        """Let go of versions that need not stay readable.

        Their files are deleted by a clean that comes after the option ``clean.grace``, unless a
        reader or writer still needs them. Until then ``undo_clean`` takes the clean back.

        Args:
            plan: what to do; no other file is condemned or deleted.
            now: leave no grace: delete the files at once, so that the clean cannot be undone.
            dry_run: only return the plan.
        """
        require_plan(CleanPlan, plan, dry_run=dry_run, now=now)
        if plan is None and (now or dry_run):
            plan = plan_clean(self._handle, now=now)
            if dry_run:
                return plan
        return clean(self._handle, plan)

    def undo_clean(self, *, since: int | None = None) -> CleanUndone:
        """Make the versions readable again that cleans let go of within ``clean.grace``.

        Set the options ``clean.retain.*`` first, since the next clean goes by them.

        Args:
            since: undo only the cleans of this version or later.
        """
        return undo_clean(self._handle, since=since)

    @overload
    def expire(
        self,
        plan: ExpiryPlan | None = None,
        *,
        ttl: str | Ttl | None = None,
        dry_run: Literal[False] = False,
    ) -> ExpiryReport: ...
    @overload
    def expire(
        self, plan: None = None, *, ttl: str | Ttl | None = None, dry_run: Literal[True]
    ) -> ExpiryPlan: ...
    def expire(
        self,
        plan: ExpiryPlan | None = None,
        *,
        ttl: str | Ttl | None = None,
        dry_run: bool = False,
    ) -> ExpiryReport | ExpiryPlan:
        """Take rows away whose time is over.

        Old versions stay readable until a clean. No writer fails because of it.

        Args:
            plan: what to do, and by which time; nothing else is taken away.
            ttl: a time to live for this time only, such as ``"at 30d row"``; by default that of
                the table.
            dry_run: only return the plan.

        Raises:
            ClockUnavailableError: the store reports no time.
            OptionError: ``ttl`` does not fit the table, or sinks would keep the rows.
            SchemaMismatchError: there is no such column.
            RolledBackError: it was taken for dead.
            CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        """
        require_plan(ExpiryPlan, plan, dry_run=dry_run, ttl=ttl)
        planned = plan or plan_expiry(self._handle, Ttl.of(ttl))
        return planned if dry_run else expire(self._handle, planned)

    @overload
    def archive(
        self, plan: ArchivePlan | None = None, *, dry_run: Literal[False] = False
    ) -> ArchiveReport: ...
    @overload
    def archive(self, plan: None = None, *, dry_run: Literal[True]) -> ArchivePlan: ...
    def archive(
        self, plan: ArchivePlan | None = None, *, dry_run: bool = False
    ) -> ArchiveReport | ArchivePlan:
        """Move old decisions from their slots into a few files.

        The newest ``archive.keep`` decisions stay, and those that two checkpoints do not cover
        yet. History, time travel, changes and commit ids work as before. Writers go on meanwhile,
        also one that sleeps.

        Args:
            plan: what to do; if another archive was first, nothing is done.
            dry_run: only return the plan.

        Raises:
            CorruptMetadataError: a slot is damaged; nothing moved.
            RolledBackError: it was taken for dead; nothing moved.
        """
        require_plan(ArchivePlan, plan, dry_run=dry_run)
        return plan_archive(self._handle) if dry_run else archive(self._handle, plan)

    def publish(self) -> PublishReport:
        """Publish what the property ``publish`` asks for and is missing; undo what others wrote.

        Clients do so after each decision. Call it to catch up at once, for example after a
        publisher died, or where somebody wrote to the published metadata.

        Raises:
            StorageError: the store failed; what was published before stands.
        """
        return catch_up(self._handle)

    def rollback(self, instant: str | Instant | None = None) -> RollbackReport:
        """Roll back an instant, or every instant of a dead writer if none is named."""
        if instant is None:
            return roll_back_failed(self._handle, reason="found dead by a rollback")
        return roll_back(self._handle, Instant.of(instant), reason="requested")

    @overload
    def rebuild_metadata(
        self, plan: RebuildPlan | None = None, *, dry_run: Literal[False] = False
    ) -> RebuildReport: ...
    @overload
    def rebuild_metadata(self, plan: None = None, *, dry_run: Literal[True]) -> RebuildPlan: ...
    def rebuild_metadata(
        self, plan: RebuildPlan | None = None, *, dry_run: bool = False
    ) -> RebuildReport | RebuildPlan:
        """Read the bounds of columns that the metadata lacks from the files; write a checkpoint.

        Scans then skip files as if the option ``metadata.statistics`` had always been ``on``. Run
        it after you set that option, or after a checkpoint with rebuilt bounds was lost.

        Args:
            plan: how many files there were to read. The files of a newer version are read too: a
                checkpoint has the bounds of all files or is of no use.
            dry_run: only count the files whose bounds the metadata lacks.

        Raises:
            OptionError: the option ``metadata.statistics`` is ``off``.
        """
        require_plan(RebuildPlan, plan, dry_run=dry_run)
        return plan_rebuild(self._handle) if dry_run else rebuild(self._handle)
