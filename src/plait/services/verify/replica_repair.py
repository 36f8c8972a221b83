"""Repair buckets whose files are lost or damaged with the rows of a replica (RFC 0021).

A replica is another table with the same rows: its files differ, so bytes prove nothing. The rows of
a bucket are taken if there are as many as the table's metadata says, and if every row that can
still be read here is among them. Such a row keeps the version that wrote it; the others count as
written by the repair, so they may expire late, and never too early.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.arrow.ingest import split
from plait.arrow.staging import ArrowStaging
from plait.arrow.task import Task
from plait.errors import OptionError
from plait.files.data_file import LiveFile, bucket_pairs, files_in, live_files
from plait.model.bucket import BucketId, partition_path, partition_text
from plait.model.changes import KEYS_ALL, KEYS_NONE, PATHS, WriteStatus, touched_whole
from plait.model.decision import SCOPE_BUCKETS, CommitResult, Scope
from plait.model.instant import Operation
from plait.model.plain import Plain
from plait.model.plan import LIVE, Snapshot
from plait.model.request import WritePlan, WriteRequest
from plait.model.schema import WRITTEN_FIELD, without_written
from plait.read.equal import NO_PRINTS, Prints, fingerprints, unmatched
from plait.read.scan import Scan
from plait.read.slices import SliceReader
from plait.services.verify.contents import check_files
from plait.services.verify.report import Findings
from plait.state.state import TableState
from plait.txn.read_pin import pinned
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import OptimisticTransaction
from plait.write.request import plan_of


@dataclass(frozen=True, slots=True)
class DamagedBucket(Plain):
    """A bucket of which a file cannot be read, or not its deletion vector."""

    place: str
    files: tuple[str, ...]
    """Files that cannot be read."""
    rows: int
    """Live rows, by the table's metadata."""
    found: int | None = None
    """Rows of the replica; None before it was read."""


@dataclass(frozen=True, slots=True)
class ReplicaRepairReport(Plain):
    """The result of a repair from a replica."""

    buckets: tuple[DamagedBucket, ...]
    files_read: int
    """Number of files of the replica that were read."""
    version: int | None
    """The version of the decision; None if nothing was written."""


def repair_from_replica(
    handle: TableHandle, replica: TableHandle, *, dry_run: bool = False
) -> ReplicaRepairReport:
    """Take the rows of damaged buckets from a replica, all in one decision; leave other buckets.

    Raises:
        OptionError: the replica has other columns or another key, or lacks rows of a bucket; its
            fact ``buckets`` names them. Nothing was written.
        RetryableConflictError: somebody else changed one of the buckets meanwhile.
    """
    _require_alike(handle, replica)
    if handle.cache.known().table.spec.unique_in_table:
        message = "a row of the replica may have moved to another partition of this table since"
        hint = "restore a version that does not need the damaged files, or repair them from a copy"
        raise OptionError(message, hint=hint, key="replicas", value="unique='table'")
    with pinned(handle, lambda state: _Repair.of(handle, state, replica)) as planned:
        if not planned.damaged or dry_run:
            return ReplicaRepairReport(planned.listed(), 0, None)
    txn = OptimisticTransaction.begin(handle, WriteRequest(Operation.REPAIR))
    staged: list[tuple[_Repair, WriteStatus, int]] = []

    def commit() -> CommitResult:
        repair = _Repair.of(handle, txn.base, replica)  # it may be mended by now, or worse
        status, files_read = repair.stage(txn)
        staged.append((repair, status, files_read))
        return txn.commit(status, Scope(SCOPE_BUCKETS), None)

    result = txn.commit_or_abort(commit, lambda: True)
    repair, status, files_read = staged[0]
    return ReplicaRepairReport(repair.listed(status), files_read, result.version)


