"""Whether two tables have the same rows: compare."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import command
from plait.cli.exits import CheckFailedError
from plait.cli.opening import open_table
from plait.cli.view import Facts, Grid, number
from plait.model.value import plain_rows
from plait.queries.compare import compare as compare_rows

_SHOWN = 20


@command(
    "compare",
    "compare ./flights s3://backup/flights",
    "compare ./flights ./flights --versions 7 12 --columns id,delay",
)
@click.argument("other")
@click.option(
    "--versions",
    type=click.IntRange(min=0),
    nargs=2,
    metavar="FIRST SECOND",
    help="The versions to compare; the newest ones by default.",
)
@click.option("--columns", help="The columns to compare, with commas; all by default.")
@click.option("--where", help="Compare only the rows for which this SQL condition holds.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_SHOWN,
    show_default=True,
    help="Show the rows of at most so many keys; the counts include all.",
)
def compare(
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    other: str,
    versions: tuple[int, int] | None,
    limit: int,
    **rows: str | None,
) -> None:
    """Compare the rows of two tables or versions.

    OTHER is the second table, or the same one with --versions. Partitions, buckets and files do
    not matter. The exit code is 8 if the rows differ. Storage options apply to both tables.
    """
    columns, where = rows["columns"], rows["where"]
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    places = zip((uri, other), versions or (None, None), strict=True)
    one, two = (
        open_table(app, place, storage).scan(names, where, version=at) for place, at in places
    )
    found = compare_rows(one, two, limit=limit)
    facts = (
        ("versions", f"{one.version} and {two.version}"),
        ("rows", f"{number(found.rows)} and {number(found.other_rows)}"),
        ("missing", number(found.missing)),
        ("extra", number(found.extra)),
        ("changed", number(found.changed)),
    )
    sample = [list(row.values()) for row in plain_rows(found.sample)]
    grid = Grid(("difference", *one.schema.names), sample)
    data = {"version": one.version, "other_version": two.version, **found.to_dict()}
    app.show(data, Facts(facts), *([grid] if sample else []))
    if not found.equal:
        raise CheckFailedError("the rows differ", hint="the counts above say how")
