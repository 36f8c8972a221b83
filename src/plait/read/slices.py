"""Read the rows of one data file that are not hidden, in bounded memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.files.data_file import LiveFile, reading
from plait.files.deletion import load_mask, union
from plait.files.footer import Range
from plait.files.hash import Hashes
from plait.files.reader import OpenFile, Schemas
from plait.files.roaring import Positions
from plait.model.plan import Snapshot
from plait.model.schema import Schema
from plait.read.condition import Condition
from plait.storage.port import Store

_log = logging.getLogger(__name__)

_GROUPS_A_KEY: Final = 2
"""Row groups for each key below which a look-up in a key index reads more than it saves."""


class Slice(NamedTuple):
    """Some rows of a file, and where each of them stands in it."""

    rows: pa.RecordBatch
    positions: Positions


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
        hidden: Positions | None = None,
        within: Mapping[str, Range] | None = None,
        keys: Hashes | None = None,
    ) -> Iterator[Slice]:
        """Return the rows that are not hidden and fulfil a condition, with their positions.

        Args:
            file: the file, with its current deletion vector.
            columns: what to read, in this order; None: all columns.
            where: evaluated on rows that are not hidden, and only on them.
            hidden: sorted positions of further rows to leave out.
            within: row groups are left out in which no value of a column is in its range.
            keys: row groups may be left out in which no key has one of these hashes, each of which
                comes once; those that ``where`` names are known.

        Raises:
            CorruptMetadataError: the file or its deletion vector is not what the metadata says.
            StorageError: the store failed.
        """
        names = self.schema.names if columns is None else list(columns)
        with OpenFile(self.store, file, self.schemas) as source:
            if file.masked:
                hidden = union(load_mask(self.store, file), hidden)
            every = range(source.group_count) if where is None else where.groups(source)
            groups = [each for each in every if within is None or _meets(source, each, within)]
            keys = keys if where is None else where.keys
            found = None if keys is None else _find(keys, file, source, len(groups))
            for group in groups:
                if found is None or len(_in_group(found, source, group)):
                    yield from _Group(source, group, hidden).slices(names, where)

    def beginning_in(
        self,
        file: LiveFile,
        span: range,
        *,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of the row groups that begin at some positions in a row; see ``slices``.

        Stretches that follow one another have every row group once, and none is read twice.
        """
        names = self.schema.names if columns is None else list(columns)
        with OpenFile(self.store, file, self.schemas) as source:
            hidden = load_mask(self.store, file) if file.masked else None
            for group in range(source.group_count) if where is None else where.groups(source):
                if source.group_start(group) in span:
                    for part in _Group(source, group, hidden).slices(names, where):
                        yield part.rows

    def stretch(
        self, file: LiveFile, span: range, *, columns: Sequence[str] | None = None
    ) -> Iterator[Slice]:
        """Return the rows at some positions in a row that are not hidden; see ``slices``."""
        names = self.schema.names if columns is None else list(columns)
        with OpenFile(self.store, file, self.schemas) as source:
            hidden = load_mask(self.store, file) if file.masked else None
            for group in range(source.group_count):
                start = source.group_start(group)
                if start < span.stop and span.start < start + source.group_rows(group):
                    for part in _Group(source, group, hidden).slices(names, None):
                        yield from _cropped(part, span)

    def at(
        self, file: LiveFile, positions: Positions, *, columns: Sequence[str] | None = None
    ) -> Iterator[Slice]:
        """Return the rows at sorted positions of a file, hidden or not; see ``slices``."""
        names = self.schema.names if columns is None else list(columns)
        with OpenFile(self.store, file, self.schemas) as source:
            for group in range(source.group_count):
                wanted = _in_group(positions, source, group)
                if len(wanted):
                    yield from _Group(source, group, None).at(names, wanted)


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
                matching = _chosen(part, where.matches(part.rows))
                if matching.rows.num_rows:
                    yield Slice(matching.rows.select(list(names)), matching.positions)
        else:
            yield from self._late(names, where)

    def _late(self, names: Sequence[str], where: Condition) -> Iterator[Slice]:
        """Look for matches first, and read the other columns only if there are any."""
        matches = [
            part.positions[where.matches(part.rows)] for part in self._visible(where.columns)
        ]
        wanted = np.concatenate(matches) if matches else np.zeros(0, dtype=np.uint64)
        if len(wanted):
            yield from self.at(names, wanted)

    def at(self, names: Sequence[str], wanted: Positions) -> Iterator[Slice]:
        """Read the rows at sorted positions in the file."""
        for part in self._whole(names):
            here, first = _inside(wanted, part)
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
            here, first = _inside(self.hidden, part)
            keep = np.ones(part.rows.num_rows, dtype=np.bool_)
            keep[(here - first).astype(np.int64)] = False
            visible = _chosen(part, keep)
            if visible.rows.num_rows:
                yield visible

    def _whole(self, names: Sequence[str]) -> Iterator[Slice]:
        """Read every row, numbered from the beginning of the file."""
        at = self.source.group_start(self.group)
        for rows in self.source.batches(self.group, names):
            if rows.num_rows:
                yield Slice(rows, np.arange(at, at + rows.num_rows, dtype=np.uint64))
                at += rows.num_rows


def _meets(source: OpenFile, group: int, within: Mapping[str, Range]) -> bool:
    known = source.group_ranges(group, list(within))
    return all(wanted.meets(known.get(name, Range())) for name, wanted in within.items())


def _find(keys: Hashes, file: LiveFile, source: OpenFile, groups: int) -> Positions | None:
    """Return where rows with these keys may stand, by the file's key index; None: anywhere.

    A damaged index costs time and nothing else (INV-11): it is as if there was none.
    """
    if len(keys) * _GROUPS_A_KEY > groups:
        return None
    with reading(file.path):
        try:
            index = source.key_index()
            return None if index is None else index.find(keys)
        except ValueError as error:
            _log.warning(
                "the key index of %s is damaged, run tablectl verify: %s", file.path, error
            )
            return None


def _inside(positions: Positions, part: Slice) -> tuple[Positions, np.uint64]:
    """Return those of some sorted positions that lie in a slice of a file, and its first row's."""
    first = part.positions[0]
    return _between(positions, int(first), int(first) + part.rows.num_rows), first


def _in_group(positions: Positions, source: OpenFile, group: int) -> Positions:
    start = source.group_start(group)
    return _between(positions, start, start + source.group_rows(group))


def _between(positions: Positions, start: int, stop: int) -> Positions:
    low, high = np.searchsorted(positions, np.array([start, stop], np.uint64))
    return positions[low:high]


def _cropped(part: Slice, span: range) -> Iterator[Slice]:
    """Return what of a slice is in a stretch of positions, if anything is."""
    low, high = np.searchsorted(part.positions, np.array([span.start, span.stop], np.uint64))
    if low < high:
        yield Slice(part.rows.slice(low, high - low), part.positions[low:high])


def _chosen(part: Slice, keep: npt.NDArray[np.bool_]) -> Slice:
    if bool(keep.all()):
        return part
    chosen = np.flatnonzero(keep)
    return Slice(part.rows.take(pa.array(chosen)), part.positions[chosen])