@dataclass(frozen=True, slots=True)
class _Repair:
    """The damage of one version, and the replica that has the rows."""

    handle: TableHandle
    state: TableState
    snapshot: Snapshot
    damaged: dict[BucketId, tuple[LiveFile, ...]]
    """By bucket: the files that cannot be read."""
    replica: TableHandle

    @classmethod
    def of(cls, handle: TableHandle, state: TableState, replica: TableHandle) -> _Repair:
        """Read every live file of a version, and note what cannot be read."""
        store = handle.store
        snapshot, findings = state.snapshot(store), Findings()
        check_files(store, snapshot, findings)
        damaged: dict[BucketId, tuple[LiveFile, ...]] = {}
        for file in live_files(snapshot.files):
            vector = file.dv_path is not None and findings.damaged(file.dv_path)
            if vector or findings.damaged(file.path):
                bucket = (file.partition, file.bucket)
                damaged[bucket] = (*damaged.get(bucket, ()), file)
        return cls(handle, state, snapshot, damaged, replica)

    @property
    def files(self) -> pa.Table:
        """Every live file of the damaged buckets (LIVE)."""
        return files_in(self.snapshot.files, set(self.damaged))

    def listed(self, status: WriteStatus | None = None) -> tuple[DamagedBucket, ...]:
        """Say what is damaged, and what was found for it."""
        rows = _rows_by_bucket(self.files, "masked")
        found = None if status is None else _rows_by_bucket(status.changes.added)
        return tuple(
            DamagedBucket(
                _place(bucket),
                tuple(file.path for file in files),
                rows.get(_key(bucket), 0),
                None if found is None else found.get(_key(bucket), 0),
            )
            for bucket, files in sorted(self.damaged.items(), key=str)
        )

    def stage(self, txn: OptimisticTransaction) -> tuple[WriteStatus, int]:
        """Stage new files for the buckets; return how many files of the replica were read too."""
        spec = self.snapshot.spec
        operation = Operation.INSERT if spec.keyed else Operation.APPEND
        request = WriteRequest(operation, with_row_version=spec.keeps_row_version)
        plan = plan_of(request, self.state.table, self.handle.store.address, txn.instant)
        with pinned(self.replica, self._theirs) as theirs:
            return self._staged(txn, plan, theirs), theirs.files.num_rows

    def _staged(self, txn: OptimisticTransaction, plan: WritePlan, theirs: Snapshot) -> WriteStatus:
        """Stage what the replica has, compared with what can be read here."""
        spec, ours = self.snapshot.spec, self._readable()
        staging = ArrowStaging(plan, txn.announce, task=Task("r"), store=self.handle.store)
        prints: list[Prints] = [NO_PRINTS]
        try:
            for mine in self._mine(theirs):
                prints.append(fingerprints(mine))
                rows = pa.Table.from_batches([mine])
                if spec.keeps_row_version:
                    rows = rows.append_column(WRITTEN_FIELD, ours.written(prints[-1]))
                staging.write(rows)
            status = staging.stage(replace(self.snapshot, files=LIVE.empty_table()), None)
        finally:
            staging.close()
        self._require_all(status, ours.prints, np.concatenate(prints))
        keys = KEYS_ALL if spec.keyed else KEYS_NONE
        changes = replace(
            status.changes,
            removed=self.files.select(["path"]).cast(PATHS),
            touched=touched_whole(self.damaged, keys),
        )
        removed = changes.removed.num_rows
        stats = replace(status.stats, files_removed=removed)
        return replace(status, changes=changes, stats=stats)

    def _theirs(self, state: TableState) -> Snapshot:
        """Return the replica; only the same buckets where it is laid out alike."""
        theirs = state.snapshot(self.replica.store)
        if not theirs.spec.layout.same_buckets(self.snapshot.spec.layout):
            return theirs
        files = files_in(theirs.files, set(self.damaged))
        return replace(theirs, files=files, total=None)

    def _mine(self, theirs: Snapshot) -> Iterator[pa.RecordBatch]:
        """Read the replica's rows that belong to damaged buckets."""
        spec = self.snapshot.spec
        for batch in Scan(self.replica.store, theirs, columns=spec.schema.names).to_reader():
            chunk = split(batch, spec)
            spans = [span for group, span in chunk.spans.items() if group in self.damaged]
            if spans:
                yield pa.concat_batches([chunk.rows.slice(at, to - at) for at, to in spans])

    def _require_all(self, status: WriteStatus, ours: Prints, theirs: Prints) -> None:
        """Refuse rows that are not as many as here, or lack one that can be read here."""
        wanted = _rows_by_bucket(self.files, "masked")
        found = _rows_by_bucket(status.changes.added)
        short = [b for b in self.damaged if wanted.get(_key(b), 0) != found.get(_key(b), 0)]
        if short:
            bucket = min(short, key=str)
            counts = [rows.get(_key(bucket), 0) for rows in (found, wanted)]
            message = f"the replica has {counts[0]} rows of {_place(bucket)}, the table {counts[1]}"
            raise self._unlike(message, short)
        missing, _ = unmatched(ours, theirs)
        if len(missing):
            message = f"{len(missing)} rows of these buckets are readable here and differ there"
            raise self._unlike(message, list(self.damaged))

    def _readable(self) -> _Readable:
        """Read the rows of the damaged buckets that stand in other files."""
        spec = self.snapshot.spec
        lost = {file.path for files in self.damaged.values() for file in files}
        reader = SliceReader.of(self.handle.store, self.snapshot)
        prints, versions = [NO_PRINTS], [_NO_VERSIONS]
        for file in (each for each in live_files(self.files) if each.path not in lost):
            for rows in reader.rows(file, columns=spec.copied):
                prints.append(fingerprints(without_written(rows)))
                if spec.keeps_row_version:
                    versions.append(rows.column(-1).to_numpy(zero_copy_only=False))
        return _Readable.of(np.concatenate(prints), np.concatenate(versions))

    def _unlike(self, message: str, buckets: list[BucketId]) -> OptionError:
        return OptionError(
            message,
            hint="bring the replica to the table's state, or name another one; nothing was written",
            key="replica",
            value=self.replica.store.address.uri,
            buckets=sorted(map(_place, buckets)),
        )


