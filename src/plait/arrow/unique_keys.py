"""What each operation does to a bucket number of a table whose keys are unique in it (RFC 0030)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from plait.arrow.bucket_operations import StagedInput, rule_of, rule_within
from plait.arrow.existing import Existing, Hidden, Matches, hide, remove_files, remove_rows
from plait.arrow.merge import DuplicateRule, Merge
from plait.arrow.merge_into import Merging
from plait.arrow.output import KeyDigest, Output, Staged, touched_row
from plait.arrow.places import Placed, PlacedBucket
from plait.arrow.resolve import Resolver
from plait.arrow.runs import Incoming, kept_rows
from plait.errors import InvariantError
from plait.model.bucket import BucketId
from plait.model.changes import BASE, KEYS_ALL, KEYS_FILES, LOG
from plait.model.instant import Operation
from plait.model.order import KEY_ORDER
from plait.model.plan import MOR
from plait.read.join import Source

WITH_ROWS: Final = (
    Operation.INSERT,
    Operation.UPSERT,
    Operation.MERGE,
    Operation.OVERWRITE,
)
"""Operations that bring rows, whose keys any partition may have."""


@dataclass(frozen=True, slots=True)
class UniqueKeyOperations:
    """Stages one bucket number after another on top of a snapshot: it is in every partition."""

    output: Output
    existing: Existing
    staged_input: StagedInput
    matches: Matches | None
    budget: int
    merging: Merging | None = None

    def numbers(self) -> list[int]:
        """Return the bucket numbers that the operation may change, in order."""
        chosen = {number for _, number in self.staged_input.groups}
        if self.matches is not None:
            chosen |= {number for _, number in self.matches.buckets()}
        else:
            chosen |= {b[1] for b in self.existing.buckets() if self._replaced(b)}
        return sorted(chosen)

    def stage(self, number: int) -> tuple[dict[BucketId, Staged], Staged]:
        """Do the operation's work under a number; return it by bucket, and what stayed.

        Raises:
            DuplicateKeyError: a key must not be there, or comes twice.
        """
        buckets = self.existing.numbered(number)
        gone = [bucket for bucket in buckets if self._replaced(bucket)]
        kept = [file for b in buckets if b not in gone for file in self.existing.files(b)]
        hidden: Hidden = {}
        recorded: dict[BucketId, KeyDigest] = {}
        if self.matches is not None:
            recorded = {(f.partition, f.bucket): KeyDigest(self.output) for f in kept}
            hidden = self.matches.hidden(kept, lambda file: recorded[file.partition, file.bucket])
        for bucket in gone if self.output.names_keys else ():
            recorded[bucket] = KeyDigest(self.output)
            self.existing.record_keys(self.existing.files(bucket), recorded[bucket])
        plan = self.output.plan
        resolver = Resolver(
            self.output,
            self.existing,
            self.staged_input.runs,
            rule_of(plan),
            rule_within(plan),
            self.merging,
            self.budget,
        )
        placed = resolver.resolve((None, number), kept, hidden)
        placed.note_gone(recorded)
        try:
            incoming = placed.rows()
            lost = placed.lost.by_file()
            touched = {*placed.places, *gone}
            self.output.announce(partition for partition, _ in sorted(touched, key=str))
            done = {
                bucket: self._bucket(bucket, placed, incoming, lost, replaced=bucket in gone)
                for bucket in sorted(touched, key=str)
            }
        finally:
            placed.close()
        return done, placed.lookups.anywhere(number)

    def _bucket(
        self,
        bucket: BucketId,
        placed: Placed,
        incoming: Incoming,
        lost: Hidden,
        *,
        replaced: bool,
    ) -> Staged:
        """Write the rows that arrive in a bucket, and take out those that go."""
        files, place = self.existing.files(bucket), placed.places.get(bucket)
        staged = remove_files(files) if replaced else Staged()
        whole = staged.deleted
        live = [] if replaced else files
        gone = {file.path: lost[file.path] for file in live if file.path in lost}
        if place is None or not place.arrived:
            if live:
                staged = remove_rows(bucket, live, gone, self.existing, self.output)
        elif self.output.spec.layout.table_type == MOR:
            self._write(bucket, LOG if live else BASE, [], incoming, staged)
            hide(staged, live, gone, self.existing)
        else:
            names = self.output.spec.copied
            old = [self.existing.source(f, names, hidden=gone.get(f.path)) for f in live]
            self._write(bucket, BASE, old, incoming, staged)
            staged.removed += live
        if place is not None:
            staged.inserted, staged.updated = place.inserted, place.updated
        matched = sum(len(placed.matched.get(file.path, ())) for file in live)
        staged.deleted = whole + matched + (0 if place is None else place.deleted)
        self._tell(bucket, staged, place, merged=bool(live), replaced=replaced)
        return staged

    def _write(
        self,
        bucket: BucketId,
        kind: str,
        old: Sequence[Source],
        incoming: Incoming,
        staged: Staged,
    ) -> None:
        """Write what arrives, and rows of the bucket that stay, in the order of their keys."""
        spec, limits = self.output.spec, self.output.limits
        new = incoming.sources(bucket, written=spec.keeps_row_version and bool(old))

        def blocks() -> Iterator[pa.Table]:
            merge = Merge(spec.key, None, DuplicateRule.REPLACE)
            for each in merge.rounds([*old, *new], self.budget):
                if len(each.existing_matched):
                    raise InvariantError("a row of the table that was to go is still there")
                yield from kept_rows(each, limits.slice)

        record = self.output.write(bucket, kind, blocks(), order=KEY_ORDER)
        staged.added += [] if record is None else [record]

    def _tell(
        self,
        bucket: BucketId,
        staged: Staged,
        place: PlacedBucket | None,
        *,
        merged: bool,
        replaced: bool,
    ) -> None:
        """Say which keys were touched: those that arrived, and those that left."""
        if staged.empty:
            return
        if place is None or (replaced and not self.output.names_keys):
            staged.touched = touched_row(bucket, KEYS_ALL, 0)
            return
        rewritten = merged and self.output.spec.layout.table_type != MOR
        gone = place.left or place.matched or self.output.names_keys
        if gone or rewritten or self.output.records_keys(place.arrived):
            staged.touched = place.digest.row(bucket)
        else:
            staged.touched = touched_row(bucket, KEYS_FILES, place.arrived)

    @property
    def _overwrites(self) -> bool:
        return self.output.plan.request.operation is Operation.OVERWRITE

    def _replaced(self, bucket: BucketId) -> bool:
        """Whether an overwrite replaces the bucket whole."""
        if self.matches is not None or not self._overwrites:
            return False
        whole = self.output.plan.request.overwrite == "table"
        return whole or bucket[0] in self.staged_input.partitions
