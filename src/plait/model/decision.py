"""Decisions: what completes an instant, published once in a slot (INV-01 to INV-03).

Each tells the sums over the files that are live after it, so that a state can be compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self

from plait.errors import InvariantError
from plait.model.bucket import BucketId, Partition
from plait.model.changes import Changes, Digest, WriteStats
from plait.model.instant import Action, Instant, Operation
from plait.model.plain import Plain
from plait.model.plan import COW, TableSpec
from plait.model.sink_ledger import SinkLedger

_HASH = re.compile(r"[0-9a-f]{16}", re.ASCII)
_MODULO = 1 << 64


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Sums over some live files. The sums of parts add up to those of the whole."""

    files: int = 0
    rows: int = 0
    """Rows that readers see."""
    hash: int = 0
    """The sum of the files' 64-bit hashes, modulo 2**64 (``state/statistics.py``)."""

    def __add__(self, other: TableStatistics) -> TableStatistics:
        """Return the sums over both."""
        return TableStatistics(
            self.files + other.files, self.rows + other.rows, (self.hash + other.hash) % _MODULO
        )

    def __sub__(self, other: TableStatistics) -> TableStatistics:
        """Return the sums without those of some files."""
        return TableStatistics(
            self.files - other.files, self.rows - other.rows, (self.hash - other.hash) % _MODULO
        )

    def __str__(self) -> str:
        """Return readable text, for example ``3 files, 20 rows (00f3a1...)``."""
        return f"{self.files} files, {self.rows} rows ({self.hash:016x})"

    def to_list(self) -> list[object]:
        """Write it as JSON values."""
        return [self.files, self.rows, f"{self.hash:016x}"]

    @classmethod
    def from_list(cls, value: object) -> Self:
        """Read what ``to_list`` wrote; raise TypeError or ValueError for anything else."""
        if not isinstance(value, list):
            raise TypeError(value)
        files, rows, total = value
        if type(files) is not int or type(rows) is not int or not isinstance(total, str):
            raise TypeError(value)
        if min(files, rows) < 0 or max(files, rows) >= 1 << 63 or not _HASH.fullmatch(total):
            raise ValueError(value)
        return cls(files, rows, int(total, 16))


SCOPE_BUCKETS, SCOPE_PARTITIONS, SCOPE_TABLE, SCOPE_APPEND = (
    "buckets",
    "partitions",
    "table",
    "append",
)


@dataclass(frozen=True, slots=True)
class Scope:
    """The logical scope of an operation, beyond the buckets of its files.

    ``append``: adds rows to a table without keys; conflicts only with overwrites of the place.
    ``buckets``: exactly the touched (partition, bucket) pairs.
    ``partitions``: everything in these partitions, including empty buckets; also the rows for
    which the predicate holds, wherever they are.
    ``table``: everything.
    """

    kind: str = SCOPE_BUCKETS
    partitions: tuple[Partition, ...] = ()
    predicate: dict[str, object] | None = None  # frozen expression, as JSON values

    def claims(self, partition: Partition) -> bool:
        """Tell whether a partition is replaced whole: with all that is, was or might be there."""
        whole = self.kind == SCOPE_PARTITIONS and partition in self.partitions
        return whole or self.kind == SCOPE_TABLE


_ACTIONS: Final[Mapping[Operation, Action]] = {
    Operation.COMPACT: Action.COMPACTION,
    Operation.CLUSTER: Action.CLUSTERING,
    Operation.EXPIRE: Action.EXPIRY,
    Operation.REPAIR: Action.REPAIR,
}


def action_of(operation: Operation, scope: Scope, spec: TableSpec) -> Action:
    """Return what kind of change an operation of this reach is."""
    if operation in _ACTIONS:
        return _ACTIONS[operation]
    if scope.kind in (SCOPE_PARTITIONS, SCOPE_TABLE):
        return Action.REPLACE_COMMIT
    return Action.COMMIT if spec.layout.table_type == COW else Action.DELTA_COMMIT


class Span(NamedTuple):
    """The offsets of one source, or one partition of a source, in an epoch."""

    source: str
    start: str
    """The source's own offset, as text; "" is its beginning."""
    end: str


