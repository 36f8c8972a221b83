"""The calls of ``Table`` that keep its files in shape."""

from __future__ import annotations

from collections.abc import Sequence

from plait.expr import Where
from plait.services.maintenance.archive import ArchivePlan, ArchiveReport, archive, plan_archive
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
from plait.services.maintenance.runner import OptimizeReport, optimize
from plait.services.verify.rebuild import RebuildPlan, RebuildReport, plan_rebuild, rebuild
from plait.txn.table_handle import TableHandle


class Maintenance:
    """Put rows into other files, and do what falls due. None of the calls changes a row."""

    _handle: TableHandle

    def plan_compact(self, *, full: bool = False) -> CompactionPlan:
        """Plan a compaction by the table's policy; write nothing.

        Args:
            full: plan every bucket that is not one file without hidden rows.
        """
        return plan_compaction(self._handle, full=full)

    def compact(
        self, plan: CompactionPlan | None = None, *, full: bool = False, spark: object = None
    ) -> CompactionReport:
        """Merge log files, small files and files with hidden rows; plan first if needed.

        It changes no row. Writers go on meanwhile: none fails, waits or starts again because of it.

        Args:
            plan: what to do, whether or not it is the newest.
            full: without a plan: compact every bucket that is not one file without hidden rows.
            spark: the session whose executors do the work; by default this process does it.

        Raises:
            RolledBackError: it was taken for dead.
            CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        """
        return compact(self._handle, plan or plan_compaction(self._handle, full=full), spark)

    def plan_cluster(
        self, order_by: str | Sequence[str] = (), *, kind: str | None = None, where: Where = None
    ) -> ClusteringPlan:
        """Plan a clustering; write nothing. See ``cluster``."""
        return plan_clustering(self._handle, order_by, kind=kind, where=where)

    def cluster(
        self,
        order_by: str | Sequence[str] = (),
        *,
        kind: str | None = None,
        where: Where = None,
        plan: ClusteringPlan | None = None,
        spark: object = None,
    ) -> ClusteringReport:
        """Put rows that are near in some columns next to each other; plan first if needed.

        Scans with predicates on these columns then skip files and row groups. It changes no row,
        and no writer fails, waits or starts again because of it. In a table with a record key it
        puts each bucket in order by itself.

        Args:
            order_by: the columns, once and for every file. None: the order of the properties
                ``cluster.by`` and ``cluster.kind``, for what is not in it yet.
            kind: ``sort``, the first column the most important; or along a curve, ``zorder`` or
                ``hilbert`` (the default), where all columns count the same.
            where: only files in which rows may match, in a table with a record key their buckets.
            plan: what to do, whether or not it is the newest; then nothing else is needed.
            spark: the session whose executors do the work; by default this process does it.

        Raises:
            OptionError: there is no such order, or none is recorded.
            RolledBackError: it was taken for dead.
            CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        """
        planned = plan or plan_clustering(self._handle, order_by, kind=kind, where=where)
        return cluster(self._handle, planned, spark)

    def plan_archive(self) -> ArchivePlan:
        """Plan an archive by the option ``archive.keep``; write nothing."""
        return plan_archive(self._handle)

    def archive(self, plan: ArchivePlan | None = None) -> ArchiveReport:
        """Move old decisions from their slots into a few files; plan first if needed.

        The newest ``archive.keep`` decisions stay, and those that two checkpoints do not cover
        yet. History, time travel, changes and commit ids work as before. Writers go on meanwhile,
        also one that sleeps.

        Args:
            plan: what to do; if another archive was first, nothing is done.

        Raises:
            CorruptMetadataError: a slot is damaged; nothing moved.
            RolledBackError: it was taken for dead; nothing moved.
        """
        return archive(self._handle, plan)

    def optimize(self) -> OptimizeReport:
        """Do all upkeep that falls due: roll the dead back, compact, cluster, clean, archive.

        Raises:
            TableError: one of them failed; what was done before stands.
        """
        return optimize(self._handle)

    def plan_rebuild_metadata(self) -> RebuildPlan:
        """Count the files whose bounds the metadata lacks; write nothing.

        Raises:
            OptionError: the option ``metadata.statistics`` is ``off``.
        """
        return plan_rebuild(self._handle)

    def rebuild_metadata(self) -> RebuildReport:
        """Read the bounds of columns that the metadata lacks from the files; write a checkpoint.

        Scans then skip files as if the option ``metadata.statistics`` had always been ``on``. Run
        it after you set that option, or after a checkpoint with rebuilt bounds was lost.

        Raises:
            OptionError: the option ``metadata.statistics`` is ``off``.
        """
        return rebuild(self._handle)
