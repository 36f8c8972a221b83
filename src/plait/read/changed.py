"""The rows that one commit changed in one bucket: joined by key, or matched by content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.files.data_file import LiveFile, live_files
from plait.files.deletion import load_mask
from plait.files.keys import Indices
from plait.files.reader import BATCH_BYTES
from plait.files.roaring import Positions
from plait.model.bucket import UNKEYED
from plait.model.order import KEY_ORDER
from plait.read.equal import NO_PRINTS, Prints, fingerprints, same_rows, unmatched
from plait.read.join import JoinedRows, SortedBatch, Source, joined, repeated_key
from plait.read.key_sort import sorted_by_key
from plait.read.slices import SliceReader

INSERT, PRE, POST, DELETE = CHANGE_TYPES = (
    "insert",
    "update_preimage",
    "update_postimage",
    "delete",
)
_INSERT, _PRE, _POST, _DELETE = range(4)
Kinds = npt.NDArray[np.int8]
_NONE: Final = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Changed:
    """Rows with what became of each of them, as places in ``CHANGE_TYPES``."""

    rows: pa.RecordBatch
    kinds: Kinds

    @classmethod
    def alike(cls, rows: pa.RecordBatch, kind: int) -> Changed:
        """Say the same of all rows."""
        return cls(rows, np.full(rows.num_rows, kind, dtype=np.int8))


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one file that stand on one side only: all that are visible, or some positions."""

    file: LiveFile
    positions: Positions | None = None

    def read(self, reader: SliceReader, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        if self.positions is None:
            return reader.rows(self.file, columns=columns)
        return (part.rows for part in reader.at(self.file, self.positions, columns=columns))


@dataclass(frozen=True, slots=True)
class BucketChange:
    """What one commit did to the files of one bucket."""

    version: int
    completed_ms: int
    before: tuple[LiveFile, ...]
    after: tuple[LiveFile, ...]

    @classmethod
    def of(cls, files: pa.Table) -> BucketChange:
        """Take the files of one commit and bucket (CHANGED)."""
        later = files["after"].to_pylist()
        every = list(zip(later, live_files(files), strict=True))
        return cls(
            files["at"][0].as_py(),
            files["completed_ms"][0].as_py(),
            tuple(file for after, file in every if not after),
            tuple(file for after, file in every if after),
        )

    def rows(
        self,
        reader: SliceReader,
        key: Sequence[str],
        columns: Sequence[str],
        compared: Sequence[str] | None = None,
        ignored: Sequence[str] = (),
    ) -> Iterator[Changed]:
        """Return the changed rows; of an update the row before comes just before the row after.

        A commit that moved rows to other buckets has them all in one place, where a key may come
        twice: there an update is a delete, and an insert after it.

        Where rows stand on one side only, just the columns asked for are read; else all that are
        compared, by default all of the table: rows that are equal in every one are not changed,
        whatever they have in those that are ignored.
        """
        old, new = self._sides(reader)
        if not (old and new):
            for part, kind in [*((p, _DELETE) for p in old), *((p, _INSERT) for p in new)]:
                for rows in part.read(reader, columns):
                    yield Changed.alike(rows, kind)
        elif key and self.before[0].bucket != UNKEYED:
            yield from _by_key(old, new, reader, key, compared, ignored=ignored)
        else:
            yield from _by_content(old, new, reader, compared)

    def _sides(self, reader: SliceReader) -> tuple[list[_Part], list[_Part]]:
        """Leave out rows that are on both sides of the commit at the same place."""
        now = {file.path: file for file in self.after}
        old: list[_Part] = []
        new: list[_Part] = []
        for file in self.before:
            then = now.pop(file.path, None)
            if then is None:
                old.append(_Part(file))
                continue
            was, is_ = _hidden(file, reader), _hidden(then, reader)
            gone, back = np.setdiff1d(is_, was), np.setdiff1d(was, is_)
            old += [_Part(file, gone)] if len(gone) else []
            new += [_Part(then, back)] if len(back) else []
        new += [_Part(file) for file in now.values()]
        return old, new


def _hidden(file: LiveFile, reader: SliceReader) -> Positions:
    mask = load_mask(reader.store, file)
    return _NONE if mask is None else mask


def _by_key(
    old: Iterable[_Part],
    new: Iterable[_Part],
    reader: SliceReader,
    key: Sequence[str],
    compared: Sequence[str] | None,
    *,
    ignored: Sequence[str],
) -> Iterator[Changed]:
    before, after = ([_sorted(part, reader, key, compared) for part in side] for side in (old, new))
    for rows in joined(before, after, key, BATCH_BYTES):
        if len(rows.repeated):
            raise repeated_key()
        changed = _compared(rows, ignored)
        if changed.rows.num_rows:
            yield changed


def _sorted(
    part: _Part, reader: SliceReader, key: Sequence[str], columns: Sequence[str] | None
) -> Source:
    """Read rows in the order of their keys; a file in another order is sorted."""
    batches = part.read(reader, columns)
    blocks = (SortedBatch(pa.Table.from_batches([batch])) for batch in batches)
    return Source(blocks if part.file.order == KEY_ORDER else sorted_by_key(blocks, key))


def _compared(sides: JoinedRows, ignored: Sequence[str]) -> Changed:
    """Tell by key what became of rows; those that are as they were are left out."""
    before, after = sides.old_at >= 0, sides.new_at >= 0
    both = before & after
    same = np.zeros(len(both), dtype=np.bool_)
    if both.any():
        names = [name for name in sides.old.column_names if name not in ignored]
        one, other = (
            side.select(names).take(pa.array(at[both]))
            for side, at in ((sides.old, sides.old_at), (sides.new, sides.new_at))
        )
        same[both] = same_rows(one, other)
    places = np.stack([sides.old_at, sides.old.num_rows + sides.new_at], axis=1)
    kept = np.stack([before & ~same, after & ~same], axis=1)
    kinds = np.stack([np.where(both, _PRE, _DELETE), np.where(both, _POST, _INSERT)], axis=1)
    tables = [side for side in (sides.old, sides.new) if side.num_rows]
    rows = pa.concat_tables(tables).take(pa.array(places[kept])).combine_chunks()
    batch = pa.RecordBatch.from_arrays(
        [column.combine_chunks() for column in rows.columns], rows.schema.names
    )
    return Changed(batch, kinds[kept].astype(np.int8))


def _by_content(
    old: Sequence[_Part],
    new: Sequence[_Part],
    reader: SliceReader,
    columns: Sequence[str] | None,
) -> Iterator[Changed]:
    """Match rows without a key: read all for their hashes first, then those without an equal."""
    prints = [[_prints(part, reader, columns) for part in side] for side in (old, new)]
    lost, found = unmatched(*(np.concatenate([each for each, _ in side]) for side in prints))
    yield from _chosen(zip(old, prints[0], strict=True), lost, reader, columns, _DELETE)
    yield from _chosen(zip(new, prints[1], strict=True), found, reader, columns, _INSERT)


def _chosen(
    side: Iterable[tuple[_Part, tuple[Prints, Positions]]],
    places: Indices,
    reader: SliceReader,
    columns: Sequence[str] | None,
    kind: int,
) -> Iterator[Changed]:
    """Read the rows at these places of one side, of which only the hashes are left."""
    start = 0
    for part, (prints, positions) in side:
        low, high = np.searchsorted(places, [start, start + len(prints)])
        if high > low:
            chosen = positions[places[low:high] - start]
            for found in reader.at(part.file, chosen, columns=columns):
                yield Changed.alike(found.rows, kind)
        start += len(prints)


def _prints(
    part: _Part, reader: SliceReader, columns: Sequence[str] | None
) -> tuple[Prints, Positions]:
    """Return the hash of each row of a part, and the row's position in its file."""
    if part.positions is not None:
        hashes = [fingerprints(rows) for rows in part.read(reader, columns)]
        return np.concatenate(hashes), part.positions
    parts = list(_hashed(part, reader, columns))
    if not parts:
        return NO_PRINTS, _NONE
    return np.concatenate([p for p, _ in parts]), np.concatenate([at for _, at in parts])


def _hashed(
    part: _Part, reader: SliceReader, columns: Sequence[str] | None
) -> Iterator[tuple[Prints, Positions]]:
    for each in reader.slices(part.file, columns=columns):
        yield fingerprints(each.rows), each.positions
