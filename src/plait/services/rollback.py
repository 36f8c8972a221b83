"""Lazy rollback: what dead writers left is ended by a decision, then removed.

Idempotent, resumable, safe to run twice at once and to be killed half way: until the records of
an instant are gone, the next run does the same again.
"""

from __future__ import annotations

from dataclasses import dataclass

from plait.errors import IllegalTransitionError, InstantNotFoundError
from plait.model.history import PendingEntry
from plait.model.instant import Instant, Outcome
from plait.timeline.pending import PendingInstant, load_pending
from plait.txn.rollback import delete_files_of, find_outcome, publish_rollback
from plait.txn.site import Site


@dataclass(frozen=True, slots=True)
class RolledBackInstant:
    """One instant that was brought to its end."""

    instant: Instant
    outcome: str
    """``rolled_back``, or ``committed`` if it had committed and not finished."""
    files_deleted: int

    def to_dict(self) -> dict[str, object]:
        """Give it as plain values."""
        return {
            "instant": str(self.instant),
            "outcome": self.outcome,
            "files_deleted": self.files_deleted,
        }


@dataclass(frozen=True, slots=True)
class RollbackReport:
    """What a rollback did."""

    ended: tuple[RolledBackInstant, ...]
    spared: tuple[Instant, ...]
    """Pending instants that are alive."""

    def to_dict(self) -> dict[str, object]:
        """Give it as plain values."""
        return {
            "ended": [entry.to_dict() for entry in self.ended],
            "spared": [str(instant) for instant in self.spared],
        }


def list_pending(site: Site) -> tuple[PendingEntry, ...]:
    """List what is pending, and whether it seems alive by the store's clock."""
    now = site.store.now_ms()
    default = site.cache.known().table.options.seconds("heartbeat.timeout")
    return tuple(_entry(pending, now, default) for pending in load_pending(site.store))


def _entry(pending: PendingInstant, now_ms: int, default_s: float) -> PendingEntry:
    silent = None if pending.touched_ms is None else max(0, now_ms - pending.touched_ms)
    timeout_ms = (pending.timeout_s or default_s) * 1000
    return PendingEntry(
        instant=pending.instant,
        state=pending.state.value,
        operation=None if pending.operation is None else pending.operation.value,
        v0=pending.v0,
        partitions=pending.partitions,
        host=pending.host,
        pid=pending.pid,
        started_ms=pending.started_ms,
        silent_ms=silent,
        alive=silent is None or silent <= timeout_ms,
    )


def roll_back(site: Site, instant: Instant, *, reason: str) -> RollbackReport:
    """Roll back one instant, alive or not.

    Raises:
        InstantNotFoundError: it has no records and no decision.
        IllegalTransitionError: it is committed.
    """
    pending = next((p for p in load_pending(site.store) if p.instant == instant), None)
    if pending is None:
        outcome = find_outcome(site, site.cache.refresh(), instant, -1)
        if outcome is Outcome.COMMITTED:
            raise _committed(instant)
        if outcome is None:
            message = f"there is no instant {instant}"
            hint = "`tablectl timeline` lists them"
            raise InstantNotFoundError(message, hint=hint, instant=str(instant))
        return RollbackReport((RolledBackInstant(instant, outcome.value, 0),), ())
    ended = _end(site, pending, reason)
    if ended.outcome == Outcome.COMMITTED.value:
        raise _committed(instant)
    return RollbackReport((ended,), ())


def _committed(instant: Instant) -> IllegalTransitionError:
    message = f"instant {instant} is committed"
    hint = "a committed instant is undone by restore, not by rollback"
    return IllegalTransitionError(message, hint=hint, instant=str(instant), state="committed")


def roll_back_failed(site: Site, *, reason: str, everything: bool = False) -> RollbackReport:
    """Roll back every instant that is dead (``everything``: alive or not, for a single writer).

    Death is judged by the store's clock: records and heartbeat unchanged for the writer's own
    time-out. Being wrong costs that writer its work, never the table its rows (INV-03).
    """
    pending = {entry.instant: entry for entry in load_pending(site.store)}
    ended, spared = [], []
    for entry in list_pending(site):
        found = pending.get(entry.instant)
        if found is None:
            continue
        if entry.alive and not everything and not _decided(site, found):
            spared.append(entry.instant)
        else:
            ended.append(_end(site, found, reason))
    return RollbackReport(tuple(ended), tuple(spared))


def _decided(site: Site, pending: PendingInstant) -> bool:
    state = site.cache.known()
    return find_outcome(site, state, pending.instant, pending.v0) is not None


def _end(site: Site, pending: PendingInstant, reason: str) -> RolledBackInstant:
    instant, places = pending.instant, pending.partitions
    if not site.cache.known().table.spec.partition_by:
        places = tuple(dict.fromkeys(((), *places)))
    outcome = publish_rollback(site, instant, reason, places, since=pending.v0)
    deleted: list[str] = []
    if outcome is Outcome.ROLLED_BACK:
        site.ports.observer.phase("delete", instant=str(instant))
        deleted = delete_files_of(site, instant, places)
    doomed = list(pending.records)
    if pending.heartbeat is not None:
        doomed.append(pending.heartbeat)
    site.store.delete(doomed)
    return RolledBackInstant(instant, outcome.value, len(deleted))
