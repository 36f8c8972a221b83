"""Rewrite files on executors: each task copies its sets, and sends home what it did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from plait.arrow.rewrite import rewrite_files
from plait.files.data_file import files_in
from plait.model.bucket import Partition
from plait.model.changes import WriteStatus
from plait.model.plan import Snapshot
from plait.model.request import FileSet, WritePlan
from plait.spark.job import counting, run, speculates
from plait.spark.task import Batches, TaskSetting
from plait.spark.transfer import PackedSnapshot, TaskReport
from plait.storage import open_store
from plait.write.combine import combine_tasks, files_of, with_garbage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbered = tuple[tuple[int, FileSet], ...]


@dataclass(frozen=True, slots=True)
class RewriteShare:
    """What a task does: it rewrites its share of the sets; Spark's rows only count."""

    plan: WritePlan
    snapshot: PackedSnapshot
    shares: tuple[Numbered, ...]

    def __call__(self, place: TaskSetting, batches: Batches) -> TaskReport | None:
        """Return the report."""
        for _ in batches:
            pass
        status = rewrite_files(
            self.plan,
            self.snapshot.unpack(),
            self.shares[place.task],
            _announced,
            store=open_store(self.plan.store),
            task=place.label,
        )
        return TaskReport(place.task, place.attempt, label=place.label, status=status)


def _announced(_: Iterable[Partition]) -> None:
    """Do nothing: the record of a rewrite names every partition, and its end cancels the job."""


def rewrite_on(
    spark: SparkSession, plan: WritePlan, snapshot: Snapshot, sets: Sequence[FileSet], tasks: int
) -> WriteStatus:
    """Rewrite sets of files in a job; return the status of all of them."""
    shares = _shares(sets, tasks)
    needed = replace(snapshot, files=files_in(snapshot.files, {each.bucket for each in sets}))
    work = RewriteShare(plan, PackedSnapshot.pack(needed), shares)
    reports = run(counting(spark, len(shares)), work)
    status = combine_tasks([report.status for report in reports], keyed=False)
    if not any(report.attempt for report in reports) and not speculates(spark):
        return status
    places = {each.bucket[0] for each in sets}
    strays = files_of(open_store(plan.store), plan.instant, places)
    return with_garbage(status, strays.difference(status.changes.named()))


def _shares(sets: Sequence[FileSet], tasks: int) -> tuple[Numbered, ...]:
    """Divide sets among tasks: the largest first, each to who has least."""
    count = max(1, min(tasks, len(sets)))
    shares: list[list[tuple[int, FileSet]]] = [[] for _ in range(count)]
    sizes = [0] * count
    for number, each in sorted(enumerate(sets), key=lambda pair: -pair[1].bytes):
        least = sizes.index(min(sizes))
        shares[least].append((number, each))
        sizes[least] += each.bytes or 1
    return tuple(map(tuple, shares))
