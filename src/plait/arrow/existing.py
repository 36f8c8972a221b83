"""The rows that a table has already, as sources for merging and masking."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.arrow.memory import combined, taken
from plait.arrow.merge import Positions, SortedBatch, Source
from plait.arrow.spill import KeyRange
from plait.arrow.split import Group
from plait.expr import Predicate, from_json
from plait.files import keys
from plait.files.deletion import load_mask
from plait.files.live import LiveFile, live_files, unmasked
from plait.files.opened import OpenFile, Schemas
from plait.model.bucket import BucketId, partition_parse
from plait.model.plan import Snapshot, TableSpec, WritePlan
from plait.read.condition import Condition
from plait.read.plan import ScanPlan, plan_scan
from plait.read.slices import SliceReader
from plait.storage.port import Store

Hidden = Mapping[str, Positions]
"""By path: rows that go, though they are live."""


@dataclass(slots=True)
class Existing:
    """The live files of a snapshot by bucket, and their rows."""

    store: Store
    snapshot: Snapshot
    spec: TableSpec
    _files: pa.Table = field(init=False)
    _spans: dict[BucketId, tuple[int, int]] = field(init=False)
    _schemas: Schemas = field(init=False)

    def __post_init__(self) -> None:
        """Put the files in the order of their buckets, once."""
        by = [("partition", "ascending"), ("bucket", "ascending"), ("version", "ascending")]
        self._files = self.snapshot.files.sort_by(by).combine_chunks()
        self._spans = _spans(self._files)
        schemas = {**self.snapshot.schemas, self.spec.schema.id: self.spec.schema}
        self._schemas = Schemas(self.spec.schema, schemas)

    def buckets(self) -> Iterator[BucketId]:
        """Return the buckets that have files."""
        return iter(self._spans)

    def files(self, bucket: BucketId) -> list[LiveFile]:
        """Return the live files of a bucket."""
        start, stop = self._spans.get(bucket, (0, 0))
        return list(live_files(self._files.slice(start, stop - start)))

    def without_files(self, groups: Iterable[Group]) -> set[Group]:
        """Return those of these buckets that have no file."""
        return {group for group in groups if group not in self._spans}

    def source(
        self,
        file: LiveFile,
        columns: Sequence[str],
        *,
        hidden: Positions | None = None,
        within: KeyRange | None = None,
    ) -> Source:
        """Return live rows of a file, sorted by key; see ``blocks``.

        Files of this writer are sorted. One from elsewhere that is not is sorted in memory.
        """
        blocks = self.blocks(file, columns, hidden=hidden, within=within)
        if not file.sorted_by_key:
            blocks = in_key_order(list(blocks), self.spec.key)
        return Source(blocks, existing=True)

    def blocks(
        self,
        file: LiveFile,
        columns: Sequence[str],
        *,
        hidden: Positions | None = None,
        within: KeyRange | None = None,
    ) -> Iterator[SortedBatch]:
        """Read live rows of a file with their positions, in order, in bounded memory.

        ``hidden`` rows are left out too, and row groups without a key ``within`` a range.
        """
        schema = pa.schema([self.spec.schema.arrow.field(name) for name in columns])
        with OpenFile(self.store, file, self._schemas) as source:
            gone = union(load_mask(self.store, file), hidden)
            for group in range(source.group_count):
                if within and not within.meets(source.group_ranges(group, [within.column])):
                    continue
                start = source.group_start(group)
                for batch in source.batches(group, columns):
                    rows = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
                    yield _visible(rows, start, gone)
                    start += batch.num_rows


def in_key_order(blocks: Sequence[SortedBatch], key: Sequence[str]) -> Iterator[SortedBatch]:
    """Sort rows of one file by key, in memory."""
    parts = [block.positions for block in blocks if block.positions is not None]
    if not parts:
        return
    rows, positions = pa.concat_tables([block.rows for block in blocks]), np.concatenate(parts)
    order = keys.sort_order(keys.encode(rows, key))
    yield SortedBatch(taken(combined(rows), order), positions[order])


def union(one: Positions | None, other: Positions | None) -> Positions | None:
    """Put sorted positions together."""
    if one is None or other is None:
        return other if one is None else one
    return np.union1d(one, other)


def as_live(record: pa.Table, version: int) -> LiveFile:
    """Take a file that this writer has just made for one that is live."""
    return next(live_files(unmasked(record, version=version)))


def _visible(rows: pa.RecordBatch, start: int, gone: Positions | None) -> SortedBatch:
    positions: Positions = np.arange(start, start + rows.num_rows, dtype=np.uint64)
    if gone is not None:
        low, high = np.searchsorted(gone, np.array([start, start + rows.num_rows], np.uint64))
        if high > low:
            kept = np.ones(rows.num_rows, dtype=np.bool_)
            kept[(gone[low:high] - np.uint64(start)).astype(np.int64)] = False
            rows, positions = rows.filter(pa.array(kept)), positions[kept]
    return SortedBatch(pa.Table.from_batches([rows]), positions)


def _spans(files: pa.Table) -> dict[BucketId, tuple[int, int]]:
    """Return where each bucket's files stand in a table that is sorted by bucket."""
    if not files.num_rows:
        return {}
    coded = files["partition"].combine_chunks().dictionary_encode()
    partitions = [partition_parse(text.as_py()) for text in coded.dictionary]
    codes: npt.NDArray[np.int64] = coded.indices.to_numpy().astype(np.int64)
    numbers = files["bucket"].combine_chunks().to_numpy()
    changed = (np.diff(codes) != 0) | (np.diff(numbers) != 0)
    edges = [0, *(np.flatnonzero(changed) + 1).tolist(), files.num_rows]
    return {
        (partitions[codes[start]], int(numbers[start])): (start, stop)
        for start, stop in itertools.pairwise(edges)
    }


