"""Recovery: what dead writers left is ended by a decision, then removed.

Every commit looks for the dead when that is due; `tablectl rollback` and a clean always do.

Idempotent, resumable, safe to run twice at once and to be killed half way: until the records of
an instant are gone, the next run does the same again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from plait.errors import (
    ClockUnavailableError,
    IllegalTransitionError,
    InstantNotFoundError,
    TableError,
)
from plait.model.history import PendingEntry
from plait.model.instant import Instant, Outcome
from plait.model.plain import Plain
from plait.state.state import TableState
from plait.timeline.pending import PendingInstant, load_pending
from plait.txn.liveness import is_alive, silence_ms
from plait.txn.liveness_cache import renew_signs
from plait.txn.rollback import end_instants, find_outcome, find_outcomes
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RolledBackInstant(Plain):
    """One instant that recovery ended."""

    instant: Instant
    outcome: str
    """``rolled_back``, or ``committed`` if it had committed and not finished."""
    files_deleted: int


@dataclass(frozen=True, slots=True)
class RollbackReport(Plain):
    """The result of a rollback."""

    ended: tuple[RolledBackInstant, ...]
    spared: tuple[Instant, ...]
    """Pending instants that are alive."""


def list_pending(handle: TableHandle) -> tuple[PendingEntry, ...]:
    """List what is pending, and whether it seems alive by the store's clock.

    Raises:
        ClockUnavailableError: the store reports no time, so live and dead are unknown.
    """
    now = handle.store.now_ms()
    default = handle.cache.known().table.options.seconds("heartbeat.timeout")
    return tuple(_entry(handle, pending, now, default) for pending in load_pending(handle.store))


def show_pending(handle: TableHandle) -> tuple[PendingEntry, ...]:
    """List what is pending for people; who is dead is left open if nobody can tell."""
    try:
        return list_pending(handle)
    except ClockUnavailableError:
        return tuple(_entry(handle, pending, None, 0) for pending in load_pending(handle.store))


def _entry(
    handle: TableHandle, pending: PendingInstant, now_ms: int | None, default_s: float
) -> PendingEntry:
    return PendingEntry(
        instant=pending.instant,
        state=pending.state.value,
        operation=None if pending.operation is None else pending.operation.value,
        v0=pending.v0,
        partitions=pending.partitions,
        host=pending.host,
        pid=pending.pid,
        started_ms=pending.started_ms,
        silent_ms=silence_ms(pending, now_ms),
        alive=is_alive(handle, pending, now_ms, default_s),
        features=pending.features,
    )


def roll_back(handle: TableHandle, instant: Instant, *, reason: str) -> RollbackReport:
    """Roll back one instant, alive or not.

    Raises:
        InstantNotFoundError: it has no records and no decision.
        IllegalTransitionError: it is committed.
    """
    pending = next((p for p in load_pending(handle.store) if p.instant == instant), None)
    if pending is None:
        outcome = find_outcome(handle, handle.cache.refresh(), instant, -1)
        if outcome is Outcome.COMMITTED:
            raise _committed(instant)
        if outcome is None:
            message = f"there is no instant {instant}"
            hint = "`tablectl timeline` lists them"
            raise InstantNotFoundError(message, hint=hint, instant=str(instant))
        return RollbackReport((RolledBackInstant(instant, outcome.value, 0),), ())
    ended = _end_pending(handle, [pending], reason)[0]
    if ended.outcome == Outcome.COMMITTED.value:
        raise _committed(instant)
    return RollbackReport((ended,), ())


def abandon(handle: TableHandle, instant: Instant, reason: str) -> None:
    """Roll back an instant of one's own, under which other processes may still work.

    That is allowed whatever the contract is by now. What cannot be done is left to recovery: no
    error is raised, also not where the instant was decided already.
    """
    try:
        roll_back(handle.under_any_contract(), instant, reason=reason)
    except (InstantNotFoundError, IllegalTransitionError):
        return
    except TableError:
        _log.warning("instant %s is left for recovery", instant, exc_info=True)


def _committed(instant: Instant) -> IllegalTransitionError:
    message = f"instant {instant} is committed"
    hint = "a rollback cannot undo a committed instant"
    return IllegalTransitionError(message, hint=hint, instant=str(instant), state="committed")


def roll_back_failed(
    handle: TableHandle, *, reason: str, everything: bool = False
) -> RollbackReport:
    """Roll back every instant that is dead (``everything``: alive or not).

    Death is judged by the store's clock: records and heartbeat unchanged for the writer's own
    time-out. Or it is proved: the process has ended on this machine. Being wrong costs that writer
    its work, never the table its rows (INV-03).
    """
    pending = load_pending(handle.store)
    # A record that was stamped by a clock ahead of the store's would seem alive until that time.
    for each in pending:
        signs = (*each.records, *filter(None, [each.heartbeat]))
        renew_signs(handle.store, ((path, each.touched_ms) for path in signs))
    doubtful = [] if everything else _living(handle, pending)
    # An instant that seems alive may be decided already: its writer died after its decision and
    # before it removed the records. Such records are removed, and nothing is rolled back.
    decided: dict[Instant, Outcome] = {}
    if doubtful:
        since = min(each.v0 for each in doubtful)
        wanted = [each.instant for each in doubtful]
        decided = find_outcomes(handle, handle.cache.known(), wanted, since)
    spared = [each.instant for each in doubtful if each.instant not in decided]
    ended = _end_pending(
        handle, [each for each in pending if each.instant not in set(spared)], reason
    )
    if not ended:
        handle.require_same_table()  # else there was nothing to look at
    return RollbackReport(tuple(ended), tuple(spared))


def _living(handle: TableHandle, pending: list[PendingInstant]) -> list[PendingInstant]:
    now = handle.store.now_ms()
    default = handle.cache.known().table.options.seconds("heartbeat.timeout")
    return [each for each in pending if is_alive(handle, each, now, default)]


def _end_pending(
    handle: TableHandle, pending: list[PendingInstant], reason: str
) -> list[RolledBackInstant]:
    return [
        RolledBackInstant(each.instant, each.outcome.value, len(each.deleted))
        for each in end_instants(handle, pending, reason)
    ]


def maintain(handle: TableHandle) -> None:
    """Write a checkpoint when one is due, and look for the dead when that is due.

    It is with a checkpoint, with the first commit of each ``recovery.interval``, and after a
    commit that had to pass over a silent writer. All but the last is read off the timeline, so it
    costs other commits nothing, and clients that live for one commit take their turn too.
    """
    try:
        state = handle.cache.known()
        due = _first_of_its_time(state)
        if handle.heartbeat_cache.silence_seen:
            every_s = state.table.options.seconds("heartbeat.timeout")
            due |= handle.heartbeat_cache.take_silence_seen(handle.ports.clock, every_s=every_s)
        due |= handle.cache.checkpoint(state.table.options.count("checkpoint.interval"))
        if due:
            roll_back_failed(handle, reason="found dead by another writer")
    except Exception:  # noqa: BLE001 - the commit stands, whatever this meets
        _log.warning("maintenance after a commit failed; the next one does it", exc_info=True)


def _first_of_its_time(state: TableState) -> bool:
    """Tell whether the newest decision is the first one in a while, or nobody can tell."""
    span_ms = int(state.table.options.seconds("recovery.interval") * 1000)
    return state.before_ms < 0 or state.completed_ms // span_ms != state.before_ms // span_ms
