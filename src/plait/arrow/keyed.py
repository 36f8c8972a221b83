"""Stage buckets of a table with a record key: merge on write (COW), or mask (MOR)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from plait.arrow.existing import Existing, Hidden, LostRows, as_live, hide
from plait.arrow.ingest import Group
from plait.arrow.key_filter import KeyFilter
from plait.arrow.memory import once_changed
from plait.arrow.merge import DuplicateRule, Merge, Round
from plait.arrow.output import KeyDigest, Lookups, Output, Staged, touched_row
from plait.arrow.runs import Incoming, Run, hull, kept_rows
from plait.arrow.sinks import LogSink, ShownKeys
from plait.errors import DuplicateKeyError
from plait.files.data_file import LiveFile
from plait.files.footer import Range
from plait.files.roaring import Positions
from plait.model.bucket import BucketId, partition_text
from plait.model.changes import BASE, KEYS_FILES
from plait.model.order import KEY_ORDER
from plait.model.value import plain_rows
from plait.read.join import SortedBatch, Source

_SAMPLE = 5
_MANY_FOLD = 4
"""Rows of the table a row that came in, from which on to look keys up is faster than to merge."""


@dataclass(frozen=True, slots=True)
class CowStage:
    """Rewrites a bucket: its rows and what came in, merged into one file sorted by key."""

    output: Output
    existing: Existing
    incoming: Incoming
    rule: DuplicateRule
    budget: int
    """Bytes that merging one bucket may hold."""

    def stage(
        self, bucket: BucketId, files: Sequence[LiveFile], hidden: Hidden, digest: KeyDigest
    ) -> Staged:
        """Merge what came in for a bucket with those of its live rows that are not hidden.

        ``digest`` has the keys of those that are.
        """
        spec, limits = self.output.spec, self.output.limits
        names, key = spec.copied, spec.key
        lookups = Lookups.of(self.output)
        few, names_keys = self.output.records_keys, self.output.names_keys
        staged = Staged(deleted=sum(len(positions) for positions in hidden.values()))

        def rounds() -> Iterator[Round]:
            new = self.incoming.sources(bucket, written=spec.keeps_row_version and bool(files))
            old = [
                self.existing.source(each, names, hidden=hidden.get(each.path)) for each in files
            ]
            merge = Merge(key, spec.layout.ordering, self.rule)
            return merge.rounds([*old, *new], self.budget)

        def changed(merged: Round) -> bool:
            count(merged, staged, bucket, self.rule, key)
            lookups.add(merged.unchanged(key))
            if files or names_keys or few(staged.inserted):
                digest.add(merged.arrived(key))
                digest.add(merged.removed(key))
            return staged.counted

        blocks = once_changed(rounds, changed, lambda merged: kept_rows(merged, limits.slice))
        record = self.output.write(bucket, BASE, blocks, order=KEY_ORDER)
        if record is None and not staged.counted:  # every row that came in lost: it stays as it is
            return lookups.into(Staged(), bucket)
        staged.added, staged.removed = [] if record is None else [record], list(files)
        recorded = files or names_keys or few(staged.inserted)
        new = touched_row(bucket, KEYS_FILES, staged.inserted)
        staged.touched = digest.row(bucket) if recorded else new
        return lookups.into(staged, bucket)


@dataclass(frozen=True, slots=True)
class MorStage:
    """Masks what the files written for a bucket replace, what they repeat, and what was removed."""

    output: Output
    existing: Existing
    sink: LogSink
    rule: DuplicateRule
    budget: int

    def stage(
        self, bucket: BucketId, files: Sequence[LiveFile], hidden: Hidden, digest: KeyDigest
    ) -> Staged:
        """Find by the key columns alone which rows lose, in live files and in our own.

        ``digest`` has the keys of the rows that are hidden already.
        """
        spec = self.output.spec
        logs, removes = self.sink.logs.get(bucket, []), bucket in self.sink.removals
        own = [as_live(log.record) for log in logs]
        lost = LostRows(hidden)
        lookups = Lookups.of(self.output)
        staged = Staged(deleted=sum(len(positions) for positions in hidden.values()))
        gone, names_keys = 0, self.output.names_keys or bool(hidden)
        if removes or (own and len(files) + len(own) > 1):
            came = self._arrivals(bucket, own)
            paths = [str(each.path) for each in (*files, *came)]
            sources = self._sources(files, came, hidden, self.sink.range(bucket))
            merge = Merge(spec.key, spec.layout.ordering, self.rule)
            for merged in merge.rounds(sources, self.budget):
                count(merged, staged, bucket, self.rule, spec.key)
                lookups.add(merged.unchanged(spec.key))
                gone += len(merged.gone)
                if removes or names_keys:
                    digest.add(merged.arrived(spec.key))
                    digest.add(merged.removed(spec.key))
                for at, positions in merged.lost():
                    lost.add(paths[at], positions)
        else:
            staged.inserted = sum(file.rows for file in own)
            for log in logs if names_keys else ():
                digest.give_up() if log.hashes is None else digest.add_hashes(log.hashes)
        shown = ShownKeys(self.output)
        for file, log in zip(own, logs, strict=True):
            masked = lost.of(file.path)
            if len(masked) == file.rows:
                continue
            staged.added.append(log.record)
            shown.add(log, lost=len(masked))
            if len(masked):
                staged.hidden[file.path] = masked
        hide(staged, files, lost.by_file(), self.existing)
        if not staged.empty:  # the keys of rows that went are in no file of ours
            staged.touched = digest.row(bucket) if gone or names_keys else shown.row(bucket)
        return lookups.into(staged, bucket)

    def _arrivals(self, bucket: BucketId, own: Sequence[LiveFile]) -> list[LiveFile | Run]:
        """Return our files and what was removed, in the order in which they came."""
        came: list[LiveFile | Run] = []
        for at, file in enumerate(own):
            came += [*self.sink.removed(bucket, at), file]
        return came + self.sink.removed(bucket, len(own))

    def _sources(
        self,
        files: Sequence[LiveFile],
        came: Sequence[LiveFile | Run],
        hidden: Hidden,
        within: Range,
    ) -> list[Source]:
        spec = self.output.spec
        names = list(dict.fromkeys([*spec.key, *filter(None, [spec.layout.ordering])]))
        few = sum(each.rows for each in came)
        sieve: KeyFilter | None = None
        if few * _MANY_FOLD <= sum(file.rows for file in files):
            blocks = (block for each in came for block in self._blocks(each, spec.key))
            hashed = any(file.order != KEY_ORDER for file in files)
            sieve = KeyFilter.of(blocks, spec.key, self.budget // 4, hashed=hashed)
        old = [
            self.existing.source(
                file, names, hidden=hidden.get(file.path), within=within, sieve=sieve
            )
            for file in files
        ]
        new = (Source(self._blocks(each, names), removes=isinstance(each, Run)) for each in came)
        return [*old, *new]

    def _blocks(self, came: LiveFile | Run, names: Sequence[str]) -> Iterator[SortedBatch]:
        if isinstance(came, Run):
            return came.source().blocks
        return self.existing.blocks(came, names)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of keys that were looked for."""

    hidden: dict[str, Positions]
    """By path: the rows that have one."""
    keys: KeyDigest
    """Keys that some row has."""
    lookups: Lookups
    """Looked-up keys that no row has."""


