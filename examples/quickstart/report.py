"""What a run has shown, for people and for programs."""

from __future__ import annotations

from pathlib import Path

from examples.quickstart.roles import DOOMED, ROLES
from examples.quickstart.run import Outcome
from plait.cli.flow import TimeSpan, axis, bar, lay_out, times
from plait.cli.view import Block, Grid, Prose, duration

_NEXT = """\
The table is {table}. Read it next:

    from plait import Table
    flights = Table.open("{table}")
    flights.scan(["carrier", "arr_delay"], where="origin = 'JFK'").to_arrow()

    from plait.spark import session
    spark = session()
    spark.read.format("plait").load("{table}").groupBy("origin").count().show()

    tablectl timeline {table}
"""


def summary(outcome: Outcome) -> str:
    """Return the line that everything comes down to."""
    comparison = outcome.comparison
    return (
        f"{comparison.correct:,} rows correct, {outcome.processes} processes, "
        f"1 killed, {comparison.lost} lost"
    )


def blocks(outcome: Outcome, table: Path) -> tuple[Block, ...]:
    """Lay a run out for a person."""
    spans = lay_out(outcome.timeline)
    checked = ", ".join(f"{name} {count:,}" for name, count in outcome.checked.items())
    lines = [
        f"{outcome.pending_at_go} instants were pending together before any was published.",
        *_told(spans, outcome),
        "Every value of every row was compared with the source.",
        f"verify: {len(outcome.problems)} problems ({checked}).",
        f"Took {duration(int(outcome.seconds * 1000))}.",
    ]
    return (
        _timeline(spans, outcome),
        Prose("\n".join(lines)),
        Prose(summary(outcome)),
        Prose(_NEXT.format(table=table)),
    )


def _names(outcome: Outcome) -> dict[str, str]:
    return {nonce_of(instant): name for name, instant in outcome.instants.items()}


def nonce_of(instant: str) -> str:
    """Return the mark of an instant, which stays when its time has to move."""
    return instant.rsplit("-", 1)[-1]


def _timeline(spans: tuple[TimeSpan, ...], outcome: Outcome) -> Grid:
    names = _names(outcome)
    low, high = axis(spans[1:])
    rows = [
        [
            span.version,
            names.get(nonce_of(span.instant), span.operation),
            span.pid,
            f"{span.began} -> {span.version}",
            duration(span.duration_ms),
            bar(span.started_ms, span.completed_ms, low, high),
            _together(span, spans, names),
            _note(span, names, outcome),
        ]
        for span in spans[1:]
    ]
    columns = (">version", "process", ">pid", "base", ">took", "when", "overlapped", "note")
    return Grid(columns, rows)


def _together(span: TimeSpan, spans: tuple[TimeSpan, ...], names: dict[str, str]) -> list[str]:
    """Name the processes that were at work at the same time; said by versions, not by clocks."""
    others = [other for other in spans if other is not span and meet(span, other)]
    return [names[nonce_of(o.instant)] for o in others if nonce_of(o.instant) in names]


def _note(span: TimeSpan, names: dict[str, str], outcome: Outcome) -> str:
    if span.ended:
        return f"rolled back {', '.join(names.get(e.nonce, str(e)) for e in span.ended)}"
    redone = outcome.redone.get(names.get(nonce_of(span.instant), ""), 0)
    return f"conflict: redone {times(redone)}" if redone else ""


def _told(spans: tuple[TimeSpan, ...], outcome: Outcome) -> list[str]:
    names = _names(outcome)
    told = [
        f"{name} met a conflict and was redone {times(count)} from a newer version."
        for name, count in sorted(outcome.redone.items())
    ]
    return told + [
        f"{names[ended.nonce]} was killed after its first staged file; process "
        f"{span.pid} rolled it back in version {span.version}: nothing of it was seen."
        for span in spans
        for ended in span.ended
        if ended.nonce in names
    ]


def data(outcome: Outcome, table: Path) -> dict[str, object]:
    """Return a run as plain values."""
    comparison = outcome.comparison
    return {
        "summary": summary(outcome),
        "table": str(table),
        "rows": comparison.expected,
        "correct": comparison.correct,
        "lost": comparison.lost,
        "surplus": comparison.surplus,
        "processes": outcome.processes,
        "killed": 1,
        "pending_together": outcome.pending_at_go,
        "redone": dict(outcome.redone),
        "instants": {role.name: outcome.instants[role.name] for role in ROLES},
        "rolled_back": outcome.instants[DOOMED.name],
        "problems": [list(problem) for problem in outcome.problems],
        "checked": dict(outcome.checked),
        "seconds": round(outcome.seconds, 1),
        "timeline": [
            {**entry.to_dict(), **span.to_dict()}
            for entry, span in zip(outcome.timeline.decided, lay_out(outcome.timeline), strict=True)
        ],
    }


def meet(one: TimeSpan, other: TimeSpan) -> bool:
    """Tell whether each began before the other was published."""
    return one.began < other.version and other.began < one.version