@dataclass(frozen=True, slots=True)
class Matching:
    """A predicate as a writer needs it."""

    predicate: Predicate
    condition: Condition | None
    """To be asked of rows that come in; None: every row is welcome."""

    @classmethod
    def of(cls, plan: WritePlan) -> Self | None:
        """Take the predicate of a plan; None if it has none."""
        if plan.predicate is None:
            return None
        schema = plan.spec.schema.arrow
        predicate = from_json(plan.predicate, schema)
        return cls(predicate, Condition.of(predicate, schema))

    def on(self, existing: Existing) -> Matches:
        """Choose the files of a snapshot in which rows may match."""
        return Matches(existing, plan_scan(existing.snapshot, columns=(), where=self.predicate))


@dataclass(slots=True)
class Matches:
    """Where a predicate may hold in one snapshot, and where it does."""

    existing: Existing
    plan: ScanPlan
    _paths: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Take the names of the files once."""
        self._paths = frozenset(self.plan.files["path"].to_pylist())

    def buckets(self) -> set[BucketId]:
        """Return the buckets with files that may have matching rows."""
        return {(file.partition, file.bucket) for file in live_files(self.plan.files)}

    def hidden(self, files: Sequence[LiveFile]) -> dict[str, Positions]:
        """Find the live rows that match, by file."""
        found = {file.path: self._matching(file) for file in files if file.path in self._paths}
        return {path: positions for path, positions in found.items() if len(positions)}

    def _matching(self, file: LiveFile) -> Positions:
        if self.plan.condition is None:
            # The partition alone decided: nothing has to be read.
            live = np.ones(file.rows, dtype=np.bool_)
            gone = load_mask(self.existing.store, file)
            if gone is not None:
                live[gone.astype(np.int64)] = False
            return np.flatnonzero(live).astype(np.uint64)
        reader = SliceReader.of(self.existing.store, self.existing.snapshot)
        parts = [
            part.positions.astype(np.uint64)
            for part in reader.slices(file, columns=(), where=self.plan.condition)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)
