"""The rows that a table has already: read in key order, found by a predicate, taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pyarrow as pa

from plait.arrow.ingest import Group
from plait.arrow.key_filter import KeyFilter
from plait.arrow.output import KeyDigest, Output, Staged
from plait.expr import Predicate, from_json
from plait.files.bounds import file_ranges
from plait.files.data_file import NO_VERSION, LiveFile, bucket_spans, live_files, unmasked
from plait.files.deletion import MaskWriter, load_mask, union
from plait.files.footer import Range
from plait.files.hash import Hashes
from plait.files.reader import Schemas
from plait.files.roaring import Positions
from plait.model.bucket import BucketId, Partition, partition_parse
from plait.model.order import KEY_ORDER
from plait.model.plan import MOR, Snapshot, TableSpec
from plait.model.request import WritePlan
from plait.read.condition import Condition
from plait.read.join import SortedBatch, Source
from plait.read.key_sort import SORT_BYTES, each_sorted, sorted_by_key
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
    sort_bytes: int = SORT_BYTES
    """Rows that are sorted by key in memory at once, where a file is in another order."""
    _files: pa.Table = field(init=False)
    _spans: dict[BucketId, tuple[int, int]] = field(init=False)
    _ranges: tuple[BucketId, dict[str, Range]] | None = field(init=False, default=None)
    """Ranges of the first key column, by file, in the bucket that was asked for last."""
    reader: SliceReader = field(init=False)

    def __post_init__(self) -> None:
        """Put the files in the order of their buckets, once."""
        by = [("partition", "ascending"), ("bucket", "ascending"), ("version", "ascending")]
        self._files = self.snapshot.files.sort_by(by).combine_chunks()
        spans = bucket_spans(self._files)
        starts = pa.array([start for start, _ in spans], pa.int64())
        firsts = self._files.select(["partition", "bucket"]).take(starts)
        self._spans = {
            (partition_parse(row["partition"]), row["bucket"]): span
            for row, span in zip(firsts.to_pylist(), spans, strict=True)
        }
        schemas = {**self.snapshot.schemas, self.spec.schema.id: self.spec.schema}
        self.reader = SliceReader(self.store, Schemas(self.spec.schema, schemas))

    def buckets(self) -> Iterator[BucketId]:
        """Return the buckets that have files."""
        return iter(self._spans)

    def files(self, bucket: BucketId) -> list[LiveFile]:
        """Return the live files of a bucket."""
        start, stop = self._spans.get(bucket, (0, 0))
        return list(live_files(self._files.slice(start, stop - start)))

    def numbered(self, number: int) -> list[BucketId]:
        """Return the buckets with a number that have files, one a partition at most."""
        return [bucket for bucket in self._spans if bucket[1] == number]

    def without_files(self, groups: Iterable[Group]) -> set[Group]:
        """Return those of these buckets that have no file."""
        return {group for group in groups if group not in self._spans}

    def source(
        self,
        file: LiveFile,
        columns: Sequence[str],
        *,
        hidden: Positions | None = None,
        within: Range | None = None,
        sieve: KeyFilter | None = None,
    ) -> Source:
        """Return live rows of a file, sorted by key; see ``blocks``.

        A file is not opened if its bounds say that no first key column lies ``within`` the range.
        One that is in another order is sorted, after the sieve has left rows out. If that wants
        few keys, they are looked up in the file's key index.
        """
        if within is not None and not within.meets(self._range(file)):
            return Source(iter(()), existing=True)
        ordered = file.order == KEY_ORDER
        wanted = None if ordered or sieve is None else sieve.hashes
        blocks = self.blocks(file, columns, hidden=hidden, within=within, keys=wanted)
        if sieve is not None:
            blocks = sieve.sift(blocks if ordered else each_sorted(blocks, self.spec.key))
        if not ordered:
            blocks = sorted_by_key(blocks, self.spec.key, self.sort_bytes)
        return Source(blocks, existing=True)

    def record_keys(self, files: Iterable[LiveFile], digest: KeyDigest) -> None:
        """Collect the keys of all live rows of files; read those alone that there is room for."""
        for file in files:
            if digest.takes(file.live_rows):
                for rows in self.reader.rows(file, columns=self.spec.key):
                    digest.add(pa.Table.from_batches([rows]))

    def _range(self, file: LiveFile) -> Range:
        """Return what is known of the first key column in a file."""
        bucket = (file.partition, file.bucket)
        if self._ranges is None or self._ranges[0] != bucket:
            start, stop = self._spans.get(bucket, (0, 0))
            files = self._files.slice(start, stop - start)
            self._ranges = bucket, file_ranges(files, self.spec.key[0], self.spec.schema)
        return self._ranges[1].get(file.path, Range())

    def blocks(
        self,
        file: LiveFile,
        columns: Sequence[str],
        *,
        hidden: Positions | None = None,
        within: Range | None = None,
        keys: Hashes | None = None,
    ) -> Iterator[SortedBatch]:
        """Read live rows of a file with their positions, in order, in bounded memory.

        ``hidden`` rows are left out too, and row groups without a first key column ``within`` a
        range, or without one of these keys, which are given by their hashes.
        """
        ranges = None if within is None else {self.spec.key[0]: within}
        parts = self.reader.slices(file, columns=columns, hidden=hidden, within=ranges, keys=keys)
        for part in parts:
            yield SortedBatch(pa.Table.from_batches([part.rows]), part.positions)


def as_live(record: pa.Table) -> LiveFile:
    """Take a file that this writer has just made for one that is live."""
    return next(live_files(unmasked(record, version=NO_VERSION, staged=True)))


@dataclass(frozen=True, slots=True)
class Matching:
    """A predicate as a writer needs it."""

    predicate: Predicate
    condition: Condition | None
    """Condition on incoming rows; None accepts every row."""

    @classmethod
    def of(cls, plan: WritePlan) -> Self | None:
        """Take the predicate of a plan; None if it has none."""
        if plan.request.predicate is None:
            return None
        schema = plan.spec.schema.arrow
        predicate = from_json(plan.request.predicate, schema)
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

    def hidden(
        self, files: Sequence[LiveFile], recorder_of: Callable[[LiveFile], KeyDigest] | None = None
    ) -> dict[str, Positions]:
        """Find the live rows that match, by file.

        Args:
            files: where to look.
            recorder_of: what collects the keys of the rows of a file that match; None: nobody asks.
        """
        found: dict[str, Positions] = {}
        for file in files:
            if file.path in self._paths:
                positions = self._matching(file, None if recorder_of is None else recorder_of(file))
                if len(positions):
                    found[file.path] = positions
        return found

    def _matching(self, file: LiveFile, keys: KeyDigest | None) -> Positions:
        if self.plan.condition is None:
            return self._whole(file, keys)
        names = () if keys is None else self.existing.spec.key
        parts = []
        for part in self.existing.reader.slices(file, columns=names, where=self.plan.condition):
            parts.append(part.positions)
            if keys is not None:
                keys.add(pa.Table.from_batches([part.rows]))
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)

    def _whole(self, file: LiveFile, keys: KeyDigest | None) -> Positions:
        """Return every live row: the partition alone decided, and nothing has to be read for that.

        The keys are read only where the decision has room for them.
        """
        if keys is not None:
            self.existing.record_keys([file], keys)
        live = np.ones(file.rows, dtype=np.bool_)
        gone = load_mask(self.existing.store, file)
        if gone is not None:
            live[gone.astype(np.int64)] = False
        return np.flatnonzero(live).astype(np.uint64)


class LostRows:
    """Positions of rows that go, by file, collected round by round."""

    def __init__(self, hidden: Hidden) -> None:
        self._parts: dict[str, list[Positions]] = {p: [at] for p, at in hidden.items()}

    def add(self, path: str, positions: Positions) -> None:
        """Take positions in a file; none comes twice."""
        self._parts.setdefault(path, []).append(positions)

    def of(self, path: str) -> Positions:
        """Return the positions in a file, sorted."""
        parts = self._parts.get(path)
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.uint64)

    def by_file(self) -> dict[str, Positions]:
        """Return the positions in every file."""
        return {path: self.of(path) for path in self._parts}


class Masks:
    """Writes masks bucket by bucket, so that few of them are held."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._writer: MaskWriter | None = None
        self._owners: dict[str, Staged] = {}

    def add(self, partition: Partition, staged: Staged) -> None:
        """Write the masks of a bucket; their records come with ``close``."""
        for path, positions in staged.hidden.items():
            if self._writer is None:
                self._writer = MaskWriter(self._output.store, self._output.mask_name(partition))
            self._writer.add(path, positions)
            self._owners[path] = staged
        staged.hidden = {}

    def close(self) -> None:
        """Return the mask records of each bucket."""
        if self._writer is None:
            return
        records = self._writer.close()
        self._output.written.update(self._writer.paths)
        for at, path in enumerate(records["path"].to_pylist()):
            self._owners[path].masked.append(records.slice(at, 1))


