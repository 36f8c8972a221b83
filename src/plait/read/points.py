"""Find the rows of some keys in the files of a snapshot, by where and when they were written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.expr.prune import Bounds, Flags
from plait.files import keys as key_codes
from plait.files.bounds import file_bounds
from plait.files.data_file import LiveFile, bucket_spans, live_files
from plait.files.footer import Range
from plait.files.hash import Hashes, bucket_of, key_hashes, sorted_once
from plait.files.keys import Indices
from plait.model.changes import BASE
from plait.model.plan import COW, Snapshot, TableSpec
from plait.model.value import is_plain, to_raw
from plait.read.slices import SliceReader

ANY: Final = -1
"""Stands for a version: the row may be in any file of the bucket."""
_BY = [(name, "ascending") for name in ("partition", "bucket", "version", "path")]


@dataclass(frozen=True, slots=True)
class WantedKeys:
    """Keys that are looked up, each once, in the order of their hashes."""

    rows: pa.Table
    """The key columns, in the table's types."""
    codes: pa.Array
    """The keys as one column."""
    hashes: Hashes
    buckets: npt.NDArray[np.int32]

    @classmethod
    def of(cls, rows: pa.Table, spec: TableSpec) -> Self:
        """Take keys without nulls, in the table's types."""
        rows = rows.select(list(spec.key)).combine_chunks()
        encoded = key_codes.encode(rows, spec.key)
        order = key_codes.sort_order(encoded)
        order = order[key_codes.starts(key_codes.take(encoded, order))]
        hashes = key_hashes(rows, spec.key)
        order = order[np.argsort(hashes[order], kind="stable")]
        rows = rows.take(pa.array(order))
        codes = _array(key_codes.take(encoded, order))
        buckets = bucket_of(key_hashes(rows, spec.layout.buckets.hashed), spec.layout.buckets.count)
        return cls(rows, codes, hashes[order], buckets)

    def __len__(self) -> int:
        """Count them."""
        return len(self.hashes)


@dataclass(frozen=True, slots=True)
class Points:
    """Where to look for keys: one row a key and partition."""

    keys: Indices
    """Positions among the wanted keys."""
    places: Indices
    """Positions in ``partitions``."""
    versions: Indices
    """Version that wrote the key last, or ANY; its row is in a file of that version or later."""
    partitions: Sequence[str]


@dataclass(slots=True)
class PointReader:
    """Reads the rows of keys. Each key has at most one row in a partition."""

    snapshot: Snapshot
    wanted: WantedKeys
    reader: SliceReader
    columns: Sequence[str]
    rewritten: Callable[[int], bool]
    """Whether a version put rows into other files that others had written."""
    opened: set[str] = field(default_factory=set)
    """The data files that were read."""

    def rows(self, points: Points) -> Iterator[pa.RecordBatch]:
        """Return the rows of the keys.

        Raises:
            CorruptMetadataError: a file is missing or damaged.
            StorageError: the store failed.
        """
        files = self.snapshot.files.sort_by(_BY).combine_chunks()
        name = self.snapshot.spec.key[0]
        plain = is_plain(self.snapshot.spec.schema.arrow.field(name).type)
        bounds = file_bounds(files, [name] if plain else [], self.snapshot.spec.schema)
        texts, numbers = files["partition"], files["bucket"]
        starts = bucket_spans(files)
        spans = {
            (texts[start].as_py(), numbers[start].as_py()): range(start, stop)
            for start, stop in starts
        }
        for (text, bucket), keys, versions in self._groups(points):
            span = spans.get((text, bucket))
            if span is not None:
                within = files.slice(span.start, len(span))
                yield from _Bucket(self, within, _cut(bounds, span)).rows(keys, versions)

    def _groups(self, points: Points) -> Iterator[tuple[tuple[str, int], Indices, Indices]]:
        """Return what is looked for in each bucket."""
        buckets = self.wanted.buckets[points.keys]
        order = np.lexsort((points.versions, buckets, points.places))
        if not len(order):
            return
        places, numbers = points.places[order], buckets[order]
        cuts = np.flatnonzero((places[1:] != places[:-1]) | (numbers[1:] != numbers[:-1])) + 1
        for group in np.split(order, cuts):
            at = int(points.places[group[0]]), int(buckets[group[0]])
            yield (
                (points.partitions[at[0]], at[1]),
                points.keys[group],
                points.versions[group],
            )


