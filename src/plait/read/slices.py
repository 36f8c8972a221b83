"""Read the rows of one data file that are not hidden, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.files.deletion import load_mask
from plait.files.hash import Hashes, key_hashes
from plait.files.live import LiveFile
from plait.files.opened import OpenFile, Schemas
from plait.files.roaring import Positions
from plait.model.plan import Snapshot
from plait.model.schema import Schema
from plait.read.condition import Condition
from plait.storage.port import Store

Indices: TypeAlias = npt.NDArray[np.int64]


class Slice(NamedTuple):
    """Some rows of a file, and where each of them stands in it."""

    rows: pa.RecordBatch
    positions: Indices


@dataclass(frozen=True, slots=True)
class SliceReader:
    """Reads files with the columns of one schema, whatever schema they were written with."""

    store: Store
    schemas: Schemas

    @classmethod
    def of(cls, store: Store, snapshot: Snapshot) -> Self:
        """Read with the schema of a snapshot."""
        return cls(store, Schemas(snapshot.spec.schema, snapshot.schemas))

    @property
    def schema(self) -> Schema:
        """The schema that rows are read with."""
        return self.schemas.reading

    def rows(
        self,
        file: LiveFile,
        *,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows that are not hidden, as record batches; see ``slices``."""
        for part in self.slices(file, columns=columns, where=where):
            yield part.rows

    def slices(
        self,
        file: LiveFile,
        *,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
    ) -> Iterator[Slice]:
        """Return the rows that are not hidden and fulfil a condition, with their positions.

        Args:
            file: the file, with its current deletion vector.
            columns: what to read, in this order; None: all columns.
            where: evaluated on rows that are not hidden, and only on them.

        Raises:
            CorruptMetadataError: the file or its deletion vector is not what the metadata says.
            StorageError: the store failed.
        """
        names = self.schema.names if columns is None else list(columns)
        with OpenFile(self.store, file, self.schemas) as source:
            hidden = load_mask(self.store, file)
            every = range(source.group_count)
            for group in every if where is None else where.groups(source):
                yield from _Group(source, group, hidden).slices(names, where)

    def at(
        self, file: LiveFile, positions: Positions, *, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows at sorted positions of a file, hidden or not; see ``slices``."""
        names = self.schema.names if columns is None else list(columns)
        wanted = positions.astype(np.int64)
        with OpenFile(self.store, file, self.schemas) as source:
            for group in range(source.group_count):
                start = source.group_start(group)
                low, high = np.searchsorted(wanted, [start, start + source.group_rows(group)])
                if high > low:
                    for part in _Group(source, group, None).at(names, wanted[low:high]):
                        yield part.rows

    def count(self, file: LiveFile, *, where: Condition | None = None) -> int:
        """Count rows that are not hidden and fulfil a condition."""
        if where is None:
            return file.live_rows
        return sum(part.rows.num_rows for part in self.slices(file, columns=(), where=where))

    def hashes(self, file: LiveFile, key: Sequence[str]) -> Hashes:
        """Return the hashes of the record keys of all rows that are not hidden, in file order."""
        parts = [key_hashes(rows, key) for rows in self.rows(file, columns=key)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class _Group:
    """One row group of an open file."""

    source: OpenFile
    group: int
    hidden: Positions | None

    def slices(self, names: Sequence[str], where: Condition | None) -> Iterator[Slice]:
        if where is None:
            yield from self._visible(names)
        elif set(names) <= set(where.columns):
            for part in self._visible(where.columns):
                found = _chosen(part, where.matches(part.rows))
                if found.rows.num_rows:
                    yield Slice(found.rows.select(list(names)), found.positions)
        else:
            yield from self._late(names, where)

    def _late(self, names: Sequence[str], where: Condition) -> Iterator[Slice]:
        """Look for matches first, and read the other columns only if there are any."""
        matches = [
            part.positions[where.matches(part.rows)] for part in self._visible(where.columns)
        ]
        wanted = np.concatenate(matches) if matches else np.zeros(0, dtype=np.int64)
        if len(wanted):
            yield from self.at(names, wanted)

    def at(self, names: Sequence[str], wanted: Indices) -> Iterator[Slice]:
        """Read the rows at sorted positions in the file."""
        for part in self._whole(names):
            first, last = int(part.positions[0]), int(part.positions[-1])
            start, stop = np.searchsorted(wanted, [first, last + 1])
            here = wanted[start:stop]
            if len(here) == part.rows.num_rows:
                yield part
            elif len(here):
                yield Slice(part.rows.take(pa.array(here - first)), here)

    def _visible(self, names: Sequence[str]) -> Iterator[Slice]:
        """Read rows that are not hidden."""
        for part in self._whole(names):
            if self.hidden is None:
                yield part
                continue
            first, last = int(part.positions[0]), int(part.positions[-1])
            start, stop = np.searchsorted(self.hidden, np.array([first, last + 1], np.uint64))
            keep = np.ones(part.rows.num_rows, dtype=np.bool_)
            keep[self.hidden[start:stop].astype(np.int64) - first] = False
            found = _chosen(part, keep)
            if found.rows.num_rows:
                yield found

    def _whole(self, names: Sequence[str]) -> Iterator[Slice]:
        """Read every row, numbered from the beginning of the file."""
        at = self.source.group_start(self.group)
        for rows in self.source.batches(self.group, names):
            if rows.num_rows:
                yield Slice(rows, np.arange(at, at + rows.num_rows, dtype=np.int64))
                at += rows.num_rows


def _chosen(part: Slice, keep: npt.NDArray[np.bool_]) -> Slice:
    if bool(keep.all()):
        return part
    positions = np.flatnonzero(keep)
    return Slice(part.rows.take(pa.array(positions)), part.positions[positions])
