"""What happened to a table: history, timeline."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import command
from plait.cli.flow import TimeSpan, axis, bar, lay_out, some, who
from plait.cli.opening import open_table
from plait.cli.view import Grid, duration, number, time_short
from plait.model.history import HistoryEntry, PendingEntry

_SHOWN = 20

_limit = click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_SHOWN,
    show_default=True,
    help="How many of the newest to show; 0 for all.",
)


@command("history", "history ./flights", "history ./flights --limit 0 --jsonl")
@_limit
def history(app: Application, uri: str, storage: dict[str, str], limit: int) -> None:
    """List decisions, newest first."""
    entries = open_table(app, uri, storage).inspect.history(limit or None)
    items = [entry.to_dict() for entry in entries]
    more = bool(entries) and entries[-1].version > 0
    columns = (
        ">version", "completed (UTC)", "operation", ">inserted", ">updated", ">deleted",
        ">files", "who", "commit id",
    )  # fmt: skip
    grid = Grid(columns, [_row(entry) for entry in entries], (">files", "who", "commit id"))
    app.show({"entries": items, "more": more}, grid, items=list(items))
    if more:
        app.note(f"showing the newest {len(entries)}; --limit 0 shows all")


def _row(entry: HistoryEntry) -> list[object]:
    stats, client = entry.stats, entry.client
    operation = entry.operation + (f" of {some(entry.ended)}" if entry.ended else "")
    return [
        entry.version,
        time_short(entry.completed_ms),
        operation,
        number(stats.get("rows_inserted")),
        number(stats.get("rows_updated")),
        number(stats.get("rows_deleted")),
        number(stats.get("files_added")),
        who(client.get("application"), client.get("host"), client.get("pid")),
        entry.commit_id,
    ]


@command("timeline", "timeline ./flights", "timeline ./flights --limit 0 --json")
@_limit
def timeline(app: Application, uri: str, storage: dict[str, str], limit: int) -> None:
    """Show who wrote when, and which writers overlapped.

    "overlapped" lists the versions that others published while this writer was at work. Pending
    instants come last; `tablectl rollback --failed` rolls back dead ones.
    """
    whole = open_table(app, uri, storage).inspect.timeline()
    spans = lay_out(whole)[-limit:]
    decided = {entry.version: entry for entry in whole.decided}
    items = [{**decided[span.version].to_dict(), **span.to_dict()} for span in spans]
    pending = [entry.to_dict() for entry in whole.pending]
    blocks = [timeline_grid(spans)]
    if whole.pending:
        blocks.append(pending_grid(whole.pending))
    data = {"entries": items, "pending": pending, "more": len(spans) < len(whole.decided)}
    app.show(data, *blocks, items=[*items, *pending])


def timeline_grid(spans: tuple[TimeSpan, ...]) -> Grid:
    """Lay decided instants out as a table with a time axis."""
    low, high = axis(spans)
    rows = [
        [
            span.version,
            span.operation,
            span.who,
            f"{span.began} -> {span.version}",
            duration(span.duration_ms),
            bar(span.started_ms, span.completed_ms, low, high),
            span.overlapped,
            span.note,
        ]
        for span in spans
    ]
    columns = (">version", "operation", "who", "base", ">took", "when", "overlapped", "note")
    return Grid(columns, rows, (">took", "base", "note", "operation"))


def pending_grid(pending: tuple[PendingEntry, ...]) -> Grid:
    """List pending instants with their signs of life."""
    rows = [
        [
            str(entry.instant),
            entry.state,
            entry.operation,
            who(None, entry.host, entry.pid),
            entry.v0,
            time_short(entry.started_ms),
            duration(entry.silent_ms),
            "alive" if entry.alive else "dead?",
            entry.keeps,
        ]
        for entry in pending
    ]
    columns = ("pending", "state", "operation", "who", ">base", "started (UTC)", ">silent", "life")
    spare = (">keeps", ">base", "started (UTC)", "state", "operation")
    return Grid((*columns, ">keeps"), rows, spare)
