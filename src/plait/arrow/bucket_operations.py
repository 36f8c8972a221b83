"""What each operation does to a bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from plait.arrow.existing import Existing, Hidden, Matches, as_live, remove_files, remove_rows
from plait.arrow.ingest import Group
from plait.arrow.keyed import CowStage, MorStage, find_keys
from plait.arrow.merge import DuplicateRule
from plait.arrow.merge_into import MergeStage, Merging
from plait.arrow.output import KeyDigest, Output, Staged, bucket_id, touched_row
from plait.arrow.runs import Incoming
from plait.arrow.sinks import AppendSink, Log, LogSink
from plait.arrow.update import ChangeStage
from plait.files.data_file import LiveFile
from plait.model.bucket import BucketId, Partition
from plait.model.changes import BASE, KEYS_ALL, KEYS_NONE, LOG
from plait.model.instant import Operation
from plait.model.order import KEY_ORDER
from plait.model.request import WritePlan


@dataclass(slots=True)
class StagedInput:
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
        groups: list[Group] = self.runs.groups()
        if self.logs is not None:
            groups += self.logs.logs
        if self.appends is not None:
            groups += self.appends.records
        self.groups = frozenset(groups)
        self.partitions |= {partition for partition, _ in groups}


@dataclass(frozen=True, slots=True)
class BucketOperations:
    """Stages one bucket after another on top of a snapshot."""

    output: Output
    existing: Existing
    staged_input: StagedInput
    matches: Matches | None
    budget: int
    merging: Merging | None = None
    """What an update or a merge does."""

    def buckets(self) -> list[BucketId]:
        """Return the buckets that the operation may change, in a fixed order."""
        plan = self.output.plan
        groups = self.staged_input.groups
        chosen: set[BucketId]
        if plan.request.operation is Operation.DELETE and self.matches is None:
            present = self.existing.buckets()
            chosen = {b for b in present if b in groups or (None, b[1]) in groups}
            chosen |= {bucket_id(group) for group in groups if group[0] is not None}
            return sorted(chosen, key=str)
        chosen = {bucket_id(group) for group in groups}
        if self.matches is not None:
            chosen |= self.matches.buckets()
        elif self.merging is not None and self.merging.by_source.rules:
            chosen |= set(self.existing.buckets())
        elif plan.request.operation is Operation.OVERWRITE:
            chosen |= {bucket for bucket in self.existing.buckets() if self._replaced(bucket)}
        return sorted(chosen, key=str)

    def stage(self, bucket: BucketId) -> Staged:
        """Do the operation's work on one bucket."""
        operation = self.output.plan.request.operation
        files = self.existing.files(bucket)
        if self.merging is not None:
            return self._by_clauses(bucket, files, self.merging)
        if operation is Operation.DELETE and self.matches is None:
            return self._delete_keys(bucket, files)
        if self.matches is not None:
            return self._by_predicate(bucket, files, self.matches)
        if operation is Operation.OVERWRITE:
            return self._replace(bucket, files if self._replaced(bucket) else [])
        return self._insert(bucket, files, {}, KeyDigest(self.output))

    def _replace(self, bucket: BucketId, files: Sequence[LiveFile]) -> Staged:
        """Put what came in the place of whole files."""
        staged, gone = remove_files(files), KeyDigest(self.output)
        named = self.output.spec.keyed and self.output.names_keys
        if named:
            self.existing.record_keys(files, gone)
        self._add(staged, self._insert(bucket, [], {}, gone))
        if staged.empty or (named and staged.touched is not None):
            return staged
        staged.touched = gone.row(bucket) if named else touched_row(bucket, KEYS_ALL, 0)
        return staged

    def _by_predicate(
        self, bucket: BucketId, files: Sequence[LiveFile], matches: Matches
    ) -> Staged:
        """Take out the rows that match, and put in what came; tell the keys of both."""
        keyed, gone = self.output.spec.keyed, KeyDigest(self.output)
        hidden = matches.hidden(files, (lambda _: gone) if keyed else None)
        staged = self._insert(bucket, files, hidden, gone)
        if staged.empty:
            return staged
        if not keyed:
            staged.touched = touched_row(bucket, KEYS_ALL, 0)
        elif staged.touched is None:
            staged.touched = gone.row(bucket)
        return staged

    def _by_clauses(self, bucket: BucketId, files: Sequence[LiveFile], merging: Merging) -> Staged:
        if self.matches is None:
            merge = MergeStage(
                self.output, self.existing, self.staged_input.runs, merging, self.budget
            )
            return merge.stage(bucket, files)
        change = ChangeStage(self.output, self.existing, merging.by_source, self.budget)
        return change.stage(bucket, files, self.matches.hidden(files))

    def _insert(
        self, bucket: BucketId, files: Sequence[LiveFile], hidden: Hidden, gone: KeyDigest
    ) -> Staged:
        """Put what came in among rows of the table, some of which go; ``gone`` has their keys."""
        if not self.output.spec.keyed:
            staged = remove_rows(bucket, files, hidden, self.existing, self.output)
            self._append(bucket, staged)
            return staged
        if bucket not in self.staged_input.groups:
            return remove_rows(bucket, files, hidden, self.existing, self.output)
        if self.staged_input.logs is None:
            cow = CowStage(
                self.output,
                self.existing,
                self.staged_input.runs,
                rule_of(self.output.plan),
                self.budget,
            )
            return cow.stage(bucket, files, hidden, gone)
        if files:
            self._demote(bucket)
        mor = MorStage(
            self.output,
            self.existing,
            self.staged_input.logs,
            rule_of(self.output.plan),
            self.budget,
        )
        return mor.stage(bucket, files, hidden, gone)

    def _append(self, bucket: BucketId, staged: Staged) -> None:
        records = (
            self.staged_input.appends.records.get(bucket, []) if self.staged_input.appends else []
        )
        staged.added.extend(records)
        staged.inserted += sum(record["rows"][0].as_py() for record in records)
        if not staged.empty:
            staged.touched = touched_row(bucket, KEYS_NONE, 0)

    def _delete_keys(self, bucket: BucketId, files: Sequence[LiveFile]) -> Staged:
        wanted: tuple[Group, ...] = (bucket, (None, bucket[1]))
        groups = [group for group in wanted if group in self.staged_input.groups]
        deletion = find_keys(
            self.staged_input.runs, self.existing, groups, files, self.output, budget=self.budget
        )
        staged = remove_rows(bucket, files, deletion.hidden, self.existing, self.output)
        if not staged.empty:
            staged.touched = deletion.keys.row(bucket)
        return deletion.lookups.into(staged, bucket) if bucket in groups else staged

    def everywhere(self, done: Mapping[BucketId, Staged]) -> Iterator[tuple[int, Staged]]:
        """Note the keys that name no partition: they were looked for in every one.

        Also in those that have no file yet, which no bucket's own work can say.
        """
        runs = self.staged_input.runs
        for group in sorted(self.staged_input.groups, key=str):
            partition, number = group
            if partition is not None:
                continue
            lookup = find_keys(runs, self.existing, [group], (), self.output, budget=self.budget)
            staged = lookup.lookups.anywhere(number)
            gone = sum(work.deleted for bucket, work in done.items() if bucket[1] == number)
            staged.unchanged = max(0, staged.unchanged - gone)
            yield number, staged

    def _demote(self, bucket: BucketId) -> None:
        """Write our base file anew as a log: since it was written, others gave the bucket one."""
        logs = self.staged_input.logs.logs[bucket] if self.staged_input.logs is not None else []
        if not logs or logs[0].record["kind"][0].as_py() != BASE:
            return
        spec = self.output.spec
        names = spec.copied if self.output.plan.request.with_row_version else spec.schema.names
        blocks = self.existing.blocks(as_live(logs[0].record), names)
        record = self.output.write(bucket, LOG, (b.rows for b in blocks), order=KEY_ORDER)
        if record is not None:
            logs[0] = Log(record, logs[0].range, logs[0].hashes)

    def _replaced(self, bucket: BucketId) -> bool:
        """Whether an overwrite replaces the bucket whole."""
        whole = self.output.plan.request.overwrite == "table"
        return whole or bucket[0] in self.staged_input.partitions

    @staticmethod
    def _add(staged: Staged, more: Staged) -> None:
        staged.added += more.added
        staged.hidden.update(more.hidden)
        staged.inserted += more.inserted
        staged.touched = more.touched or staged.touched


def rule_of(plan: WritePlan) -> DuplicateRule:
    """Return what becomes of a key that the table has and that comes in too."""
    request = plan.request
    if request.operation in (Operation.APPEND, Operation.INSERT):
        return DuplicateRule.KEEP if request.on_duplicate == "skip" else DuplicateRule.REFUSE
    replaces = request.operation is not Operation.OVERWRITE
    return DuplicateRule.REPLACE if replaces else DuplicateRule.REFUSE


def rule_within(plan: WritePlan) -> DuplicateRule:
    """Return what becomes of a key that comes in more than once."""
    return DuplicateRule.ONCE if plan.request.operation is Operation.MERGE else rule_of(plan)
