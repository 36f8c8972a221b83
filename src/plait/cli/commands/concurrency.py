"""The commands about concurrency: writers, readers, conflict, locks."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import bare_command, command, table_options
from plait.cli.commands.timeline import pending_grid
from plait.cli.flow import who
from plait.cli.opening import open_table
from plait.cli.view import Facts, Grid, duration, time_short


@bare_command(
    "conflict",
    "conflict explain ./flights 20260101000000000-0123456789abcdef",
    "conflict explain ./flights 20260101000000000-0123456789abcdef --json",
)
@click.argument("action", type=click.Choice(["explain"]))
@click.argument("uri")
@click.argument("instant")
@table_options
@click.pass_obj
def conflict(
    app: Application, action: str, uri: str, instant: str, storage: dict[str, str]
) -> None:
    """Show which commits an instant conflicted with, and the outcome.

    For each commit that was first: its version and instant, the buckets, some of the keys that
    both wrote, the verdict, and how much was redone.
    """
    del action  # there is one
    found = open_table(app, uri, storage).inspect.explain(instant)
    facts = Facts(
        (
            ("instant", str(found.instant)),
            ("outcome", f"{found.outcome} in version {found.version}"),
            ("reason", found.reason or None),
            ("attempts", found.attempts),
            ("rounds of work redone", found.redone),
            ("buckets redone", found.rebased),
        )
    )
    rows = [
        [
            each.version,
            each.operation,
            each.winner,
            each.verdict,
            ", ".join(each.buckets) + (" ..." if each.bucket_count > len(each.buckets) else ""),
            ", ".join(str(tuple(key.values())) for key in each.keys),
            each.reason,
        ]
        for each in found.meetings
    ]
    columns = (">first was", "operation", "winner", "verdict", "buckets", "keys", "reason")
    items = [meeting.to_dict() for meeting in found.meetings]
    app.show(found.to_dict(), facts, Grid(columns, rows), items=list(items))


@command("locks", "locks ./flights", "locks s3://lake/flights --json")
def locks(app: Application, uri: str, storage: dict[str, str]) -> None:
    """Show who holds the lock of a table, and since when.

    Writers queue for the lock only after they lost a version to another writer, so usually nobody
    holds it. Losing a lock costs time, never rows, because slots decide versions.
    """
    state = open_table(app, uri, storage).inspect.locks()
    holder = state.holder
    pairs: list[tuple[str, object]] = [
        ("lock", state.lock),
        ("provider", state.provider),
        ("versions decided by", state.slots),
        ("held by", "nobody" if holder is None else holder.owner),
    ]
    if holder is not None:
        pairs += [("since (UTC)", time_short(holder.since_ms)), ("token", holder.token)]
        pairs.append(("lost", holder.lost or "no"))
    app.show(state.to_dict(), Facts(tuple(pairs)))


@command("writers", "writers ./flights", "writers ./flights --jsonl")
def writers(app: Application, uri: str, storage: dict[str, str]) -> None:
    """List the writers that are at work, and those that died.

    A writer is alive if it gave a sign within its time-out. A dead one is rolled back by a later
    commit or clean, or at once by `tablectl rollback --failed`. "keeps" counts the condemned files
    that a clean does not delete because of a writer.
    """
    entries = open_table(app, uri, storage).inspect.writers()
    items = [entry.to_dict() for entry in entries]
    app.show({"writers": items}, pending_grid(entries), items=list(items))


@command("readers", "readers ./flights", "readers ./flights --jsonl")
def readers(app: Application, uri: str, storage: dict[str, str]) -> None:
    """List the readers that keep old versions from being cleaned.

    A clean keeps every file of the version that a reader pinned, and of later ones, until the
    reader ends or has been silent for ten minutes. "keeps" counts the condemned files among them.
    """
    entries = open_table(app, uri, storage).inspect.readers()
    rows = [
        [
            entry.version,
            who(None, entry.host, entry.pid),
            None if entry.renewed_ms is None else time_short(entry.renewed_ms),
            duration(entry.silent_ms),
            "alive" if entry.alive else "dead?",
            entry.keeps,
        ]
        for entry in entries
    ]
    items = [entry.to_dict() for entry in entries]
    grid = Grid((">from version", "who", "renewed (UTC)", ">silent", "life", ">keeps"), rows)
    app.show({"readers": items}, grid, items=list(items))
