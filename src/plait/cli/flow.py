"""Who overlapped whom: a timeline laid out for people. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from plait.model.history import HistoryEntry, TimelineView
from plait.model.instant import Instant
from plait.model.plain import Plain

BAR_WIDTH = 24


@dataclass(frozen=True, slots=True)
class TimeSpan(Plain):
    """One decided instant on the time axis."""

    KEYS = "started=started_ms duration_ms attempts redone overlapped"

    version: int
    instant: str
    operation: str
    who: str
    pid: object
    began: int
    """The newest version when it began."""
    started_ms: int
    completed_ms: int
    attempts: int
    redone: int
    """How often buckets were done again because another had touched them first."""
    overlapped: tuple[int, ...]
    """Versions of others that were published after it began and before it was."""
    ended: tuple[Instant, ...]
    """Every instant that it rolled back."""

    @property
    def duration_ms(self) -> int:
        """Return the time from its begin to its decision."""
        return max(0, self.completed_ms - self.started_ms)

    @property
    def note(self) -> str:
        """What is special about it."""
        if self.ended:
            return f"rolled back {some(self.ended)}"
        if self.redone:
            return f"conflict: redone {times(self.redone)}"
        return f"slot won at attempt {self.attempts}" if self.attempts > 1 else ""


def lay_out(timeline: TimelineView) -> tuple[TimeSpan, ...]:
    """Lay the decisions out, oldest first."""
    return tuple(_span(entry, timeline) for entry in timeline.decided)


def _span(entry: HistoryEntry, timeline: TimelineView) -> TimeSpan:
    client = entry.client
    return TimeSpan(
        version=entry.version,
        instant=str(entry.instant),
        operation=entry.operation,
        who=who(client.get("application"), client.get("host"), client.get("pid")),
        pid=client.get("pid"),
        began=entry.began,
        started_ms=entry.instant.time_ms,
        completed_ms=entry.completed_ms,
        attempts=_count(client.get("attempts"), 1),
        redone=_count(client.get("redone"), 0),
        overlapped=tuple(other.version for other in timeline.overlapping(entry)),
        ended=entry.ended,
    )


def _count(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def who(application: object, host: object, pid: object) -> str:
    """Name a writer.

    >>> who(None, "node-1", 4711)
    'node-1/4711'
    """
    place = "/".join(str(part) for part in (host, pid) if part not in (None, "", 0))
    return f"{application} ({place})" if application else place or "-"


def some(instants: tuple[Instant, ...]) -> str:
    """Name the first of some instants, and how many more there are; "" for none.

    >>> first = Instant.parse("20260102030405006-0123456789abcdef")
    >>> some((first,)), some((first, first, first))[-10:]
    ('20260102030405006-0123456789abcdef', 'and 2 more')
    """
    if not instants:
        return ""
    first, *others = instants
    return f"{first} and {len(others)} more" if others else str(first)


def times(count: int) -> str:
    """Write how often.

    >>> times(1), times(3)
    ('once', '3 times')
    """
    return "once" if count == 1 else f"{count} times"


def bar(start: int, end: int, low: int, high: int) -> str:
    """Draw a span on an axis from ``low`` to ``high``.

    >>> bar(0, 50, 0, 100)
    '============............'
    """
    width = max(1, high - low)
    left = min(BAR_WIDTH - 1, (start - low) * BAR_WIDTH // width)
    right = max(left + 1, min(BAR_WIDTH, (end - low) * BAR_WIDTH // width))
    return "." * left + "=" * (right - left) + "." * (BAR_WIDTH - right)


def axis(spans: tuple[TimeSpan, ...]) -> tuple[int, int]:
    """Return the first begin and the last end."""
    starts = [span.started_ms for span in spans] or [0]
    return min(starts), max((span.completed_ms for span in spans), default=1)
