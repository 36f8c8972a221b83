"""What becomes of keys that name one row in all partitions (RFC 0030).

Rows that came in for one bucket number are joined by key with the rows that the table has under
this number, in whatever partition. The outcome is told place by place: which rows arrive in a
bucket, and which rows of its files go. Nothing is written here but runs on the local disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.arrow.existing import Existing, Hidden
from plait.arrow.ingest import Group
from plait.arrow.key_filter import KeyFilter
from plait.arrow.memory import combined
from plait.arrow.merge import DuplicateRule, Merge, winners
from plait.arrow.merge_into import Merged, Merging
from plait.arrow.output import Output
from plait.arrow.places import Placed
from plait.arrow.runs import FAN_IN, Incoming, RunSink, kept_rows
from plait.errors import DuplicateKeyError
from plait.files.data_file import LiveFile
from plait.files.keys import Indices
from plait.model.bucket import partition_text
from plait.model.instant import Operation
from plait.model.order import KEY_ORDER
from plait.model.plan import TableSpec
from plait.model.value import plain_rows
from plait.read.join import JoinedRows, SortedBatch, Source, joined
from plait.read.key_sort import sorted_by_key

Flags = npt.NDArray[np.bool_]
_FILE, _AT, _FLAG = (f"\N{SECTION SIGN}{name}" for name in ("file", "at", "removed"))
"""Columns beside those of rows: of which file one is, where in it, what a removal does to it."""
_ROW, _AFTER, _REMOVAL = range(3)
"""A row; one that came after a removal of its key; a removal after which no row came."""
_SAMPLE: Final = 5
_MANY_FOLD: Final = 4
"""Rows of the table a row that came in, from which on keys are looked up, not merged."""


@dataclass(frozen=True, slots=True)
class Resolver:
    """Decides for each key that came in, whichever partition its row is in."""

    output: Output
    existing: Existing
    incoming: Incoming
    rule: DuplicateRule
    """What becomes of a key that the table has and that comes in too."""
    within: DuplicateRule
    """What becomes of a key that comes in more than once."""
    merging: Merging | None
    budget: int

    def resolve(self, group: Group, files: Sequence[LiveFile], hidden: Hidden) -> Placed:
        """Join what came in under a number with live rows of some files that are not hidden.

        Raises:
            DuplicateKeyError: a key may come in once, or must not be there.
        """
        placed = Placed(self.output, group[1], files, hidden)
        if not self.incoming.rows(group):
            return placed
        spill = self.incoming.sink.beside()
        try:
            old = self._old(group, files, hidden, spill) if files else []
            for rows in joined(old, [Source(self._new(group))], self.output.spec.key, self.budget):
                if self.merging is None:
                    self._by_rule(rows, placed)
                else:
                    self._by_clauses(rows, self.merging, placed)
        finally:
            spill.close()
        return placed

    # --- what came in ----------------------------------------------------------------------

    def _new(self, group: Group) -> Iterator[SortedBatch]:
        """Return the row that counts of each key that came in, and what removals left of them."""
        sources = self.incoming.sources(group)
        rows = self._winners(sources)
        if not any(source.removes for source in sources):
            yield from rows
            return
        again = [each for each in self.incoming.sources(group) if each.removes]
        gone = [replace(source, removes=False) for source in again]
        merge = Merge(self.output.spec.key, None, DuplicateRule.REPLACE)
        keys = (
            SortedBatch(rows)
            for each in merge.rounds(gone, self.budget)
            for rows in kept_rows(each, self.output.limits.slice)
        )
        for both in joined([Source(keys)], [Source(rows)], self.output.spec.key, self.budget):
            yield SortedBatch(_flagged(both, self._layout.schema.arrow))

    @property
    def _layout(self) -> TableSpec:
        spec = self.output.spec
        return spec.with_row_version() if self.output.plan.request.with_row_version else spec

    def _winners(self, sources: Sequence[Source]) -> Iterator[SortedBatch]:
        spec, request = self.output.spec, self.output.plan.request
        ordering = None if request.operation is Operation.MERGE else spec.layout.ordering
        merge = Merge(spec.key, ordering, self.within)
        for each in merge.rounds(sources, self.budget):
            for rows in kept_rows(each, self.output.limits.slice):
                yield SortedBatch(rows)

    # --- what the table has ----------------------------------------------------------------

    def _old(
        self, group: Group, files: Sequence[LiveFile], hidden: Hidden, spill: RunSink
    ) -> list[Source]:
        """Return the rows of files that may meet what came in, with where each of them stands.

        Of many files few are open at a time. Where keys are looked up, one file is read after the
        other, and what was found is sorted; else what meets something is spilled.
        """
        spec = self.output.spec
        names = {*spec.key, *filter(None, [spec.layout.ordering])}
        if self.merging is not None:
            names = {*spec.key, *self.merging.target_columns}
        columns = [name for name in spec.schema.names if name in names]
        sieve = self._sieve(group, files)
        within = self.incoming.range(group)

        def source(number: int) -> Source:
            file = files[number]
            found = self.existing.source(
                file, columns, hidden=hidden.get(file.path), within=within, sieve=sieve
            )
            return replace(found, blocks=(_located(block, number) for block in found.blocks))

        if sieve is not None:
            found = itertools.chain.from_iterable(source(at).blocks for at in range(len(files)))
            return [Source(sorted_by_key(found, spec.key, self.existing.sort_bytes), existing=True)]
        if len(files) <= FAN_IN:
            return [source(number) for number in range(len(files))]
        for start in range(0, len(files), FAN_IN):
            some = [source(number) for number in range(start, min(start + FAN_IN, len(files)))]
            for rows in joined(some, [Source(self._new(group))], spec.key, self.budget):
                matched = rows.old_at[(rows.old_at >= 0) & (rows.new_at >= 0)]
                if len(matched):
                    spill.keep(group, rows.old.take(pa.array(matched)))
        return [run.source() for run in spill.runs.get(group, ())]

    def _sieve(self, group: Group, files: Sequence[LiveFile]) -> KeyFilter | None:
        hashed = any(file.order != KEY_ORDER for file in files)
        rows = self.incoming.rows(group)
        if not hashed and rows * _MANY_FOLD > sum(file.rows for file in files):
            return None
        key = self.output.spec.key
        blocks = (block for each in self.incoming.sources(group) for block in each.blocks)
        return KeyFilter.of(blocks, key, self.budget // 4, hashed=hashed)

    # --- what becomes of it ----------------------------------------------------------------

    def _by_rule(self, rows: JoinedRows, placed: Placed) -> None:
        new, flags = _unflagged(rows.new, rows.new_at)
        there, came = rows.old_at >= 0, rows.new_at >= 0
        comes = came & (flags != _REMOVAL)
        matched = there & comes
        if self.rule is DuplicateRule.REFUSE and matched.any():
            raise self._duplicate(rows, np.flatnonzero(matched), placed)
        if self.rule is DuplicateRule.KEEP:
            wins = ~matched
        else:
            wins = np.ones(len(matched), dtype=np.bool_)
            wins[matched] = (flags[matched] == _AFTER) | self._ranks_higher(rows, matched)
        written = comes & (~there | wins)
        deleted = there & came & (flags == _REMOVAL)
        numbers = np.flatnonzero(written)
        places = placed.arrive(new.take(pa.array(rows.new_at[numbers])), fresh=~there[numbers])
        place = np.full(len(there), -1, dtype=np.int64)
        place[numbers] = places
        placed.leave(rows.old, rows.old_at, np.flatnonzero(there & (written | deleted)), place)
        idle = came & ~written & ~deleted
        if idle.any():
            placed.lookups.add(self._keys(new, rows.new_at[idle]))

    def _by_clauses(self, rows: JoinedRows, merging: Merging, placed: Placed) -> None:
        spec = self.output.spec
        plain = [name for name in rows.old.column_names if name not in (_FILE, _AT)]
        merged = Merged.of(replace(rows, old=rows.old.select(plain)), merging, spec.schema.arrow)
        numbers = np.concatenate([merged.updated.changed, merged.inserted.changed])
        tables = pa.concat_tables([merged.updated.rows, merged.inserted.rows])
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        fresh = rows.old_at[numbers] < 0
        place = np.full(len(rows.old_at), -1, dtype=np.int64)
        place[numbers] = placed.arrive(tables.take(pa.array(order)), fresh=fresh)
        ended = np.sort(np.concatenate([merged.updated.changed, merged.updated.deleted]))
        placed.leave(rows.old, rows.old_at, ended, place)
        if len(merged.without_effect):
            placed.lookups.add(self._keys(rows.new, merged.without_effect))

    def _ranks_higher(self, rows: JoinedRows, matched: Flags) -> Flags:
        """Tell where the row that came in wins, of keys that both sides have."""
        ordering, count = self.output.spec.layout.ordering, int(np.count_nonzero(matched))
        if ordering is None or not count:
            return np.ones(count, dtype=np.bool_)
        sides = ((rows.old, rows.old_at), (rows.new, rows.new_at))
        ranks = [
            side.column(ordering).take(pa.array(at[matched])).combine_chunks() for side, at in sides
        ]
        ranks = [each.combine_chunks() if hasattr(each, "chunks") else each for each in ranks]
        order = np.arange(2 * count).reshape(2, count).T.ravel()
        first = np.tile([True, False], count)
        flags: Flags = winners(order, first, pa.concat_arrays(ranks)) >= count
        return flags

    def _keys(self, rows: pa.Table, at: Indices) -> pa.Table:
        return rows.select(list(self.output.spec.key)).take(pa.array(at))

    def _duplicate(self, rows: JoinedRows, matched: Indices, placed: Placed) -> DuplicateKeyError:
        at = rows.old_at[matched[:_SAMPLE]]
        sample = plain_rows(self._keys(rows.old, at))
        file = placed.files[int(rows.old[_FILE][int(at[0])].as_py())]
        partition = partition_text(file.partition)
        message = f"a key already exists in partition {partition} of the table: {sample[0]}"
        hint = "use upsert, which moves the row, or insert with on_duplicate='skip'"
        return DuplicateKeyError(message, hint=hint, keys=sample, partition=partition)


def _located(block: SortedBatch, number: int) -> SortedBatch:
    """Add to rows of a file which file it is, and where in it they stand."""
    rows = block.rows
    file = pa.array(np.full(rows.num_rows, number, dtype=np.int64))
    at = pa.array(np.asarray(block.positions).astype(np.int64))
    return SortedBatch(rows.append_column(_FILE, file).append_column(_AT, at))


def _flagged(both: JoinedRows, schema: pa.Schema) -> pa.Table:
    """Return rows, and removals as rows of nulls with a key, in the order of their keys."""
    removed, comes = both.old_at >= 0, both.new_at >= 0
    alone = np.flatnonzero(removed & ~comes)
    fields = [field.with_nullable(True) for field in schema]  # noqa: FBT003 - arrow's argument
    kept = both.new if both.new.num_columns else schema.empty_table()
    keys = both.old.take(pa.array(both.old_at[alone])) if len(alone) else None
    columns: list[pa.ChunkedArray] = []
    for each in fields:
        parts = list(kept[each.name].chunks)
        if keys is not None:
            named = each.name in keys.column_names
            more = keys[each.name].chunks if named else [pa.nulls(len(alone), each.type)]
            parts += [part.cast(each.type) for part in more]
        columns.append(pa.chunked_array(parts, each.type))
    flags = np.where(removed, np.where(comes, _AFTER, _REMOVAL), _ROW).astype(np.int8)
    at = both.new_at.copy()
    at[alone] = kept.num_rows + np.arange(len(alone))
    table = pa.table(columns, schema=pa.schema(fields))
    return table.take(pa.array(at)).append_column(_FLAG, pa.array(flags))


def _unflagged(new: pa.Table, at: Indices) -> tuple[pa.Table, npt.NDArray[np.int8]]:
    """Return rows without their flags, and the flags by key."""
    flags = np.zeros(len(at), dtype=np.int8)
    if _FLAG not in new.column_names:
        return combined(new), flags
    came = at >= 0
    flags[came] = new[_FLAG].to_numpy()[at[came]]
    return combined(new.drop_columns([_FLAG])), flags
