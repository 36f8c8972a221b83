"""How far streams are, proved from the timeline."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import bare_command, table_options
from plait.cli.exits import CheckFailedError, NotKnownError
from plait.cli.opening import open_table
from plait.cli.view import Block, Facts, Grid, number, time_short
from plait.model.stream import Audit

_SHOWN = 20


@bare_command(
    "stream",
    "stream audit ./orders orders-loader",
    "stream audit ./orders orders-loader --limit 0 --jsonl",
)
@click.argument("action", type=click.Choice(["audit"]))
@click.argument("uri")
@click.argument("application")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_SHOWN,
    show_default=True,
    help="How many of the newest epochs to show; 0 for all. All are checked.",
)
@table_options
@click.pass_obj
def stream(
    app: Application,
    action: str,
    uri: str,
    application: str,
    *,
    limit: int,
    storage: dict[str, str],
) -> None:
    """Check that each epoch of a stream continues the previous one.

    Reads only the timeline. Lists the epochs with their offsets, versions, rows and digests. The
    exit code is 8 if offsets have a gap, or an epoch is repeated, rewound or missing.
    """
    del action  # there is one
    table = open_table(app, uri, storage)
    found = table.stream(application).audit()
    if not found.epochs:
        names = ", ".join(sorted(table.handle.cache.known().streams)) or "none"
        message = f"the table has no stream {application!r}"
        raise NotKnownError(message, hint=f"its streams: {names}")
    app.show(found.to_dict(), *_blocks(found, limit), items=[e.to_dict() for e in found.epochs])
    if found.problems:
        message = (
            f"stream {application!r}: {len(found.problems)} epochs do not continue the previous one"
        )
        raise CheckFailedError(message, hint="two writers may have used the same name")


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
        told = [[p.kind, p.version, p.message] for p in found.problems]
        blocks.append(Grid(("problem", ">version", "what"), told))
    return blocks
