"""Who is dead: judged by the store's clock, or by proof that its process has ended."""

from __future__ import annotations

from plait.timeline.pending import PendingInstant
from plait.txn.process import has_ended
from plait.txn.signs_of_life import Silence
from plait.txn.table_handle import TableHandle

_BEATS = 2
"""The living beat within so many intervals, counted from when their machine is awake again."""


def is_alive(
    handle: TableHandle, pending: PendingInstant, now_ms: int | None, default_s: float
) -> bool:
    """Tell whether an instant may still be at work.

    A silence that a sleep of this machine may explain counts only when it goes on.

    Args:
        handle: the table, and what this client saw of it before.
        pending: its records and its heartbeat.
        now_ms: the time by the store's clock; None if nobody can tell: then the proof alone counts.
        default_s: the time-out of instants whose record does not tell theirs.
    """
    if has_ended(pending.process):
        return False
    silent, limit_ms = silence_ms(pending, now_ms), (pending.timeout_s or default_s) * 1000
    if silent is None or pending.touched_ms is None or silent <= limit_ms:
        return True
    fresh_s = _BEATS * handle.cache.known().table.options.seconds("heartbeat.interval")
    silence = Silence(pending.touched_ms, silent, limit_ms, fresh_s)
    return handle.doubts.spares(handle.ports.clock, str(pending.instant), silence)


def silence_ms(pending: PendingInstant, now_ms: int | None) -> int | None:
    """Return how long it gave no sign; None if the store cannot tell."""
    if now_ms is None or pending.touched_ms is None:
        return None
    return max(0, now_ms - pending.touched_ms)