def remove_rows(
    bucket: BucketId, files: Sequence[LiveFile], gone: Hidden, existing: Existing, output: Output
) -> Staged:
    """Stage a bucket without some of its live rows; files that lose all of theirs go."""
    staged = Staged(deleted=sum(len(positions) for positions in gone.values()))
    if output.spec.layout.table_type == MOR:
        hide(staged, files, gone, existing)
        return staged
    names = output.spec.copied
    for file in files:
        lost = gone.get(file.path)
        if lost is None or not len(lost):
            continue
        staged.removed.append(file)
        if len(lost) < file.live_rows:
            blocks = (block.rows for block in existing.blocks(file, names, hidden=lost))
            record = output.write(bucket, file.kind, blocks, order=file.order)
            staged.added.extend([] if record is None else [record])
    return staged


def remove_files(files: Iterable[LiveFile]) -> Staged:
    """Stage a bucket without any of its files."""
    removed = list(files)
    return Staged(removed=removed, deleted=sum(file.live_rows for file in removed))


def hide(staged: Staged, files: Sequence[LiveFile], gone: Hidden, existing: Existing) -> None:
    """Stage the masks of live files: what is hidden now and what goes; empty files go whole."""
    for file in files:
        lost = gone.get(file.path)
        if lost is None or not len(lost):
            continue
        if len(lost) == file.live_rows:
            staged.removed.append(file)
            continue
        positions = union(load_mask(existing.store, file), lost)
        if positions is not None:
            staged.hidden[file.path] = positions
