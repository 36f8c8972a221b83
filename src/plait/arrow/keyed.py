"""Stage buckets of a table with a record key: merge on write (COW), or mask (MOR)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.existing import Existing, Hidden, LostRows, as_live, hide
from plait.arrow.ingest import Group
from plait.arrow.memory import once_changed
from plait.arrow.merge import DuplicateRule, Merge, Round
from plait.arrow.output import KeyDigest, Lookups, Output, Staged, touched_row
from plait.arrow.sinks import Incoming, Log, hull, kept_rows
from plait.errors import DuplicateKeyError
from plait.files import keys
from plait.files.data_file import LiveFile
from plait.files.footer import Range
from plait.files.roaring import Positions
from plait.model.bucket import BucketId, partition_text
from plait.model.changes import BASE, KEYS_FILES
from plait.model.order import KEY_ORDER
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

    def stage(self, bucket: BucketId, files: Sequence[LiveFile], hidden: Hidden) -> Staged:
        """Merge what came in for a bucket with those of its live rows that are not hidden."""
        spec, limits = self.output.spec, self.output.limits
        digest, lookups = KeyDigest(self.output), Lookups.of(self.output)
        staged = Staged(deleted=sum(len(positions) for positions in hidden.values()))

        def rounds() -> Iterator[Round]:
            old = (
                self.existing.source(file, spec.schema.names, hidden=hidden.get(file.path))
                for file in files
            )
            merge = Merge(spec.key, spec.ordering, self.rule)
            return merge.rounds([*old, *self.incoming.sources(bucket)], self.budget)

        def changed(merged: Round) -> bool:
            count(merged, staged, bucket, self.rule, spec.key)
            lookups.add(merged.unchanged(spec.key))
            if files:
                digest.add(merged.arrived(spec.key))
            return staged.counted

        blocks = once_changed(rounds, changed, lambda merged: kept_rows(merged, limits.slice))
        record = self.output.write(bucket, BASE, blocks, order=KEY_ORDER)
        if record is None:  # every row that came in lost: the bucket stays as it is
            return lookups.into(Staged(), bucket)
        staged.added, staged.removed = [record], list(files)
        new = touched_row(bucket, KEYS_FILES, staged.inserted)
        staged.touched = digest.row(bucket) if files else new
        return lookups.into(staged, bucket)


@dataclass(frozen=True, slots=True)
class MorStage:
    """Masks what the files written for a bucket replace, and what they repeat."""

    output: Output
    existing: Existing
    logs: Mapping[BucketId, list[Log]]
    rule: DuplicateRule
    budget: int

    def stage(self, bucket: BucketId, files: Sequence[LiveFile], hidden: Hidden) -> Staged:
        """Find by the key columns alone which rows lose, in live files and in our own."""
        spec = self.output.spec
        logs = self.logs.get(bucket, [])
        own = [as_live(log.record, -1) for log in logs]
        every = [*files, *own]
        lost = LostRows(hidden)
        lookups = Lookups.of(self.output)
        staged = Staged(deleted=sum(len(positions) for positions in hidden.values()))
        if len(every) > 1 and own:
            sources = self._sources(files, own, hidden, hull([log.range for log in logs]))
            for merged in Merge(spec.key, spec.ordering, self.rule).rounds(sources, self.budget):
                count(merged, staged, bucket, self.rule, spec.key)
                lookups.add(merged.unchanged(spec.key))
                for at, positions in merged.lost():
                    lost.add(every[at].path, positions)
        else:
            staged.inserted = sum(file.rows for file in own)
        kept = 0
        for file, log in zip(own, logs, strict=True):
            masked = lost.of(file.path)
            if len(masked) == file.rows:
                continue
            staged.added.append(log.record)
            kept += file.rows
            if len(masked):
                staged.hidden[file.path] = masked
        hide(staged, files, lost.by_file(), self.existing)
        if not staged.empty:
            staged.touched = touched_row(bucket, KEYS_FILES, kept)
        return lookups.into(staged, bucket)

    def _sources(
        self,
        files: Sequence[LiveFile],
        own: Sequence[LiveFile],
        hidden: Hidden,
        within: Range,
    ) -> list[Source]:
        spec = self.output.spec
        names = list(dict.fromkeys([*spec.key, *filter(None, [spec.ordering])]))
        few = sum(file.rows for file in own)
        sieve: KeyFilter | None = None
        if few * _MANY_FOLD <= sum(file.rows for file in files):
            blocks = (block for file in own for block in self.existing.blocks(file, spec.key))
            sieve = KeyFilter.of(blocks, spec.key, self.budget // 4)
        sift = None if sieve is None else sieve.sift
        old = [
            self.existing.source(
                file, names, hidden=hidden.get(file.path), within=within, sift=sift
            )
            for file in files
        ]
        new = (Source(self.existing.blocks(file, names)) for file in own)
        return [*old, *new]


@dataclass(frozen=True, slots=True)
class Found:
    """What became of keys that were looked for."""

    hidden: dict[str, Positions]
    """By path: the rows that have one."""
    keys: KeyDigest
    """Those that a row has."""
    lookups: Lookups
    """Those that no row has."""


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
    sieve: KeyFilter | None = None
    if any(file.order != KEY_ORDER for file in files):
        came = (source for group in groups for source in incoming.sources(group))
        sieve = KeyFilter.of((block for each in came for block in each.blocks), key, budget // 4)
    sift = None if sieve is None else sieve.sift
    sources = [existing.source(file, key, within=within, sift=sift) for file in files]
    sources += [source for group in groups for source in incoming.sources(group)]
    for each in Merge(key, None, DuplicateRule.REMOVE).rounds(sources, budget):
        digest.add(each.rows.take(pa.array(each.met)))
        lookups.add(each.unchanged(key))
        for at, positions in each.lost():
            lost.add(files[at].path, positions)
    return Found(lost.by_file(), digest, lookups)


def count(
    merged: Round, staged: Staged, bucket: BucketId, rule: DuplicateRule, key: Sequence[str]
) -> None:
    """Count what a round of merging did; refuse keys that may not be there."""
    if rule is DuplicateRule.REFUSE and len(merged.met):
        sample = merged.rows.select(key).take(pa.array(merged.met[:_SAMPLE])).to_pylist()
        partition = partition_text(bucket[0])
        where = f"partition {partition} of the table" if bucket[0] else "the table"
        message = f"a key already exists in {where}: {sample[0]}"
        hint = "use upsert, or insert with on_duplicate='skip'"
        raise DuplicateKeyError(message, hint=hint, keys=sample, partition=partition)
    staged.inserted += merged.inserted
    staged.updated += merged.updated


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """A few keys that came in, to leave out of a large file every row that has none of them.

    Masking needs only the rows that meet others. So a small upsert looks each of its keys up in
    the sorted keys of a file, and merges what it found, in place of all rows of the file.
    """

    key: Sequence[str]
    wanted: keys.Keys

    @classmethod
    def of(
        cls, blocks: Iterable[SortedBatch], key: Sequence[str], size_max: int
    ) -> KeyFilter | None:
        """Collect the keys of blocks, of which there is one at least; None if they are too many.

        It takes three times ``size_max`` bytes while it puts them in order.
        """
        parts: list[keys.Keys] = []
        size = 0
        for block in blocks:
            parts.append(keys.encode(block.rows, key))
            size += parts[-1].nbytes
            if size > size_max:
                return None
        wanted = keys.concat(parts)
        return cls(key, keys.take(wanted, keys.merge_order(wanted)))

    def sift(self, blocks: Iterator[SortedBatch]) -> Iterator[SortedBatch]:
        """Return those rows whose key is wanted; each block is sorted by key."""
        for block in blocks:
            if not block.rows.num_rows:
                continue
            at = self._find(keys.encode(block.rows, self.key))
            if len(at):
                positions = None if block.positions is None else block.positions[at]
                yield SortedBatch(block.rows.take(pa.array(at)), positions)

    def _find(self, there: keys.Keys) -> keys.Indices:
        """Return the positions of rows with a wanted key; ``there`` is sorted."""
        if not isinstance(there, np.ndarray):
            low = max(0, keys.count_until(self.wanted, keys.at(there, 0)) - 1)
            high = keys.count_until(self.wanted, keys.at(there, -1))
            asked = keys.part(self.wanted, low, high)
            among: keys.Indices = np.flatnonzero(pc.is_in(there, value_set=asked))
            return among
        first, last = np.searchsorted(self.wanted, there[[0, -1]])
        asked = self.wanted[first : last + 1]
        places = np.minimum(np.searchsorted(there, asked), len(there) - 1)
        hits = places[there[places] == asked]
        once: keys.Indices = hits[keys.starts(hits)]
        return once
