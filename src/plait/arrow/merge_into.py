"""Stage a merge on one bucket: rows that came in meet the table's, and clauses decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.arrow.clauses import BoundClauses, Chosen
from plait.arrow.existing import Existing
from plait.arrow.memory import combined, once_changed, taken
from plait.arrow.merge import (
    DuplicateRule,
    KeyedRows,
    Merge,
    Positions,
    SortedBatch,
    Source,
    aligned,
    twice_error,
)
from plait.arrow.output import Output
from plait.arrow.remove import hide
from plait.arrow.result import KeyDigest, Lookups, Staged, touched_row
from plait.arrow.spill import Incoming, kept_rows
from plait.expr.evaluate import Sides
from plait.expr.tree import SOURCE, TARGET
from plait.files import keys
from plait.files.keys import Indices
from plait.files.live import LiveFile
from plait.model.bucket import BucketId, partition_text
from plait.model.changes import BASE, KEYS_FILES, LOG
from plait.model.clauses import Clauses
from plait.model.instant import Operation
from plait.model.plan import MOR, TableSpec

_SAMPLE = 5


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """Rows of both sides up to some key; each key at most once on each side."""

    old: pa.Table
    new: pa.Table
    groups: int
    """Keys that there are."""
    of_old: keys.Indices
    """For each old row the number of its key, in the order of keys."""
    of_new: keys.Indices
    matched_old: keys.Indices
    """Positions of the old rows whose key came in, and ..."""
    matched_new: keys.Indices
    """... of the new rows that they meet, in the same order."""
    only_old: keys.Indices
    only_new: keys.Indices
    origins: tuple[tuple[int, int, Positions | None], ...]
    """For each stretch of the old rows: its source, its length, its positions in the file."""

    def positions(self, at: keys.Indices) -> Iterator[tuple[int, Positions]]:
        """Return, for each source, where some of its old rows stand in the file."""
        start = 0
        ordered = np.sort(at)
        for source, count, positions in self.origins:
            low, high = np.searchsorted(ordered, [start, start + count])
            if positions is not None and high > low:
                yield source, positions[ordered[low:high] - start]
            start += count


@dataclass(frozen=True, slots=True)
class Join:
    """Joins the sorted sources of a bucket on the record key, in bounded memory."""

    key: Sequence[str]
    bucket: BucketId
    """For errors."""

    def meetings(
        self, old: Sequence[Source], new: Sequence[Source], size_bytes: int
    ) -> Iterator[MatchedRows]:
        """Return what meets, about ``size_bytes`` at a time.

        Raises:
            DuplicateKeyError: two rows that came in have one key.
        """
        for parts in aligned([*old, *new], self.key, size_bytes):
            yield self._meeting(parts, len(old))

    def _meeting(self, parts: list[tuple[int, KeyedRows]], count: int) -> MatchedRows:
        there = [(at, part) for at, part in parts if at < count]
        incoming = [part for at, part in parts if at >= count]
        found = keys.concat([*(part.keys for _, part in there), *(part.keys for part in incoming)])
        order = keys.merge_order(found)
        number = np.cumsum(keys.starts(keys.take(found, order))) - 1
        numbers: keys.Indices = np.empty(len(order), dtype=np.int64)
        numbers[order] = number
        rows = sum(part.rows.num_rows for _, part in there)
        of_old, of_new = numbers[:rows], numbers[rows:]
        groups = int(number[-1]) + 1
        new = _table([part.rows for part in incoming])
        self._require_one(new, of_new, groups)
        old_of: keys.Indices = np.full(groups, -1, dtype=np.int64)
        old_of[of_old] = np.arange(rows)
        met = old_of[of_new]
        hit: npt.NDArray[np.bool_] = met >= 0
        alone = np.ones(rows, dtype=np.bool_)
        alone[met[hit]] = False
        return MatchedRows(
            old=_table([part.rows for _, part in there]),
            new=new,
            groups=groups,
            of_old=of_old,
            of_new=of_new,
            matched_old=met[hit],
            matched_new=np.flatnonzero(hit),
            only_old=np.flatnonzero(alone),
            only_new=np.flatnonzero(~hit),
            origins=tuple((at, part.rows.num_rows, part.positions) for at, part in there),
        )

    def _require_one(self, new: pa.Table, of_new: keys.Indices, groups: int) -> None:
        counts = np.bincount(of_new, minlength=groups)
        if not (counts > 1).any():
            return
        twice = np.flatnonzero(counts > 1)
        first = [int(np.flatnonzero(of_new == number)[0]) for number in twice[:_SAMPLE]]
        sample = new.select(list(self.key)).take(pa.array(first)).to_pylist()
        raise twice_error(sample, partition_text(self.bucket[0]))


def _table(parts: Sequence[pa.Table]) -> pa.Table:
    if not parts:
        return pa.table({})
    return combined(pa.concat_tables(parts))


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
            BoundClauses.bind(clauses.by_source, spec, None),
        )

    @property
    def target_columns(self) -> frozenset[str]:
        """The columns of the table that must be read where rows are not rewritten."""
        return self.matched.target_columns | self.by_source.target_columns


@dataclass(slots=True)
class _Work:
    """What clauses made of one meeting."""

    meeting: MatchedRows
    updated: Chosen
    """Positions are those of old rows."""
    inserted: Chosen
    """Positions are those of new rows."""
    left: Indices
    """Positions of the new rows that changed nothing."""

    @classmethod
    def of(cls, meeting: MatchedRows, merging: Merging, schema: pa.Schema) -> _Work:
        old, new = meeting.old, meeting.new
        nothing = Chosen(_NONE, schema.empty_table(), _NONE)
        both = alone = fresh = nothing
        if len(meeting.matched_old) and merging.matched.rules:
            pair = Sides.of(
                **{
                    TARGET: old.take(pa.array(meeting.matched_old)),
                    SOURCE: new.take(pa.array(meeting.matched_new)),
                }
            )
            both = merging.matched.choose(pair)
        if len(meeting.only_old) and merging.by_source.rules:
            alone = merging.by_source.choose(
                Sides.of(**{TARGET: old.take(pa.array(meeting.only_old))})
            )
        if len(meeting.only_new) and merging.not_matched.rules:
            fresh = merging.not_matched.choose(
                Sides.of(**{SOURCE: new.take(pa.array(meeting.only_new))})
            )
        m, o = meeting.matched_old, meeting.only_old
        updated = Chosen(
            np.concatenate([m[both.changed], o[alone.changed]]),
            pa.concat_tables([both.rows, alone.rows]),
            np.concatenate([m[both.deleted], o[alone.deleted]]),
        )
        inserted = Chosen(meeting.only_new[fresh.changed], fresh.rows, _NONE)
        left = np.ones(new.num_rows, dtype=np.bool_)
        left[meeting.matched_new[both.changed]] = False
        left[meeting.matched_new[both.deleted]] = False
        left[inserted.changed] = False
        return cls(meeting, updated, inserted, np.flatnonzero(left))

    @property
    def idle(self) -> bool:
        """Whether nothing changes."""
        return not (
            len(self.updated.changed) or len(self.updated.deleted) or len(self.inserted.changed)
        )

    @property
    def touched(self) -> tuple[pa.Table, Indices]:
        """The old rows that change or go."""
        return self.meeting.old, np.concatenate([self.updated.changed, self.updated.deleted])

    def rows(self, *, kept: bool) -> pa.Table:
        """Return the rows that are there afterwards, in key order; ``kept``: the unchanged too."""
        meeting, updated = self.meeting, self.updated
        if self.idle and kept and len(meeting.origins) == 1:
            return meeting.old
        parts, count = [updated.rows, self.inserted.rows], 0
        pick: Indices = np.full(meeting.groups, -1, dtype=np.int64)
        if kept and meeting.old.num_rows:
            parts.insert(0, meeting.old)
            count = meeting.old.num_rows
            pick[meeting.of_old] = np.arange(count)
        pick[meeting.of_old[updated.deleted]] = -1
        stop = count + len(updated.changed)
        pick[meeting.of_old[updated.changed]] = np.arange(count, stop)
        pick[meeting.of_new[self.inserted.changed]] = np.arange(
            stop, stop + len(self.inserted.changed)
        )
        return taken(combined(pa.concat_tables(parts)), pick[pick >= 0])


@dataclass(slots=True)
class _Count:
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def add(self, work: _Work) -> None:
        self.inserted += len(work.inserted.changed)
        self.updated += len(work.updated.changed)
        self.deleted += len(work.updated.deleted)

    def into(self, staged: Staged) -> Staged:
        staged.inserted, staged.updated = self.inserted, self.updated
        staged.deleted = self.deleted
        return staged

    def __bool__(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)


@dataclass(slots=True)
class MergeStage:
    """Merges what came in for a bucket: rewrites it (COW), or masks and adds a log (MOR)."""

    output: Output
    existing: Existing
    incoming: Incoming
    merging: Merging
    budget: int
    """Bytes that joining one bucket may hold."""
    _count: _Count = field(default_factory=_Count)
    _lost: dict[str, list[Positions]] = field(default_factory=dict)

    def stage(self, bucket: BucketId, files: Sequence[LiveFile]) -> Staged:
        """Do the merge on one bucket."""
        self._count, self._lost = _Count(), {}
        digest = KeyDigest(self.output.spec.key, self.output.limits.buffer // 16)
        lookups = Lookups.of(self.output)
        masks = self.output.spec.table_type == MOR
        kind = LOG if masks and files else BASE

        def changed(work: _Work) -> bool:
            self._count.add(work)
            self._note(work, digest, lookups)
            if masks:
                for at, positions in work.meeting.positions(work.touched[1]):
                    self._lost.setdefault(files[at].path, []).append(positions)
            return bool(self._count)

        blocks = once_changed(
            lambda: self._works(bucket, files, masks=masks),
            changed,
            lambda work: self._rows(work, kept=not masks),
        )
        record = self.output.write(bucket, kind, blocks, sorted_by_key=True)
        staged = lookups.into(Staged(), bucket)
        if not self._count:  # every row stays as it is
            return staged
        staged.added = [] if record is None else [record]
        if masks:
            lost = {path: np.sort(np.concatenate(p)) for path, p in self._lost.items()}
            hide(staged, files, lost, self.existing)
        else:
            staged.removed = list(files)
        if files:
            staged.touched = digest.row(bucket, self.output)
        else:
            staged.touched = touched_row(bucket, KEYS_FILES, self._count.inserted)
        return self._count.into(staged)

    def _works(
        self, bucket: BucketId, files: Sequence[LiveFile], *, masks: bool
    ) -> Iterator[_Work]:
        spec = self.output.spec
        names, within = list(spec.schema.names), None
        if masks:  # what does not meet anything need not be read
            wanted = self.merging.target_columns | set(spec.key)
            names = [name for name in names if name in wanted]
            within = None if self.merging.by_source.rules else self.incoming.range(bucket)
        old = [self.existing.source(file, names, within=within) for file in files]
        new = self.incoming.sources(bucket)
        if self.output.plan.operation is not Operation.MERGE:
            new = [self._winners(new)]
        for meeting in Join(spec.key, bucket).meetings(old, new, self.budget):
            yield _Work.of(meeting, self.merging, spec.schema.arrow)

    def _rows(self, work: _Work, *, kept: bool) -> Iterator[pa.Table]:
        rows = work.rows(kept=kept)
        step = max(1, rows.num_rows * self.output.limits.slice // max(1, rows.nbytes))
        for start in range(0, rows.num_rows, step):
            yield rows.slice(start, step)

    def _winners(self, incoming: Sequence[Source]) -> Source:
        """Return the row that an upsert takes, of all that came in with one key."""
        spec, limits = self.output.spec, self.output.limits
        rounds = Merge(spec.key, spec.ordering, DuplicateRule.REPLACE).rounds(incoming, self.budget)
        return Source(
            SortedBatch(rows) for each in rounds for rows in kept_rows(each, limits.slice)
        )

    def _note(self, work: _Work, digest: KeyDigest, lookups: Lookups) -> None:
        """Collect the keys that were touched, and those that came in and were not."""
        key = list(self.output.spec.key)
        old, at = work.touched
        if len(at):
            digest.add(old.select(key).take(pa.array(at)))
        if len(work.inserted.changed):
            digest.add(work.inserted.rows.select(key))
        if len(work.left):
            lookups.add(work.meeting.new.select(key).take(pa.array(work.left)))
