"""The rows of history, timeline and locks, as frozen values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from plait.model.bucket import Partition
from plait.model.instant import Instant


def iso(ms: int) -> str:
    """Write ms since the epoch as ISO-8601, UTC.

    >>> iso(0)
    '1970-01-01T00:00:00.000Z'
    """
    moment = dt.datetime.fromtimestamp(ms / 1000, tz=dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One decision."""

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

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "version": self.version,
            "instant": str(self.instant),
            "action": self.action,
            "operation": self.operation,
            "completed": iso(self.completed_ms),
            "base": self.base,
            "began": self.began,
            "commit_id": self.commit_id,
            "ended": [str(instant) for instant in self.ended],
            "stats": self.stats,
            "client": self.client,
            "undone_by": self.undone_by,
        }


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """An undecided instant, or a decided one whose records still exist."""

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

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "instant": str(self.instant),
            "state": self.state,
            "operation": self.operation,
            "v0": self.v0,
            "partitions": [list(p) for p in self.partitions],
            "host": self.host,
            "pid": self.pid,
            "started": iso(self.started_ms),
            "silent_ms": self.silent_ms,
            "alive": self.alive,
            "keeps": self.keeps,
        }


@dataclass(frozen=True, slots=True)
class ReaderEntry:
    """A reader that keeps the files of a version, and of those after it, from being deleted."""

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

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "version": self.version,
            "host": self.host,
            "pid": self.pid,
            "renewed": None if self.renewed_ms is None else iso(self.renewed_ms),
            "silent_ms": self.silent_ms,
            "alive": self.alive,
            "keeps": self.keeps,
        }


@dataclass(frozen=True, slots=True)
class TimelineView:
    """Every decision, oldest first, and the pending instants."""

    decided: tuple[HistoryEntry, ...]
    pending: tuple[PendingEntry, ...]

    def overlapping(self, entry: HistoryEntry) -> tuple[HistoryEntry, ...]:
        """Return the decisions that were published while this one was in progress."""
        low, high = entry.began, entry.version
        return tuple(other for other in self.decided if low < other.version < high)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "decided": [entry.to_dict() for entry in self.decided],
            "pending": [entry.to_dict() for entry in self.pending],
        }


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds a lock."""

    owner: str
    since_ms: int | None
    """When it was granted, by the service's clock or else by the holder's."""
    token: int | None
    lost: str | None
    """Why the holder may have lost it; None if there is no sign of that."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "owner": self.owner,
            "since": None if self.since_ms is None else iso(self.since_ms),
            "token": self.token,
            "lost": self.lost,
        }


@dataclass(frozen=True, slots=True)
class LockState:
    """The lock in the contract of a table, and its present holder."""

    lock: str
    provider: str
    slots: str
    """Who decides versions: ``store``, or ``lent`` by the lock's service."""
    holder: LockHolder | None

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "lock": self.lock,
            "provider": self.provider,
            "slots": self.slots,
            "holder": None if self.holder is None else self.holder.to_dict(),
        }