_NO_VERSIONS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Readable:
    """Rows that can be read here, by the second half of their prints."""

    prints: Prints
    versions: npt.NDArray[np.int64]
    """Versions that wrote the rows; empty if the table does not keep them."""
    given: npt.NDArray[np.int64]
    """How many versions were given away, at the first row with a hash."""

    @classmethod
    def of(cls, prints: Prints, versions: npt.NDArray[np.int64]) -> Self:
        """Sort them."""
        order = np.argsort(prints[:, 1], kind="stable")
        versions = versions[order] if len(versions) else versions
        return cls(prints[order], versions, np.zeros(len(prints) + 1, np.int64))

    def written(self, theirs: Prints) -> pa.Array:
        """Return the version that wrote each of some rows here, and give none of them twice.

        Null is a row that has no equal left here.
        """
        order = np.argsort(theirs[:, 1], kind="stable")
        wanted = theirs[order]
        first = np.searchsorted(self.prints[:, 1], wanted[:, 1])
        before = np.arange(len(wanted)) - np.searchsorted(wanted[:, 1], wanted[:, 1])
        at = first + self.given[first] + before
        known = at < len(self.prints)
        known[known] = (self.prints[at[known]] == wanted[known]).all(axis=1)
        np.add.at(self.given, first[known], 1)
        versions = np.zeros(len(theirs), np.int64)
        versions[order[known]] = self.versions[at[known]]
        missing = np.ones(len(theirs), np.bool_)
        missing[order[known]] = False
        return pa.array(versions, mask=missing)


def _place(bucket: BucketId) -> str:
    partition, number = bucket
    return f"{partition_path(partition)}/{number}"


def _key(bucket: BucketId) -> tuple[str, int]:
    return partition_text(bucket[0]), bucket[1]


def _rows_by_bucket(files: pa.Table, masked: str | None = None) -> Counter[tuple[str, int]]:
    """Count the rows of files by bucket, without those that are masked."""
    rows: Counter[tuple[str, int]] = Counter()
    hidden = files[masked].to_pylist() if masked else [0] * files.num_rows
    counts = zip(files["rows"].to_pylist(), hidden, strict=True)
    for bucket, (count, gone) in zip(bucket_pairs(files), counts, strict=True):
        rows[bucket] += count - gone
    return rows


def _require_alike(handle: TableHandle, replica: TableHandle) -> None:
    ours, theirs = (each.cache.refresh().table.spec for each in (handle, replica))
    same = ours.key == theirs.key and all(
        one.name == other.name and one.type == other.type
        for one, other in zip(ours.schema.arrow, theirs.schema.arrow, strict=False)
    )
    if same and len(ours.schema.names) == len(theirs.schema.names):
        return
    uri = replica.store.address.uri
    message = f"{uri} is no replica of this table: its columns or its record key differ"
    raise OptionError(message, hint="name a table with the same rows", key="replica", value=uri)
