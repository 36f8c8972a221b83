"""Stage a merge on one bucket: rows that came in meet the table's, and clauses decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from plait.arrow.clauses import BoundClauses, Chosen, Flags
from plait.arrow.existing import Existing, LostRows, hide
from plait.arrow.key_filter import KeyFilter
from plait.arrow.memory import combined, once_changed, taken
from plait.arrow.merge import DuplicateRule, Merge, twice_error
from plait.arrow.output import KeyDigest, Lookups, Output, Staged, touched_row
from plait.arrow.runs import Incoming, kept_rows, sliced
from plait.expr.evaluate import Sides
from plait.expr.tree import SOURCE, TARGET
from plait.files.data_file import LiveFile
from plait.files.keys import Indices
from plait.model.bucket import BucketId, partition_text
from plait.model.changes import BASE, KEYS_FILES, LOG
from plait.model.clauses import Clauses
from plait.model.instant import Operation
from plait.model.order import KEY_ORDER
from plait.model.plan import MOR, TableSpec
from plait.model.schema import unwritten
from plait.read.join import JoinedRows, SortedBatch, Source, file_positions, joined

_NONE: Indices = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Merging:
    """The clauses of a merge, bound to the table and to its source."""

    matched: BoundClauses
    not_matched: BoundClauses
    by_source: BoundClauses

    @classmethod
    def bind(cls, clauses: Clauses, spec: TableSpec, source: TableSpec | None) -> Merging:
        """Check every clause; without a source those that need one do nothing.

        Raises:
            PredicateError, SchemaMismatchError, OptionError: see ``Rules.bind``.
        """
        matched = clauses.matched if source is not None else ()
        inserted = clauses.not_matched if source is not None else ()
        return cls(
            BoundClauses.bind(matched, spec, source),
            BoundClauses.bind(inserted, spec, source, target=source is None),
            BoundClauses.bind(clauses.by_source, spec, None, merges=clauses.merges),
        )

    @property
    def target_columns(self) -> frozenset[str]:
        """The columns of the table that must be read where rows are not rewritten."""
        return self.matched.target_columns | self.by_source.target_columns


_Side: TypeAlias = dict[str, tuple[pa.Table, Indices]]
"""The rows of a side by its name, and by key where the row stands."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What clauses made of joined rows. All positions are numbers of keys, in key order."""

    rows: JoinedRows
    updated: Chosen
    inserted: Chosen

    @classmethod
    def of(cls, joined_rows: JoinedRows, merging: Merging, schema: pa.Schema) -> Merged:
        """Ask the clauses about joined rows."""
        old, new = combined(joined_rows.old), combined(joined_rows.new)
        rows = replace(joined_rows, old=old, new=new)
        is_old, is_new = rows.old_at >= 0, rows.new_at >= 0

        def choose(clauses: BoundClauses, flags: Flags, sides: _Side) -> Chosen:
            numbers: Indices = np.flatnonzero(flags)
            if not (len(numbers) and clauses.rules):
                return Chosen(_NONE, schema.empty_table(), _NONE)
            taken_sides = {s: t.take(pa.array(at[numbers])) for s, (t, at) in sides.items()}
            chosen = clauses.choose(Sides.of(**taken_sides))
            return Chosen(numbers[chosen.changed], chosen.rows, numbers[chosen.deleted])

        target, source = {TARGET: (old, rows.old_at)}, {SOURCE: (new, rows.new_at)}
        matched = choose(merging.matched, is_old & is_new, target | source)
        unmatched = choose(merging.by_source, is_old & ~is_new, target)
        inserted = choose(merging.not_matched, is_new & ~is_old, source)
        updated = Chosen(
            np.concatenate([matched.changed, unmatched.changed]),
            pa.concat_tables([matched.rows, unmatched.rows]),
            np.concatenate([matched.deleted, unmatched.deleted]),
        )
        return cls(rows, updated, inserted)

    @property
    def unchanged(self) -> bool:
        """Whether the rows of the table stay as they are."""
        return not (len(self.touched) or len(self.inserted.changed))

    @property
    def touched(self) -> Indices:
        """The positions of the old rows that change or go."""
        numbers = np.concatenate([self.updated.changed, self.updated.deleted])
        at: Indices = self.rows.old_at[numbers]
        return at

    @property
    def without_effect(self) -> Indices:
        """The positions of the new rows that changed nothing."""
        at: Indices = self.rows.new_at.copy()
        for numbers in (self.updated.changed, self.updated.deleted, self.inserted.changed):
            at[numbers] = -1
        effectless: Indices = at[at >= 0]
        return effectless

    def result(self, *, kept: bool, written: bool) -> pa.Table:
        """Return the rows that are there afterwards, in key order.

        Args:
            kept: whether the unchanged are among them.
            written: whether old rows have the hidden column, so that the new ones need it.
        """
        rows, updated, inserted = self.rows, self.updated, self.inserted
        if self.unchanged and kept and len(rows.origins) == 1:
            return rows.old
        fresh = [each.rows for each in (updated, inserted)]
        fresh = [unwritten(each) for each in fresh] if written else fresh
        old = rows.old if kept and rows.old.num_rows else fresh[0].slice(0, 0)
        picked = rows.old_at.copy() if kept else np.full_like(rows.old_at, -1)
        picked[updated.deleted] = -1
        start = old.num_rows
        for chosen in (updated, inserted):
            picked[chosen.changed] = np.arange(start, start + len(chosen.changed))
            start += len(chosen.changed)
        return taken(combined(pa.concat_tables([old, *fresh])), picked[picked >= 0])


