"""What each operation does to a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from plait.files.live import LiveFile
from plait.model.bucket import BucketId, Partition
from plait.model.changes import BASE, KEYS_ALL, KEYS_NONE, LOG
from plait.model.instant import Operation
from plait.write.changing import ChangeStage
from plait.write.existing import Existing, Hidden, as_live
from plait.write.incoming import Incoming
from plait.write.keyed import CowStage, MorStage, find_keys
from plait.write.matching import Matches
from plait.write.merge import Rule
from plait.write.merging import MergeStage, Merging
from plait.write.output import Output
from plait.write.remove import remove_files, remove_rows
from plait.write.result import Staged
from plait.write.sinks import AppendSink, Log, LogSink, bucket_id
from plait.write.split import Group
from plait.write.touched import touched_row


@dataclass(slots=True)
class Came:
    """What came in, wherever it is kept: in runs, in logs, or in appended files."""

    runs: Incoming
    logs: LogSink | None
    appends: AppendSink | None
    partitions: frozenset[Partition | None]
    """Partitions that rows came for, and further ones that are to be overwritten."""
    groups: frozenset[Group] = field(init=False)
    """Buckets that rows came for."""

    def __post_init__(self) -> None:
        """Take in once what came."""
        found: list[Group] = self.runs.groups()
        if self.logs is not None:
            found += self.logs.logs
        if self.appends is not None:
            found += self.appends.records
        self.groups = frozenset(found)
        self.partitions |= {partition for partition, _ in found}


@dataclass(frozen=True, slots=True)
class Steps:
    """Stages one bucket after another on top of a snapshot."""

    output: Output
    existing: Existing
    came: Came
    matches: Matches | None
    budget: int
    merging: Merging | None = None
    """What an update or a merge does."""

    def buckets(self) -> list[BucketId]:
        """Give the buckets that the operation may change, in a fixed order."""
        plan = self.output.plan
        groups = self.came.groups
        found: set[BucketId]
        if plan.operation is Operation.DELETE and self.matches is None:
            present = self.existing.buckets()
            found = {b for b in present if b in groups or (None, b[1]) in groups}
            return sorted(found, key=str)
        found = {bucket_id(group) for group in groups}
        if self.matches is not None:
            found |= self.matches.buckets()
        elif self.merging is not None and self.merging.by_source.rules:
            found |= set(self.existing.buckets())
        elif plan.operation is Operation.OVERWRITE:
            found |= {bucket for bucket in self.existing.buckets() if self._replaced(bucket)}
        return sorted(found, key=str)

    def stage(self, bucket: BucketId) -> Staged:
        """Do the operation's work on one bucket."""
        operation = self.output.plan.operation
        files = self.existing.files(bucket)
        if self.merging is not None:
            return self._by_clauses(bucket, files, self.merging)
        if operation is Operation.DELETE and self.matches is None:
            return self._delete_keys(bucket, files)
        if operation is Operation.OVERWRITE and self.matches is None:
            staged = remove_files(files if self._replaced(bucket) else [])
            self._add(staged, self._insert(bucket, [], {}))
        else:
            hidden = {} if self.matches is None else self.matches.hidden(files)
            staged = self._insert(bucket, files, hidden)
        whole = self.matches is not None or operation is Operation.OVERWRITE
        if whole and not staged.empty:
            staged.touched = touched_row(bucket, KEYS_ALL, 0)
        return staged

    def _by_clauses(self, bucket: BucketId, files: Sequence[LiveFile], merging: Merging) -> Staged:
        if self.matches is None:
            merge = MergeStage(self.output, self.existing, self.came.runs, merging, self.budget)
            return merge.stage(bucket, files)
        change = ChangeStage(self.output, self.existing, merging.by_source, self.budget)
        return change.stage(bucket, files, self.matches.hidden(files))

    def _insert(self, bucket: BucketId, files: Sequence[LiveFile], hidden: Hidden) -> Staged:
        """Put what came in among rows of the table, some of which go."""
        if not self.output.spec.keyed:
            staged = remove_rows(bucket, files, hidden, self.existing, self.output)
            self._append(bucket, staged)
            return staged
        if bucket not in self.came.groups:
            return remove_rows(bucket, files, hidden, self.existing, self.output)
        if self.came.logs is None:
            cow = CowStage(self.output, self.existing, self.came.runs, self._rule(), self.budget)
            return cow.stage(bucket, files, hidden)
        if files:
            self._demote(bucket)
        mor = MorStage(self.output, self.existing, self.came.logs.logs, self._rule(), self.budget)
        return mor.stage(bucket, files, hidden)

    def _append(self, bucket: BucketId, staged: Staged) -> None:
        records = self.came.appends.records.get(bucket, []) if self.came.appends else []
        staged.added.extend(records)
        staged.inserted += sum(record["rows"][0].as_py() for record in records)
        if not staged.empty:
            staged.touched = touched_row(bucket, KEYS_NONE, 0)

    def _delete_keys(self, bucket: BucketId, files: Sequence[LiveFile]) -> Staged:
        runs = self.came.runs
        group: Group = bucket if bucket in self.came.groups else (None, bucket[1])
        hidden, digest = find_keys(runs, self.existing, group, bucket, self.budget)
        staged = remove_rows(bucket, files, hidden, self.existing, self.output)
        if not staged.empty or self.output.plan.claims:
            staged.touched = digest.row(bucket, self.output)
        return staged

    def _demote(self, bucket: BucketId) -> None:
        """Write our base file anew as a log: since it was written, others gave the bucket one."""
        logs = self.came.logs.logs[bucket] if self.came.logs is not None else []
        if not logs or logs[0].record["kind"][0].as_py() != BASE:
            return
        blocks = self.existing.blocks(as_live(logs[0].record, -1), self.output.spec.schema.names)
        record = self.output.write(bucket, LOG, (b.rows for b in blocks), sorted_by_key=True)
        if record is not None:
            logs[0] = Log(record, logs[0].range)

    def _rule(self) -> Rule:
        plan = self.output.plan
        if plan.operation in (Operation.APPEND, Operation.INSERT):
            return Rule.KEEP if plan.on_duplicate == "skip" else Rule.REFUSE
        return Rule.REFUSE if plan.operation is Operation.OVERWRITE else Rule.REPLACE

    def _replaced(self, bucket: BucketId) -> bool:
        """Whether an overwrite replaces the bucket whole."""
        return self.output.plan.overwrite == "table" or bucket[0] in self.came.partitions

    @staticmethod
    def _add(staged: Staged, more: Staged) -> None:
        staged.added += more.added
        staged.hidden.update(more.hidden)
        staged.inserted += more.inserted
        staged.touched = more.touched or staged.touched