def find_keys(
    incoming: Incoming,
    existing: Existing,
    groups: Sequence[Group],
    files: Sequence[LiveFile],
    output: Output,
    *,
    budget: int,
) -> Found:
    """Find the live rows among some files of a bucket whose keys came in."""
    key = incoming.sink.key
    within = hull([incoming.range(group) for group in groups])
    lost = LostRows({})
    digest = KeyDigest(output)
    lookups = Lookups.of(output)
    came = (source for group in groups for source in incoming.sources(group))
    sieve = KeyFilter.for_unsorted(files, came, key, budget // 4)
    sources = [existing.source(file, key, within=within, sieve=sieve) for file in files]
    sources += [source for group in groups for source in incoming.sources(group)]
    for each in Merge(key, None, DuplicateRule.REMOVE).rounds(sources, budget):
        digest.add(each.rows.take(pa.array(each.existing_matched)))
        lookups.add(each.unchanged(key))
        for at, positions in each.lost():
            lost.add(files[at].path, positions)
    return Found(lost.by_file(), digest, lookups)


def count(
    merged: Round, staged: Staged, bucket: BucketId, rule: DuplicateRule, key: Sequence[str]
) -> None:
    """Count what a round of merging did; refuse keys that may not be there."""
    if rule is DuplicateRule.REFUSE and len(merged.existing_matched):
        sample = plain_rows(
            merged.rows.select(key).take(pa.array(merged.existing_matched[:_SAMPLE]))
        )
        partition = partition_text(bucket[0])
        where = f"partition {partition} of the table" if bucket[0] else "the table"
        message = f"a key already exists in {where}: {sample[0]}"
        hint = "use upsert, or insert with on_duplicate='skip'"
        raise DuplicateKeyError(message, hint=hint, keys=sample, partition=partition)
    staged.inserted += merged.inserted
    staged.updated += merged.updated
    staged.deleted += len(merged.gone)
