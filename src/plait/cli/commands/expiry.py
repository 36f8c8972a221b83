"""Take rows away whose time is over: expire."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import command, dry_run_option, yes_option
from plait.cli.opening import open_table
from plait.cli.view import Facts, Grid, number, size
from plait.model.bucket import partition_path

_SHOWN = 50


@command("expire", "expire ./flights --dry-run", "expire ./flights --ttl 'day 90d partition'")
@click.option("--ttl", help="A time to live for this time only: COLUMN TIME [row|partition].")
@dry_run_option
@yes_option
def expire(
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    ttl: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Take rows away whose time to live is over.

    The table says which (see --ttl of create and of set), or --ttl does for this time, which asks
    first. The clock of the store tells the time. Writers go on meanwhile, and none fails. If one is
    at work and would have to stage again, its partition is left to the next run. Old versions stay
    readable until a clean.
    """
    table = open_table(app, uri, storage)
    plan = table.maintenance.expire(ttl=ttl, dry_run=True)
    rows = [
        [partition_path(task.partition), len(task.sources), number(task.rows), size(task.bytes)]
        for task in plan.tasks[:_SHOWN]
    ]
    if plan.ttl is None:
        app.note("the table has no time to live; set one with `tablectl set URI ttl='day 30d'`")
    if plan.left:
        app.note(f"{len(plan.left)} partitions are left to the next run: a writer is at work there")
    grid = Grid(("partition", ">files", ">rows at most", ">bytes"), rows)
    if dry_run or not plan.tasks:
        app.show({"plan": plan.to_dict(), "dry_run": dry_run, "report": None}, grid)
        return
    if plan.named:
        app.ask("remove these rows?", {"plan": plan.to_dict()}, grid, yes=yes)
    report = table.maintenance.expire(plan)
    done = Facts(
        (
            ("commits", number(len(report.commits))),
            ("rows expired", number(report.rows_deleted)),
            ("files removed", number(report.files_removed)),
        )
    )
    app.show({"plan": plan.to_dict(), "dry_run": False, "report": report.to_dict()}, done)
