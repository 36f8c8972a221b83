"""Whether a process of a sink is healthy: its loop runs, and what it has read is committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plait.kafka.counts import Counts

SILENT_S: Final = 60.0
"""The loop of a healthy process has run within this time."""
_STALLED_MIN_S: Final = 120.0
"""Longer than it takes to find that a coordinator is dead and to begin another one."""
_ROUNDS: Final = 3


def stall_limit(interval_s: float, patience_s: float) -> float:
    """Return how long records may wait for a commit in a healthy sink, in seconds.

    A commit begins after the interval and waits for late processes as long as the patience.

    >>> stall_limit(60.0, 30.0), stall_limit(5.0, 30.0)
    (270.0, 120.0)
    """
    return max(_STALLED_MIN_S, _ROUNDS * (interval_s + patience_s))


@dataclass(frozen=True, slots=True)
class Health:
    """What monitors are told of a process."""

    silent_s: float
    """The time since the loop of the process last ran."""
    stalled_s: float
    """The longest time that one of its partitions has waited for a commit; 0 if none waits."""
    reason: str
    """Why the process is not healthy; empty if it is."""

    @classmethod
    def of(cls, counts: Counts, limit_s: float, now_s: float) -> Health:
        """Judge a process by its counts."""
        silent_s = now_s - counts.step_s
        since = {source: each.stalled_since for source, each in counts.held().items()}
        source, first = min(
            ((source, at) for source, at in since.items() if at is not None),
            key=lambda pair: pair[1],
            default=(None, now_s),
        )
        stalled_s, reason = now_s - first, ""
        if silent_s >= SILENT_S:
            reason = f"the loop of the process has not run for {silent_s:.0f} s"
        elif stalled_s >= limit_s:
            reason = f"{source} has waited for a commit for {stalled_s:.0f} s"
        return cls(round(silent_s, 3), round(stalled_s, 3), reason)