@dataclass(slots=True)
class _Bucket:
    """The files of one bucket, by version."""

    points: PointReader
    files: pa.Table
    bounds: Mapping[str, Bounds]

    def rows(self, keys: Indices, versions: Indices) -> Iterator[pa.RecordBatch]:
        """Look in the likeliest files first, and in others for what was not found there."""
        missing = np.ones(len(keys), np.bool_)
        for number, file, fits in self._candidates(versions):
            asked = np.flatnonzero(missing & fits)
            if len(asked):
                found: list[Indices] = []
                yield from self._search(number, file, keys[asked], found)
                for each in found:
                    missing[asked[each]] = False
            if not missing.any():
                return

    def _candidates(self, versions: Indices) -> Iterator[tuple[int, LiveFile, Flags]]:
        """Return each file with the keys that it may have, the likeliest first.

        A key is in a file of the version that wrote it last; or services, or other commits to the
        same bucket, have put it into a later file since. It is in an older one only if another key
        with the same hash was written after it.
        """
        files = list(enumerate(live_files(self.files)))
        for number, file in files:
            yield number, file, (versions == file.version) | (versions == ANY)
        later = [each for each in files if each[1].kind == BASE]
        cow = self.points.snapshot.spec.layout.table_type == COW
        later += [each for each in files if each[1].kind != BASE]
        for number, file in later:
            fits = (versions < file.version) & (versions != ANY)
            if fits.any() and (file.kind == BASE or cow or self.points.rewritten(file.version)):
                yield number, file, fits
        for number, file in reversed(files):
            yield number, file, (versions > file.version) & (versions != ANY)

    def _search(
        self, number: int, file: LiveFile, keys: Indices, found: list[Indices]
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of keys in a file; tell the positions of those that it has."""
        wanted, reader = self.points.wanted, self.points.reader
        spec = self.points.snapshot.spec
        near = self._near(number, keys)
        if not len(near):
            return
        asked = keys[near]
        codes = wanted.codes.take(pa.array(asked))
        hashes = sorted_once(wanted.hashes[asked])
        first = wanted.rows[spec.key[0]].combine_chunks().take(pa.array(asked))
        ends = pc.min_max(first)
        within = {spec.key[0]: Range(to_raw(ends["min"]), to_raw(ends["max"]))}
        self.points.opened.add(file.path)
        places, batches = [], []
        whole = set(self.points.columns) <= set(spec.key)
        slices = reader.slices(file, columns=spec.key, within=within, keys=hashes)
        for part in slices:
            at = pc.index_in(_array(key_codes.encode(part.rows, spec.key)), value_set=codes)
            hit = np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False))
            if not len(hit):
                continue
            found.append(near[at.take(pa.array(hit)).to_numpy(zero_copy_only=False)])
            places.append(part.positions[hit])
            if whole:
                batches.append(part.rows.select(list(self.points.columns)).take(pa.array(hit)))
        if places and not whole:
            positions = np.concatenate(places)
            found_rows = reader.at(file, positions, columns=self.points.columns)
            batches += [part.rows for part in found_rows]
        yield from batches

    def _near(self, number: int, keys: Indices) -> Indices:
        """Return the positions of those keys that the bounds of a file let it have."""
        every = np.arange(len(keys))
        for name, bounds in self.bounds.items():
            low, high = bounds.lower[number], bounds.upper[number]
            column = self.points.wanted.rows[name].combine_chunks().take(pa.array(keys))
            try:
                flags = np.ones(len(keys), np.bool_)
                if low.is_valid:
                    flags &= pc.greater_equal(column, low).to_numpy(zero_copy_only=False)
                if high.is_valid:
                    flags &= pc.less_equal(column, high).to_numpy(zero_copy_only=False)
            except pa.ArrowNotImplementedError:
                continue
            every = every[flags]
            break  # of the first key column
        return every


def _cut(bounds: Mapping[str, Bounds], span: range) -> dict[str, Bounds]:
    start, count = span.start, len(span)
    return {
        name: Bounds(
            each.lower.slice(start, count),
            each.upper.slice(start, count),
            each.null_count.slice(start, count),
            each.rows.slice(start, count),
        )
        for name, each in bounds.items()
    }


def _array(codes: key_codes.Keys) -> pa.Array:
    return pa.array(codes) if isinstance(codes, np.ndarray) else codes
