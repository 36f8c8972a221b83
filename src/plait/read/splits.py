"""Parts of a scan that other processes read, each alone: what Ray, Dask and Daft are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import pyarrow as pa

from plait.errors import CapabilityMissingError
from plait.files.data_file import LiveFile, live_files
from plait.model.plan import LIVE, Snapshot
from plait.model.store_address import StoreAddress
from plait.read.condition import Condition
from plait.read.frames import Frames
from plait.read.plan import ScanPlan
from plait.read.slices import SliceReader
from plait.storage import in_this_process, open_store
from plait.storage.port import Store

SPLIT_BYTES: Final = 128 << 20
"""About how many bytes of files a split reads at most, unless told otherwise."""
FILES_MAX: Final = 1_000
"""Number of files of a split, which bounds what is sent to another process."""

Piece: TypeAlias = tuple[int, range]
"""Position of a file, and a stretch of its rows: the row groups that begin there are read."""


@dataclass(frozen=True)
class SplitPlan:
    """What a split reads, without the store."""

    snapshot: Snapshot
    """The version, with the files of this split alone."""
    spans: tuple[range, ...]
    """For each of them a stretch of rows: the row groups that begin there are read."""
    schema: pa.Schema
    condition: Condition | None


class ScanSplit(Frames):
    """A part of a scan. It can be pickled, and read in any process that reaches the store.

    Each method reads when it is called. A split holds its scan, and with it the files, only in the
    process that made it. A copy in another process holds nothing: keep the scan, or the splits,
    until all of them are read.
    """

    def __init__(self, store: Store, plan: SplitPlan) -> None:
        self._store, self._plan = store, plan

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._plan.schema

    @property
    def version(self) -> int:
        """The version of the table that is read."""
        return self._plan.snapshot.version

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that it reads; a share of those that several splits read."""
        return sum(_share(file, span) for file, span in self._pieces())

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Pickle all that another process needs, and no more of the table's metadata."""
        plan = self._plan
        files = plan.snapshot.files
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, files.schema) as stream:  # of a slice only what it shows
            stream.write_table(files)
        rest = replace(plan, snapshot=replace(plan.snapshot, files=LIVE.empty_table()))
        return _unpickled, (self._store.address, rest, sink.getvalue().to_pybytes())

    def __repr__(self) -> str:
        """Show what is read."""
        return f"ScanSplit(version={self.version}, files={len(self._plan.spans)})"

    def _batches(self) -> Iterator[pa.RecordBatch]:
        plan = self._plan
        reader = SliceReader.of(self._store, plan.snapshot)
        for file, span in self._pieces():
            for rows in reader.beginning_in(
                file, span, columns=plan.schema.names, where=plan.condition
            ):
                whole = len(plan.schema)
                yield pa.record_batch(rows.columns, schema=plan.schema) if whole else rows

    def _pieces(self) -> Iterator[tuple[LiveFile, range]]:
        return zip(live_files(self._plan.snapshot.files), self._plan.spans, strict=True)


def divide(
    store: Store, snapshot: Snapshot, plan: ScanPlan, schema: pa.Schema, size_bytes: int
) -> list[ScanSplit]:
    """Divide what a plan reads: small files are put together, large ones divided.

    Args:
        store: the table's.
        snapshot: the version.
        plan: the files to read.
        schema: the columns to read.
        size_bytes: about how much a split reads at most.
    """
    files = plan.files
    pieces: list[Piece] = []
    parts: list[list[Piece]] = []
    size = 0
    for at, file in enumerate(live_files(files)):
        for span in _spans(file, size_bytes):
            share = _share(file, span)
            if pieces and (size + share > size_bytes or len(pieces) >= FILES_MAX):
                parts.append(pieces)
                pieces, size = [], 0
            pieces.append((at, span))
            size += share
    if pieces:
        parts.append(pieces)
    return [ScanSplit(store, _plan_of(part, snapshot, plan, schema)) for part in parts]


def _share(file: LiveFile, span: range) -> int:
    return file.size_bytes * len(span) // max(1, file.rows)


def _spans(file: LiveFile, size_bytes: int) -> Iterator[range]:
    """Divide the rows of a file into stretches of about the same size; none if all are hidden."""
    if not file.live_rows:
        return
    count = max(1, -(-file.size_bytes // size_bytes))
    step = max(1, -(-file.rows // count))
    for first in range(0, file.rows, step):
        yield range(first, min(first + step, file.rows))


def _plan_of(
    pieces: Sequence[Piece], snapshot: Snapshot, plan: ScanPlan, schema: pa.Schema
) -> SplitPlan:
    files = plan.files.take([at for at, _ in pieces])
    # Bounds have done their work. Without them a split is small, however many columns there are.
    names = [name for name in LIVE.names if name != "stats"]
    alone = replace(snapshot, files=files.select(names), total=None, unmatched=0)
    return SplitPlan(alone, tuple(span for _, span in pieces), schema, plan.condition)


def _unpickled(address: StoreAddress, plan: SplitPlan, files: bytes) -> ScanSplit:
    """Open the store of a split, in whatever process this is.

    Raises:
        CapabilityMissingError: the table is in the memory of another process.
    """
    with pa.ipc.open_stream(files) as stream:
        found = stream.read_all()
    store = open_store(address)
    require_shared(store)
    return ScanSplit(store, replace(plan, snapshot=replace(plan.snapshot, files=found)))


def require_shared(store: Store) -> None:
    """Refuse a store in memory that has nothing in it: the table is in another process.

    Raises:
        CapabilityMissingError: it is.
    """
    address = store.address
    if in_this_process(address) and next(iter(store.list("")), None) is None:
        message = f"{address.uri} is in the memory of the process that made it"
        hint = "use a table on a disk or in an object store"
        raise CapabilityMissingError(message, hint=hint, capability="shared", uri=address.uri)
