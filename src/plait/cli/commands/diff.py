"""What commits changed: diff."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import click

from plait.cli.application import Application
from plait.cli.command import command
from plait.cli.opening import open_table
from plait.cli.view import Facts, Grid, number
from plait.model.value import plain_rows
from plait.read.change_scan import ADDED_COLUMNS, TYPE, VERSION, ChangeScan

_SHOWN = 20


@command(
    "diff",
    "diff ./flights --since 3",
    "diff ./flights --since 2026-01-01T00:00:00Z --until 7 --json",
)
@click.option("--since", required=True, help="Show commits after this version, instant or time.")
@click.option("--until", help="The last version, instant or time to show; by default the newest.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_SHOWN,
    show_default=True,
    help="Maximum number of rows to show; the counts include all.",
)
def diff(
    app: Application,
    uri: str,
    *,
    storage: dict[str, str],
    since: str,
    until: str | None,
    limit: int,
) -> None:
    """Count and show the rows that commits changed.

    Shows inserted, updated and deleted rows; an update as the old row and then the new one.
    """
    table = open_table(app, uri, storage)
    scan = table.changes(since, until)
    counts = scan.count()
    rows = list(itertools.islice(_rows(scan), limit))
    more = len(rows) < sum(counts.values())
    facts = Facts((("versions", f"{scan.since} -> {scan.until}"), *_named(counts)))
    names = [name for name in scan.schema.names if name not in ADDED_COLUMNS.names]
    columns = (f">{VERSION.removeprefix('_commit_')}", "change", *names)
    grid = Grid(columns, [[row[name] for name in (VERSION, TYPE, *names)] for row in rows])
    data = {"since": scan.since, "until": scan.until, "counts": counts, "rows": rows, "more": more}
    app.show(data, facts, *([grid] if rows else []), items=list(rows))
    if more:
        app.note(f"showing the first {len(rows)} rows; --limit shows more")


def _named(counts: dict[str, int]) -> Iterator[tuple[str, object]]:
    for kind, count in counts.items():
        yield kind.replace("_", " "), number(count)


def _rows(scan: ChangeScan) -> Iterator[dict[str, object]]:
    for batch in scan.to_reader():
        for at in range(batch.num_rows):  # only those that are shown
            (row,) = plain_rows(batch.slice(at, 1))
            yield row
