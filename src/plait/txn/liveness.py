"""Decide which writers are dead: by the store's clock, or by proof that a process has ended.

A heartbeat can only be late. The end of a process is certain where it can be proved: its record was
written in this boot of this machine, in these namespaces of process ids and of time, and the
process of that id and start time is gone. Whatever cannot be proved counts as alive.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from plait.timeline.pending import PendingInstant
from plait.txn.liveness_cache import Silence
from plait.txn.table_handle import TableHandle

_BEATS = 2
"""Number of intervals in which a living writer beats once its machine is awake again."""


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
    # Proof comes first: it needs no clock, so a killed writer on this machine is ended at once.
    if has_ended(pending.process):
        return False
    silent, limit_ms = silence_ms(pending, now_ms), (pending.timeout_s or default_s) * 1000
    if silent is None or pending.touched_ms is None or silent <= limit_ms:
        return True
    fresh_s = _BEATS * handle.cache.known().table.options.seconds("heartbeat.interval")
    silence = Silence(pending.touched_ms, silent, limit_ms, fresh_s)
    return handle.sleep_guard.is_inconclusive(handle.ports.clock, str(pending.instant), silence)


def silence_ms(pending: PendingInstant, now_ms: int | None) -> int | None:
    """Return how long it gave no sign; None if the store cannot tell."""
    if now_ms is None or pending.touched_ms is None:
        return None
    return max(0, now_ms - pending.touched_ms)


_PROC = Path("/proc")
_BOOT = _PROC / "sys/kernel/random/boot_id"
_ENDED = ("Z", "X", "x")
"""States of a thread that will never run again: zombie and dead."""
_STATE, _START = 0, 19
"""Positions of state and start time in a stat line, counted after the program's name."""


def process_mark() -> str:
    """Return a text that no other process of this machine ever has; "" if there is none."""
    fields = _stat(_PROC / "self/stat")
    place = _place(os.getpid())
    return f"{place}/{os.getpid()}/{fields[_START]}" if place and fields else ""


def has_ended(mark: str) -> bool:
    """Tell whether the process of a mark is provably over.

    >>> has_ended(process_mark()), has_ended("another machine/1/1"), has_ended("")
    (False, False, False)
    """
    place, _, rest = mark.rpartition("/")
    place, _, number = place.rpartition("/")
    if not place or place != _place(os.getpid()) or not (number.isascii() and number.isdigit()):
        return False
    pid = int(number)
    try:
        os.kill(pid, 0)  # asks whether it exists, and sends nothing
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    # The id exists, but another process may have it now; only the start time tells. If that cannot
    # be read, the writer counts as alive: ending a living writer costs all of its work.
    fields = _stat(_PROC / number / "stat")
    if not fields:
        return False
    return fields[_START] != rest or _all_ended(_PROC / number / "task")


def _all_ended(tasks: Path) -> bool:
    """Tell whether every thread has ended: a killed process stays until its parent reaps it."""
    found = False
    try:
        for task in tasks.iterdir():  # one that lives is enough: a process may have hundreds
            fields = _stat(task / "stat")
            if not fields or fields[_STATE] not in _ENDED:
                return False
            found = True
    except OSError:
        return False
    return found


def _stat(path: Path) -> list[str]:
    """Read a stat line after the name, which may hold anything; [] if it cannot be read."""
    try:
        fields = path.read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return []
    return fields if len(fields) > _START else []


@functools.lru_cache(maxsize=1)
def _place(pid: int) -> str:
    """Name the boot and the namespaces in which ids and start times mean something; "" if unknown.

    Args:
        pid: of this process: a forked child may be in other namespaces than its parent. Where
            ``/proc`` shows those of another container, it names this process otherwise.
    """
    try:
        boot = _BOOT.read_text("ascii", "replace").strip()
        ids = (_PROC / "self/ns/pid").readlink()
        same = (_PROC / "self").readlink().name == str(pid)
    except OSError:
        return ""
    return f"{boot}/{ids}/{_time_namespace()}" if same else ""


def _time_namespace() -> str:
    try:
        return str((_PROC / "self/ns/time").readlink())
    except OSError:  # kernels before 5.6 have one for all
        return "time"