@dataclass(frozen=True, slots=True)
class MergeStage:
    """Merges what came in for a bucket: rewrites it (COW), or masks and adds a log (MOR)."""

    output: Output
    existing: Existing
    incoming: Incoming
    merging: Merging
    budget: int
    """Bytes that joining one bucket may hold."""

    def stage(self, bucket: BucketId, files: Sequence[LiveFile]) -> Staged:
        """Do the merge on one bucket."""
        staged, lost = Staged(), LostRows({})
        digest, lookups = KeyDigest(self.output), Lookups.of(self.output)
        masks = self.output.spec.layout.table_type == MOR
        kind = LOG if masks and files else BASE
        written = self.output.spec.keeps_row_version and bool(files) and not masks

        def changed(merged: Merged) -> bool:
            staged.inserted += len(merged.inserted.changed)
            staged.updated += len(merged.updated.changed)
            staged.deleted += len(merged.updated.deleted)
            self._note(merged, digest, lookups)
            if masks:
                for at, positions in file_positions(merged.rows.origins, merged.touched):
                    lost.add(files[at].path, positions)
            return staged.counted

        blocks = once_changed(
            lambda: self._merged(bucket, files, masks=masks),
            changed,
            lambda merged: sliced(
                merged.result(kept=not masks, written=written), self.output.limits.slice
            ),
        )
        record = self.output.write(bucket, kind, blocks, order=KEY_ORDER)
        if not staged.counted:  # every row stays as it is
            return lookups.into(staged, bucket)
        staged.added = [] if record is None else [record]
        if masks:
            hide(staged, files, lost.by_file(), self.existing)
        else:
            staged.removed = list(files)
        new = touched_row(bucket, KEYS_FILES, staged.inserted)
        staged.touched = digest.row(bucket) if files or self.output.names_keys else new
        return lookups.into(staged, bucket)

    def _merged(
        self, bucket: BucketId, files: Sequence[LiveFile], *, masks: bool
    ) -> Iterator[Merged]:
        spec = self.output.spec
        names, within, sieve = spec.copied, None, None
        if masks:  # what does not meet anything need not be read
            wanted = self.merging.target_columns | set(spec.key)
            names = [name for name in names if name in wanted]
            if not self.merging.by_source.rules:
                within = self.incoming.range(bucket)
                came = self.incoming.sources(bucket)
                sieve = KeyFilter.for_unsorted(files, came, spec.key, self.budget // 4)
        old = [self.existing.source(file, names, within=within, sieve=sieve) for file in files]
        new = self.incoming.sources(bucket)
        if self.output.plan.request.operation is not Operation.MERGE:
            new = [self._winners(new)]
        for rows in joined(old, new, spec.key, self.budget):
            if len(rows.repeated):
                sample = rows.new.select(list(spec.key)).take(pa.array(rows.repeated))
                raise twice_error(sample, partition_text(bucket[0]))
            yield Merged.of(rows, self.merging, spec.schema.arrow)

    def _winners(self, incoming: Sequence[Source]) -> Source:
        """Return the row that an upsert takes, of all that came in with one key."""
        spec, limits = self.output.spec, self.output.limits
        merge = Merge(spec.key, spec.layout.ordering, DuplicateRule.REPLACE)
        rounds = merge.rounds(incoming, self.budget)
        return Source(
            SortedBatch(rows) for each in rounds for rows in kept_rows(each, limits.slice)
        )

    def _note(self, merged: Merged, digest: KeyDigest, lookups: Lookups) -> None:
        """Collect the keys that were touched, and those that came in and were not."""
        key = list(self.output.spec.key)
        if len(merged.touched):
            digest.add(merged.rows.old.select(key).take(pa.array(merged.touched)))
        if len(merged.inserted.changed):
            digest.add(merged.inserted.rows.select(key))
        if len(merged.without_effect):
            lookups.add(merged.rows.new.select(key).take(pa.array(merged.without_effect)))
