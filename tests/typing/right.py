"""What each form of a call gives, as a type checker sees it; nothing runs this file."""

from __future__ import annotations

from typing import assert_type

import pyarrow as pa
from pyspark.sql import SparkSession

from plait import (
    ArchivePlan,
    ArchiveReport,
    CleanPlan,
    CleanReport,
    ClusteringPlan,
    ClusteringReport,
    CommitResult,
    CompactionPlan,
    CompactionReport,
    ExpiryPlan,
    ExpiryReport,
    FeaturePlan,
    RebuildPlan,
    RebuildReport,
    RepairPlan,
    RepairReport,
    ReplayPlan,
    ReplayReport,
    RestorePlan,
    RestoreReport,
    Table,
)

t = Table.create("flights", "id bigint", table_type="mor", isolation="serializable")
rows = pa.table({"id": [1]})
spark = SparkSession.builder.getOrCreate()

assert_type(t.maintenance.compact(full=True, dry_run=True), CompactionPlan)
assert_type(t.maintenance.compact(CompactionPlan(0, ())), CompactionReport)
assert_type(t.maintenance.cluster(order_by="id", dry_run=True), ClusteringPlan)
assert_type(t.maintenance.cluster(order_by=["id"], kind="zorder"), ClusteringReport)
assert_type(t.maintenance.clean(now=True, dry_run=True), CleanPlan)
assert_type(t.maintenance.clean(t.maintenance.clean(dry_run=True)), CleanReport)
assert_type(t.maintenance.expire(ttl="at 30d row", dry_run=True), ExpiryPlan)
assert_type(t.maintenance.expire(), ExpiryReport)
assert_type(t.maintenance.archive(dry_run=True), ArchivePlan)
assert_type(t.maintenance.archive(), ArchiveReport)
assert_type(t.maintenance.rebuild_metadata(dry_run=True), RebuildPlan)
assert_type(t.maintenance.rebuild_metadata(), RebuildReport)
assert_type(t.versions.restore(version=3, dry_run=True), RestorePlan)
assert_type(t.versions.restore(savepoint="good"), RestoreReport)
assert_type(t.versions.undo(dry_run=True), RestorePlan)
assert_type(t.versions.undo(), RestoreReport)
assert_type(t.versions.replay(applications=["loader"], dry_run=True), ReplayPlan)
assert_type(t.versions.replay(), ReplayReport)
assert_type(t.check.repair(source="backup", dry_run=True), RepairPlan)
assert_type(t.check.repair(), RepairReport)
assert_type(t.alter.upgrade(dry_run=True), FeaturePlan)
assert_type(t.alter.upgrade(features=["ttl-1"]), CommitResult | None)
assert_type(t.alter.downgrade(to=1, dry_run=True), FeaturePlan)
assert_type(t.upsert(rows, on_conflict="retry", missing_columns="keep"), CommitResult)
assert_type(t.append(rows, evolve="add"), CommitResult)
assert_type(t.upsert(spark.range(3)), CommitResult)
