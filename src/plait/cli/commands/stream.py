"""How far streams are, proved from the timeline."""

from __future__ import annotations

from collections.abc import Sequence

import click

from plait.cli.application import Application
from plait.cli.command import bare_command, table_options
from plait.cli.exits import CheckFailedError, NotKnownError
from plait.cli.opening import open_table
from plait.cli.view import Block, Facts, Grid, number, time_short
from plait.model.stream import Audit
from plait.table import Table, handle_of

_SHOWN = 20


@bare_command(
    "stream",
    "stream audit ./orders orders-loader",
    "stream seek ./orders orders-sink --to orders/3=120@Qk0ZbWVTTkGv",
)
@click.argument("action", type=click.Choice(["audit", "seek"]))
@click.argument("uri")
@click.argument("application")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_SHOWN,
    show_default=True,
    help="How many of the newest epochs to show; 0 for all. All are checked.",
)
@click.option(
    "--to",
    "offsets",
    multiple=True,
    metavar="SOURCE=OFFSET",
    help="With seek: where a source is read next.",
)
@table_options
@click.pass_obj
def stream(  # noqa: PLR0913 - one parameter an option
    app: Application,
    action: str,
    uri: str,
    application: str,
    storage: dict[str, str],
    *,
    limit: int,
    offsets: tuple[str, ...],
) -> None:
    """Check that each epoch of a stream continues the previous one, or set where it continues.

    `audit` reads only the timeline. It lists the epochs with their offsets, versions, rows and
    digests. The exit code is 8 if offsets have a gap, or an epoch is repeated, rewound or missing.

    `seek` sets where sources are read next, by a decision without rows: what is passed over, or
    read again, stands in the timeline. Stop the writers of the stream first.
    """
    if (action == "seek") != bool(offsets):
        raise click.UsageError("seek needs --to, and audit does not take it")
    table = open_table(app, uri, storage)
    if offsets:
        _seek(app, table, application, offsets)
        return
    found = table.stream(application).audit()
    if not found.epochs:
        names = ", ".join(sorted(handle_of(table).cache.known().streams)) or "none"
        message = f"the table has no stream {application!r}"
        raise NotKnownError(message, hint=f"its streams: {names}")
    app.show(found.to_dict(), *_blocks(found, limit), items=[e.to_dict() for e in found.epochs])
    if found.problems:
        message = (
            f"stream {application!r}: {len(found.problems)} epochs do not continue the previous one"
        )
        raise CheckFailedError(message, hint="two writers may have used the same name")


def _seek(app: Application, table: Table, application: str, places: Sequence[str]) -> None:
    pairs = [text.partition("=") for text in places]
    if not all(source and offset for source, _, offset in pairs):
        raise click.UsageError("--to takes SOURCE=OFFSET")
    stream = table.stream(application)
    offsets = {source: offset for source, _, offset in pairs}
    result = stream.seek(offsets, after=stream.position)
    shown = {
        "application": application,
        "version": result.version,
        "offsets": {source: offset for source, _, offset in pairs},
    }
    grid = Grid(("source", "read next at"), [[source, offset] for source, _, offset in pairs])
    app.show(shown, Facts((("decided in version", result.version),)), grid)


def _blocks(found: Audit, limit: int) -> list[Block]:
    last = (found.contained or found.epochs)[-1]
    facts = Facts(
        (
            ("application", found.application),
            ("epochs", number(len(found.contained))),
            ("rows", number(found.rows)),
            ("ends at", last.end),
            ("contiguous", not found.problems),
            ("proven by offsets", f"{found.proven} of {len(found.contained)} epochs"),
        )
    )
    columns = (
        ">epoch",
        "from",
        "to",
        ">version",
        "completed (UTC)",
        ">rows",
        "digest",
        ">undone by",
    )
    rows: list[list[object]] = []
    for e in found.epochs[-limit:]:
        digest = "" if e.digest is None else f"{e.digest.hash:016x}"
        done = time_short(e.completed_ms)
        rows.append([e.epoch, e.start, e.end, e.version, done, number(e.rows), digest, e.undone_by])
    blocks: list[Block] = [facts, Grid(columns, rows)]
    sources = [
        [e.epoch, span.source, span.start, span.end]
        for e in found.epochs[-limit:]
        for span in e.offsets
        if span.source
    ]
    if sources:
        blocks.append(Grid((">epoch", "source", "from", "to"), sources))
    if found.problems:
        shown = [[p.kind, p.version, p.message] for p in found.problems]
        blocks.append(Grid(("problem", ">version", "what"), shown))
    return blocks