@dataclass(frozen=True, slots=True)
class Token:
    """Identifies the epoch of a stream that a commit applies."""

    application: str
    epoch: int
    start: str
    """Where the epoch before it ended; "" for the first."""
    end: str
    offsets: tuple[Span, ...] = ()
    """One entry per source, in the order of their names; () if they are unknown."""
    digest: Digest | None = None
    """The digest of the rows; None until they have been staged."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        digest = self.digest
        return {
            "application": self.application,
            "epoch": self.epoch,
            "start": self.start,
            "end": self.end,
            "offsets": {span.source: [span.start, span.end] for span in self.offsets},
            "digest": None if digest is None else [digest.rows, f"{digest.hash:016x}"],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> Token:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError if it is invalid."""
        application, epoch = value["application"], value["epoch"]
        start, end, offsets = value["start"], value["end"], value["offsets"]
        texts = isinstance(application, str) and isinstance(start, str) and isinstance(end, str)
        if not texts or type(epoch) is not int or not isinstance(offsets, dict):
            raise TypeError(value)
        spans = tuple(_span(source, ends) for source, ends in sorted(offsets.items()))
        digest = value["digest"]
        if digest is not None:
            digest = _digest(digest)
        return cls(str(application), epoch, str(start), str(end), spans, digest)


def _span(source: object, ends: object) -> Span:
    if not isinstance(ends, list):
        raise TypeError(ends)
    start, end = ends
    if not (isinstance(source, str) and isinstance(start, str) and isinstance(end, str)):
        raise TypeError(ends)
    return Span(source, start, end)


def _digest(value: object) -> Digest:
    if not isinstance(value, list):
        raise TypeError(value)
    rows, total = value
    if type(rows) is not int or rows < 0 or not _HASH.fullmatch(total):
        raise ValueError(value)
    return Digest(rows, int(total, 16))


@dataclass(frozen=True, slots=True)
class RolledBack:
    """An instant that a rollback ends."""

    instant: Instant
    reason: str
    partitions: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a clean decides."""

    horizon: int
    """The oldest version that can be read from now on."""
    final: int
    """The oldest version that an undo can make readable again; at most the horizon."""
    condemned: tuple[tuple[str, int], ...] = ()
    """Files that no version from ``final`` on needs, each with the version that ended it."""
    deleted: tuple[str, ...] = ()
    """Files condemned earlier that are gone by now."""
    undo: int | None = None
    """The version of the oldest clean whose horizon is taken back."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """Buckets reserved by an instant that lost often. Affects fairness, never correctness."""

    holder: Instant
    scope: Scope = field(default_factory=Scope)
    buckets: tuple[BucketId, ...] = ()


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A version that stays readable under a name."""

    name: str
    version: int

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {"name": self.name, "version": self.version}


@dataclass(frozen=True, slots=True)
class SavepointChange:
    """A savepoint that a decision sets, or drops."""

    savepoint: Savepoint
    drop: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {**self.savepoint.to_dict(), "drop": self.drop}


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore decides, beside its changes of files."""

    to: int
    """The version whose rows the table has again."""
    reverted: tuple[tuple[int, int], ...] = ()
    """First and last versions that the table contained before, and does not contain now."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {"to": self.to, "undone": [list(span) for span in self.reverted]}


