"""Stage buckets of a table with a record key: merge on write (COW), or mask (MOR)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from plait.errors import DuplicateKeyError
from plait.files.live import LiveFile
from plait.model.bucket import BucketId, partition_text
from plait.model.changes import BASE, KEYS_FILES
from plait.write.existing import Existing, Hidden, as_live
from plait.write.incoming import Incoming
from plait.write.merge import Merge, Positions, Round, Rule, Source
from plait.write.output import Output
from plait.write.ranges import KeyRange, hull
from plait.write.remove import hide
from plait.write.result import Staged
from plait.write.sieve import Sieve
from plait.write.sinks import Log
from plait.write.spill import kept_rows
from plait.write.split import Group
from plait.write.touched import Digest, touched_row

_SAMPLE = 5
_MANY_FOLD = 4
"""Rows of the table a row that came in, from which on to look keys up is faster than to merge."""


@dataclass(frozen=True, slots=True)
class CowStage:
    """Rewrites a bucket: its rows and what came in, merged into one file sorted by key."""

    output: Output
    existing: Existing
    incoming: Incoming
    rule: Rule
    budget: int
    """Bytes that merging one bucket may hold."""

    def stage(self, bucket: BucketId, files: Sequence[LiveFile], hidden: Hidden) -> Staged:
        """Merge what came in for a bucket with those of its live rows that are not hidden."""
        spec, limits = self.output.spec, self.output.limits
        digest = Digest(spec.key, limits.buffer // 16)
        tally = _Tally(bucket, self.rule, spec.key)
        names = spec.schema.names
        sources = [
            self.existing.source(file, names, hidden=hidden.get(file.path)) for file in files
        ]
        sources += self.incoming.sources(bucket)

        def blocks() -> Iterator[pa.Table]:
            merge = Merge(spec.key, spec.ordering, self.rule)
            for each in merge.rounds(sources, self.budget):
                tally.add(each)
                if files:
                    digest.add(each.rows.slice(each.existing))
                yield from kept_rows(each, limits.slice)

        record = self.output.write(bucket, BASE, blocks(), sorted_by_key=True)
        gone = sum(len(positions) for positions in hidden.values())
        if record is None or not (tally.inserted or tally.updated or gone):
            # Every row that came in lost: the bucket stays as it is, the file is garbage.
            claims = files and self.output.plan.claims
            return Staged(touched=digest.row(bucket, self.output) if claims else None)
        new = touched_row(bucket, KEYS_FILES, tally.inserted)
        return Staged(
            added=[record],
            removed=list(files),
            touched=digest.row(bucket, self.output) if files else new,
            inserted=tally.inserted,
            updated=tally.updated,
            deleted=gone,
        )


@dataclass(frozen=True, slots=True)
class MorStage:
    """Masks what the files written for a bucket replace, and what they repeat."""

    output: Output
    existing: Existing
    logs: Mapping[BucketId, list[Log]]
    rule: Rule
    budget: int

    def stage(self, bucket: BucketId, files: Sequence[LiveFile], hidden: Hidden) -> Staged:
        """Find by the key columns alone which rows lose, in live files and in our own."""
        spec = self.output.spec
        logs = self.logs.get(bucket, [])
        own = [as_live(log.record, -1) for log in logs]
        every = [*files, *own]
        lost = _Lost(hidden)
        tally = _Tally(bucket, self.rule, spec.key)
        claims = self.output.plan.claims and len(every) > 1 and bool(own)
        digest = Digest(spec.key, self.output.limits.buffer // 16)
        if len(every) > 1 and own:
            sources = self._sources(files, own, hidden, hull(log.range for log in logs))
            for each in Merge(spec.key, spec.ordering, self.rule).rounds(sources, self.budget):
                tally.add(each)
                if claims:
                    digest.add(each.rows.slice(each.existing))
                for at, positions in each.lost():
                    lost.add(every[at].path, positions)
        else:
            tally.inserted = sum(file.rows for file in own)
        staged = Staged(inserted=tally.inserted, updated=tally.updated)
        staged.deleted = sum(len(positions) for positions in hidden.values())
        kept = 0
        for file, log in zip(own, logs, strict=True):
            masked = lost.of(file.path)
            if len(masked) == file.rows:
                continue
            staged.added.append(log.record)
            kept += file.rows
            if len(masked):
                staged.hidden[file.path] = masked
        hide(staged, files, lost.every(), self.existing)
        if claims:  # files do not show the keys of rows that lost
            staged.touched = digest.row(bucket, self.output)
        elif not staged.empty:
            staged.touched = touched_row(bucket, KEYS_FILES, kept)
        return staged

    def _sources(
        self,
        files: Sequence[LiveFile],
        own: Sequence[LiveFile],
        hidden: Hidden,
        within: KeyRange | None,
    ) -> list[Source]:
        spec = self.output.spec
        names = list(dict.fromkeys([*spec.key, *filter(None, [spec.ordering])]))
        old: Iterable[Source] = (
            self.existing.source(file, names, hidden=hidden.get(file.path), within=within)
            for file in files
        )
        few = sum(file.rows for file in own)
        if few * _MANY_FOLD <= sum(file.rows for file in files):
            blocks = (block for file in own for block in self.existing.blocks(file, spec.key))
            sieve = Sieve.of(blocks, spec.key, self.budget // 4)
            old = old if sieve is None else map(sieve.source, old)
        new = (Source(self.existing.blocks(file, names)) for file in own)
        return [*old, *new]


def find_keys(
    incoming: Incoming, existing: Existing, group: Group, bucket: BucketId, budget: int
) -> tuple[dict[str, Positions], Digest]:
    """Find the live rows of a bucket whose keys came in, and collect these keys."""
    key = incoming.sink.key
    files = existing.files(bucket)
    within = incoming.range(group)
    lost = _Lost({})
    digest = Digest(key, incoming.sink.limits.buffer // 16)
    sources = [existing.source(file, key, within=within) for file in files]
    sources += incoming.sources(group)
    for each in Merge(key, None, Rule.REMOVE).rounds(sources, budget):
        digest.add(each.rows.slice(each.existing))
        for at, positions in each.lost():
            lost.add(files[at].path, positions)
    return lost.every(), digest


@dataclass(slots=True)
class _Tally:
    """Counts what a merge did, and refuses keys that may not be there."""

    bucket: BucketId
    rule: Rule
    key: Sequence[str]
    inserted: int = 0
    updated: int = 0

    def add(self, merged: Round) -> None:
        if self.rule is Rule.REFUSE and len(merged.met):
            rows = merged.rows.select(self.key).take(pa.array(merged.met[:_SAMPLE]))
            sample = rows.to_pylist()
            message = f"a key is in partition {self.bucket[0]} of the table already: {sample[0]}"
            raise DuplicateKeyError(
                message,
                hint="use upsert, or insert with on_duplicate='skip'",
                keys=sample,
                partition=partition_text(self.bucket[0]),
            )
        self.inserted += merged.inserted
        self.updated += merged.updated


class _Lost:
    """Positions by file, collected round by round."""

    def __init__(self, hidden: Hidden) -> None:
        self._parts: dict[str, list[Positions]] = {p: [at] for p, at in hidden.items()}

    def add(self, path: str, positions: Positions) -> None:
        self._parts.setdefault(path, []).append(positions)

    def of(self, path: str) -> Positions:
        parts = self._parts.get(path)
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.uint64)

    def every(self) -> dict[str, Positions]:
        return {path: self.of(path) for path in self._parts}
