"""Who stood in whose way."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import bare_command, table_options
from plait.cli.opening import open_table
from plait.cli.view import Facts, Grid


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
    """Tell whom an instant met, and what that meant.

    For each commit that was first: its version and instant, the buckets, some of the keys that
    both wrote, the verdict, and how much was done again.
    """
    del action  # there is one
    found = open_table(app, uri, storage).explain(instant)
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