@dataclass(frozen=True, slots=True)
class SetBack:
    """Where a stream continues after a replay: the last epoch that the table contains."""

    application: str
    token: Token | None = None
    """Token after which it continues; None continues from the beginning."""
    version: int | None = None
    """The version of that token's decision."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        token = None if self.token is None else self.token.to_dict()
        return {"application": self.application, "token": token, "version": self.version}


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a decision lets be applied again, although it was undone."""

    applications: tuple[SetBack, ...] = ()
    commit_ids: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        applications = [each.to_dict() for each in self.applications]
        return {"applications": applications, "commit_ids": list(self.commit_ids)}


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file of old decisions, with the exact bytes of their slots."""

    path: str
    first: int
    last: int
    bytes: int
    """Size of the decisions together, as they were in their slots."""
    sha256: str
    """SHA-256 of the file."""

    @property
    def rows(self) -> int:
        """How many decisions it has."""
        return self.last - self.first + 1

    def to_list(self) -> list[object]:
        """Return it as plain values."""
        return [self.path, self.first, self.last, self.bytes, self.sha256]


@dataclass(frozen=True, slots=True)
class ReadSet:
    """The read that the rows of a commit depend on, if that is not its base."""

    version: int
    """Another commit to the same keys after this version is a conflict."""
    reads: tuple[dict[str, object] | None, ...] = ()
    """Predicates that were read at that version, as JSON values; None: all rows."""

    @property
    def explicit(self) -> bool:
        """Whether the caller named the read: then Plait cannot run the operation again."""
        return bool(self.reads)


UNPUBLISHED: Final = -1
"""The version of a decision that has no slot yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What completes an instant: one entry of the timeline, or what is to become one.

    Commits and services draft it, without a slot. ``publish`` gives it the fields of the slot that
    it tries, and the codec reads it back from there.
    """

    instant: Instant
    action: Action
    operation: Operation
    base: int
    """The version that the work was validated from; everything after it was in the window."""
    changes: Changes = field(default_factory=Changes)
    scope: Scope = field(default_factory=Scope)
    read_set: ReadSet | None = None
    commit_id: str | None = None
    tokens: tuple[Token, ...] = ()
    rolled_back: tuple[RolledBack, ...] = ()
    """The instants that this decision ends: the writer's own, or those of dead writers."""
    cleaned: Cleaned | None = None
    reserved: Reserved | None = None
    savepoint: SavepointChange | None = None
    restored: Restored | None = None
    replayed: Replayed | None = None
    archived: tuple[ArchiveFile, ...] = ()
    """All files of the archive from this decision on, where it changes them; oldest first."""
    replicas: SinkLedger | None = None
    """Which sinks hold the rows of this commit; None: it was not written to sinks."""
    table: dict[str, object] | None = None
    """The definition of the table, where this decision sets it: schemas, bucket spec, ..."""
    stats: WriteStats = field(default_factory=WriteStats)
    client: dict[str, object] = field(default_factory=dict)

    # What follows depends on the slot, and is set by ``in_slot`` and ``publish``.
    version: int = UNPUBLISHED
    completed_ms: int = 0
    attempt: str = ""
    """Unique to one publish call. It shows whether the bytes in a slot are ours."""
    previous: str = ""
    """Checksum of the decision before; "" at version 0."""
    schema_id: int = 0
    """The id of the table's schema at this version."""
    bucket_spec_id: int = 0
    """The id of the table's bucket spec at this version."""
    live: TableStatistics | None = None
    """The sums over the live files at this version; None: it does not tell them."""
    features: tuple[str, ...] = ()
    """What a client must know to read it."""
    writer_features: tuple[str, ...] = ()
    """What a client must know to write after it, beside that."""
    checksum: str = ""
    """The checksum of the published bytes; set by the codec."""

    def in_slot(
        self, spec: TableSpec, *, version: int, completed_ms: int, attempt: str, previous: str
    ) -> Self:
        """Return it as it would be in a slot, under the table's ``spec``.

        Raises:
            InvariantError: it has a slot already. No decision is published twice.
        """
        if self.version != UNPUBLISHED:
            raise InvariantError(f"the decision of version {self.version} is to be published again")
        return replace(
            self,
            version=version,
            completed_ms=completed_ms,
            attempt=attempt,
            previous=previous,
            schema_id=spec.schema.id,
            bucket_spec_id=spec.layout.buckets.id,
        )

    def find_ended(self, instant: Instant) -> RolledBack | None:
        """Return the entry of an instant that this decision rolls back; None if there is none."""
        ends = (each for each in self.rolled_back if each.instant.nonce == instant.nonce)
        return next(ends, None)


@dataclass(frozen=True, slots=True)
class CommitResult(Plain):
    """The result of a commit."""

    version: int
    instant: Instant
    stats: WriteStats
    attempts: int = 1
    rebased: int = 0
    """How many buckets were staged again because of other commits."""
