"""Decisions: what completes an instant, published once in a slot (INV-01 to INV-03)."""

from __future__ import annotations

from dataclasses import dataclass, field

from plait.model.bucket import BucketId, Partition
from plait.model.changes import Changes, WriteStats
from plait.model.instant import Action, Instant, Operation, Outcome

SCOPE_BUCKETS, SCOPE_PARTITIONS, SCOPE_TABLE, SCOPE_APPEND = (
    "buckets",
    "partitions",
    "table",
    "append",
)


@dataclass(frozen=True, slots=True)
class Scope:
    """The logical reach of an operation, beyond the buckets that its files name.

    ``append``: adds rows to a table without keys; meets nothing but overwrites of the place.
    ``buckets``: exactly the touched (partition, bucket) pairs.
    ``partitions``: everything in these partitions, also in buckets that are empty.
    ``table``: everything.
    """

    kind: str = SCOPE_BUCKETS
    partitions: tuple[Partition, ...] = ()
    predicate: dict[str, object] | None = None  # frozen expression, as JSON values


@dataclass(frozen=True, slots=True)
class Token:
    """What a stream has applied: (application, epoch, start and end offsets)."""

    application: str
    epoch: int
    start: str
    end: str

    def to_dict(self) -> dict[str, object]:
        """Give it as plain values."""
        return {
            "application": self.application,
            "epoch": self.epoch,
            "start": self.start,
            "end": self.end,
        }


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The instant that a rollback ends."""

    instant: Instant
    reason: str
    partitions: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a clean decides."""

    horizon: int
    """The oldest version that can be read from now on."""
    condemned: tuple[tuple[str, int], ...] = ()
    """Files that no readable version needs, each with the version that ended it."""
    deleted: tuple[str, ...] = ()
    """Files condemned earlier that are gone by now."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """A place that an instant keeps for itself after it lost too often; manners, not safety."""

    holder: Instant
    scope: Scope = field(default_factory=Scope)
    buckets: tuple[BucketId, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What the rows of a commit rest on, where that is not simply its base."""

    version: int
    """Same keys written after this version by others are conflicts."""
    reads: tuple[dict[str, object] | None, ...] = ()
    """Predicates that were read at that version, as JSON values; None: everything was."""

    @property
    def explicit(self) -> bool:
        """Whether the caller named it: then nothing can be run again on its behalf."""
        return bool(self.reads)


@dataclass(frozen=True, slots=True)
class Decision:
    """One entry of the timeline."""

    version: int
    instant: Instant
    outcome: Outcome
    action: Action
    operation: Operation
    base: int
    """The version that the work was validated from; everything after it was in the window."""
    completed_ms: int
    attempt: str
    """Unique to one publish call: tells whether the bytes in the slot are ours."""
    previous: str
    """Checksum of the decision before; "" at version 0."""
    changes: Changes = field(default_factory=Changes)
    scope: Scope = field(default_factory=Scope)
    read_set: ReadSet | None = None
    schema_id: int = 0
    bucket_spec_id: int = 0
    commit_id: str | None = None
    tokens: tuple[Token, ...] = ()
    fence: int | None = None
    rolled_back: RolledBack | None = None
    cleaned: Cleaned | None = None
    reserved: Reserved | None = None
    table: dict[str, object] | None = None
    """Table-level parts that this decision sets: schema, bucket_spec, contract, properties, ..."""
    stats: WriteStats = field(default_factory=WriteStats)
    client: dict[str, object] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    checksum: str = ""
    """Of the bytes as published; filled in by the codec."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a writer gets back."""

    version: int
    instant: Instant
    stats: WriteStats
    attempts: int = 1
    rebased: int = 0
    """Buckets whose work was done again because others committed meanwhile."""

    def to_dict(self) -> dict[str, object]:
        """Give it as plain values."""
        return {
            "version": self.version,
            "instant": str(self.instant),
            "stats": self.stats.to_dict(),
            "attempts": self.attempts,
            "rebased": self.rebased,
        }
