"""Stage a merge on one bucket: rows that came in meet the table's, and clauses decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from plait.expr.formula import SOURCE, TARGET
from plait.expr.formula_out import Sides
from plait.files.keys import Indices
from plait.files.live import LiveFile
from plait.model.bucket import BucketId
from plait.model.changes import BASE, KEYS_FILES, LOG
from plait.model.clauses import Clauses
from plait.model.plan import MOR, TableSpec
from plait.write.blocks import combined, taken
from plait.write.existing import Existing
from plait.write.incoming import Incoming
from plait.write.join import Join, Meeting
from plait.write.merge import Positions
from plait.write.output import Output
from plait.write.remove import hide
from plait.write.result import Staged
from plait.write.rules import Chosen, Rules
from plait.write.touched import Digest, touched_row

_NONE: Indices = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Merging:
    """The clauses of a merge, bound to the table and to its source."""

    matched: Rules
    not_matched: Rules
    by_source: Rules

    @classmethod
    def bind(cls, clauses: Clauses, spec: TableSpec, source: TableSpec | None) -> Merging:
        """Check every clause; without a source those that need one do nothing.

        Raises:
            PredicateError, SchemaMismatchError, OptionError: see ``Rules.bind``.
        """
        matched = clauses.matched if source is not None else ()
        inserted = clauses.not_matched if source is not None else ()
        return cls(
            Rules.bind(matched, spec, source),
            Rules.bind(inserted, spec, source, target=source is None),
            Rules.bind(clauses.by_source, spec, None),
        )

    @property
    def target_columns(self) -> frozenset[str]:
        """The columns of the table that must be read where rows are not rewritten."""
        return self.matched.target_columns | self.by_source.target_columns


@dataclass(slots=True)
class _Work:
    """What clauses made of one meeting."""

    meeting: Meeting
    updated: Chosen
    """Positions are those of old rows."""
    inserted: Chosen
    """Positions are those of new rows."""

    @classmethod
    def of(cls, meeting: Meeting, merging: Merging, schema: pa.Schema) -> _Work:
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
        return cls(meeting, updated, Chosen(meeting.only_new[fresh.changed], fresh.rows, _NONE))

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
        """Give the rows that are there afterwards, in key order; ``kept``: the unchanged too."""
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
        digest = Digest(self.output.spec.key, self.output.limits.buffer // 16)
        masks = self.output.spec.table_type == MOR
        kind = LOG if masks and files else BASE
        blocks = self._blocks(bucket, files, digest, masks=masks)
        record = self.output.write(bucket, kind, blocks, sorted_by_key=True)
        staged = Staged()
        claims = self.output.plan.claims
        if not self._count:  # every row stays as it is: a file that was written is garbage
            if claims and files:
                staged.touched = digest.row(bucket, self.output)
            return staged
        staged.added = [] if record is None else [record]
        if masks:
            lost = {path: np.sort(np.concatenate(p)) for path, p in self._lost.items()}
            hide(staged, files, lost, self.existing)
        else:
            staged.removed = list(files)
        if files or claims:
            staged.touched = digest.row(bucket, self.output)
        else:
            staged.touched = touched_row(bucket, KEYS_FILES, self._count.inserted)
        return self._count.into(staged)

    def _blocks(
        self, bucket: BucketId, files: Sequence[LiveFile], digest: Digest, *, masks: bool
    ) -> Iterator[pa.Table]:
        spec, limits = self.output.spec, self.output.limits
        names, within = list(spec.schema.names), None
        if masks:  # what does not meet anything need not be read
            wanted = self.merging.target_columns | set(spec.key)
            names = [name for name in names if name in wanted]
            within = None if self.merging.by_source.rules else self.incoming.range(bucket)
        old = [self.existing.source(file, names, within=within) for file in files]
        new = self.incoming.sources(bucket)
        for meeting in Join(spec.key, bucket).meetings(old, new, self.budget):
            work = _Work.of(meeting, self.merging, spec.schema.arrow)
            self._count.add(work)
            self._note(work, digest)
            if masks:
                for at, positions in meeting.positions(work.touched[1]):
                    self._lost.setdefault(files[at].path, []).append(positions)
            rows = work.rows(kept=not masks)
            step = max(1, rows.num_rows * limits.slice // max(1, rows.nbytes))
            for start in range(0, rows.num_rows, step):
                yield rows.slice(start, step)

    def _note(self, work: _Work, digest: Digest) -> None:
        """Collect the keys that were touched; where rows rest on a read, all that came in."""
        key = list(self.output.spec.key)
        old, at = work.touched
        if len(at):
            digest.add(old.select(key).take(pa.array(at)))
        if self.output.plan.claims and work.meeting.new.num_rows:
            digest.add(work.meeting.new.select(key))
        elif len(work.inserted.changed):
            digest.add(work.inserted.rows.select(key))
