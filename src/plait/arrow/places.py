"""Where rows arrive and where they go, bucket by bucket, of one bucket number (RFC 0030)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.arrow.buffer import Buffer, Ledger
from plait.arrow.existing import Hidden, LostRows
from plait.arrow.ingest import partition_codes, split
from plait.arrow.memory import MemoryLimits, combined
from plait.arrow.output import KeyDigest, Lookups, Output
from plait.arrow.runs import Incoming, RunSink
from plait.files.data_file import LiveFile
from plait.files.hash import key_hashes
from plait.files.keys import Indices
from plait.model.bucket import BucketId, Partition
from plait.model.plan import UNIQUE_PARTITION

_SHARE = 8
"""Rows that arrive are held in this share of the memory of a writer, and are spilled then."""


@dataclass(slots=True)
class PlacedBucket:
    """What happens to one bucket."""

    digest: KeyDigest
    """The keys that arrive there, and those that leave it."""
    inserted: int = 0
    updated: int = 0
    """Rows that are written there in place of another row of their key, wherever that was."""
    deleted: int = 0
    left: int = 0
    """Rows that are gone, and whose key is not written there."""
    matched: bool = False
    """Whether rows go because a predicate holds for them."""

    @property
    def arrived(self) -> int:
        """The rows that are written there."""
        return self.inserted + self.updated


@dataclass(slots=True)
class Placed:
    """What became of the keys of one bucket number."""

    output: Output
    number: int
    files: Sequence[LiveFile]
    """The table's files under this bucket number that were looked at."""
    matched: Hidden
    """Rows of these files that go because a predicate holds for them, whatever comes in."""
    lost: LostRows = field(init=False)
    """The rows of these files that go."""
    lookups: Lookups = field(init=False)
    """The keys that changed nothing."""
    places: dict[BucketId, PlacedBucket] = field(default_factory=dict)
    _partitions: dict[Partition, int] = field(default_factory=dict)
    """Numbers for partitions, in the order in which they came."""
    _buffer: Buffer = field(init=False)
    _incoming: Incoming = field(init=False)

    def __post_init__(self) -> None:
        """Start empty."""
        self.lost, self.lookups = LostRows(self.matched), Lookups.of(self.output)
        limits = self.output.limits
        small = MemoryLimits(limits.bucket, max(1, limits.buffer // _SHARE))
        self._buffer = Buffer(small, Ledger(small))
        self._incoming = Incoming(RunSink(self.output.spec.key, None, limits, self.output.spill))

    def arrive(self, rows: pa.Table, *, fresh: npt.NDArray[np.bool_]) -> Indices:
        """Take rows that are written, in key order; return the number of each one's partition.

        Args:
            rows: in the table's columns.
            fresh: which of them have a key that the table did not have.
        """
        if not rows.num_rows:
            return np.zeros(0, dtype=np.int64)
        layout = self.output.spec
        layout = layout.with_row_version() if self.output.plan.request.with_row_version else layout
        batch = combined(rows.cast(layout.schema.arrow)).to_batches()[0]
        spec = replace(self.output.spec, unique=UNIQUE_PARTITION)
        partitions, codes = partition_codes(batch, spec)
        codes = np.zeros(batch.num_rows, dtype=np.int64) if codes is None else codes
        hashes = key_hashes(batch, spec.key)
        for code, at in _by_number(codes):
            place = self._place(partitions[code] or ())
            place.digest.add_hashes(hashes[at])
            new = int(np.count_nonzero(fresh[at]))
            place.inserted += new
            place.updated += len(at) - new
        orders = self._buffer.add(split(batch, spec))
        if orders:
            self._incoming.sink.flush(orders)
        known = np.array([self._numbered(each or ()) for each in partitions], dtype=np.int64)
        numbers: Indices = known[codes]
        return numbers

    def leave(self, old: pa.Table, old_at: Indices, ended: Indices, place: Indices) -> None:
        """Take rows that go.

        Args:
            old: rows of files with where they stand.
            old_at: by key, where in ``old`` its row is.
            ended: the numbers of the keys whose rows go.
            place: by key, the number of the partition where its row is from now on; -1: nowhere.
        """
        if not len(ended):
            return
        file_column, at_column = old.column_names[-2:]
        rows = old.take(pa.array(old_at[ended]))
        files, positions = rows[file_column].to_numpy(), rows[at_column].to_numpy()
        hashes = key_hashes(rows, self.output.spec.key)
        for number, at in _by_number(files):
            file = self.files[number]
            self.lost.add(file.path, np.sort(positions[at]).astype(np.uint64))
            now = place[ended[at]]
            away = now != self._numbered(file.partition)
            if away.any():
                here = self._place(file.partition)
                here.digest.add_hashes(hashes[at][away])
                here.left += int(np.count_nonzero(away))
                here.deleted += int(np.count_nonzero(now < 0))

    def note_gone(self, recorded: Mapping[BucketId, KeyDigest]) -> None:
        """Take the keys of rows that go because a predicate holds for them, by bucket."""
        for (partition, _), digest in recorded.items():
            if not digest.empty:
                here = self._place(partition)
                here.digest.merge(digest)
                here.matched = True

    def rows(self) -> Incoming:
        """Return the rows that arrive, by bucket; nothing may arrive afterwards."""
        self._incoming.settle(self._buffer)
        return self._incoming

    def close(self) -> None:
        """Drop the rows."""
        self._incoming.close()
        self._buffer.clear()

    def _place(self, partition: Partition) -> PlacedBucket:
        bucket = partition, self.number
        if bucket not in self.places:
            self.places[bucket] = PlacedBucket(KeyDigest(self.output))
        return self.places[bucket]

    def _numbered(self, partition: Partition) -> int:
        return self._partitions.setdefault(partition, len(self._partitions))


def _by_number(codes: Indices) -> Iterator[tuple[int, Indices]]:
    """Return each number that occurs, and where."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(ordered[start]), order[start:stop]
