"""The rows of history, timeline and locks, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from plait.model.bucket import Partition
from plait.model.instant import Instant
from plait.model.plain import Plain


@dataclass(frozen=True, slots=True)
class HistoryEntry(Plain):
    """One decision."""

    KEYS = (
        "version instant action operation completed=completed_ms base began commit_id ended stats "
        "client undone_by"
    )

    version: int
    instant: Instant
    action: str
    operation: str
    completed_ms: int
    base: int
    """The version from which it was validated, after any rebase."""
    commit_id: str | None
    ended: tuple[Instant, ...]
    """Every instant that it rolled back."""
    stats: dict[str, int]
    client: dict[str, object]
    undone_by: int | None = None
    """The restore that undid it, so that the table does not contain it; None if none did."""

    @property
    def began(self) -> int:
        """The version from which its work began; less than ``base`` after a rebase."""
        began = self.client.get("began", self.base)
        return began if isinstance(began, int) else self.base


@dataclass(frozen=True, slots=True)
class PendingEntry(Plain):
    """An undecided instant, or a decided one whose records still exist."""

    KEYS = "instant state operation v0 partitions host pid started=started_ms silent_ms alive keeps"

    instant: Instant
    state: str
    operation: str | None
    v0: int
    partitions: tuple[Partition, ...]
    host: str
    pid: int
    started_ms: int
    silent_ms: int | None
    """How long its records and heartbeat have not changed, by the store's clock."""
    alive: bool
    """Silent for less than its time-out. Only a rollback decision ends an instant."""
    keeps: int | None = None
    """How many condemned files it keeps from being deleted; None if nobody counted."""
    features: tuple[str, ...] = ()
    """The features of the format that its client knows; () if it does not say."""


@dataclass(frozen=True, slots=True)
class ReaderEntry(Plain):
    """A reader that keeps the files of a version, and of those after it, from being deleted."""

    KEYS = "version host pid renewed=renewed_ms silent_ms alive keeps"

    version: int
    """The oldest version that it may read; 0 where its pin cannot be read."""
    host: str
    """"" where its pin cannot be read."""
    pid: int
    renewed_ms: int | None
    """When it last said that it goes on, by the store's clock; None if the store cannot tell."""
    silent_ms: int | None
    """Milliseconds since its last sign of life."""
    alive: bool
    """Whether a clean still respects it."""
    keeps: int | None = None
    """How many condemned files it keeps from being deleted; None if nobody counted."""


@dataclass(frozen=True, slots=True)
class TimelineView(Plain):
    """Every decision, oldest first, and the pending instants."""

    decided: tuple[HistoryEntry, ...]
    pending: tuple[PendingEntry, ...]

    def overlapping(self, entry: HistoryEntry) -> tuple[HistoryEntry, ...]:
        """Return the decisions that were published while this one was in progress."""
        low, high = entry.began, entry.version
        return tuple(other for other in self.decided if low < other.version < high)


@dataclass(frozen=True, slots=True)
class LockHolder(Plain):
    """Who holds a lock."""

    KEYS = "owner since=since_ms token lost"

    owner: str
    since_ms: int | None
    """When it was granted, by the service's clock or else by the holder's."""
    token: int | None
    lost: str | None
    """Why the holder may have lost it; None if there is no sign of that."""


@dataclass(frozen=True, slots=True)
class LockState(Plain):
    """The lock in the contract of a table, and its present holder."""

    lock: str
    provider: str
    slots: str
    """Who decides versions: ``store``, or ``lent`` by the lock's service."""
    holder: LockHolder | None
