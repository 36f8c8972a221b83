"""What keeps a table's files in shape: compact."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import command
from plait.cli.opening import open_table
from plait.cli.view import Facts, Grid, number, size

_SHOWN = 50


@command("compact", "compact ./flights --dry-run", "compact ./flights --full")
@click.option("--full", is_flag=True, help="Every bucket that is not one file.")
@click.option("--dry-run", is_flag=True, help="Show the plan and do nothing.")
def compact(
    app: Application, uri: str, storage: dict[str, str], *, full: bool, dry_run: bool
) -> None:
    """Merge log files, small files, and files with many hidden rows.

    No row changes, and old versions stay readable. Writers go on meanwhile: none fails, waits or
    starts again. The properties compact.* say what is worth it; with --full everything is.
    """
    table = open_table(app, uri, storage)
    plan = table.plan_compact(full=full)
    shown = ((task, task.to_dict()) for task in plan.tasks[:_SHOWN])
    rows = [
        [each["place"], each["files"], number(task.rows), size(task.bytes), task.reason]
        for task, each in shown
    ]
    grid = Grid(("bucket", ">files", ">rows", ">bytes", "reason"), rows)
    if dry_run or not plan.tasks:
        app.show({"plan": plan.to_dict(), "dry_run": dry_run, "report": None}, grid)
        return
    report = table.compact(plan)
    done = Facts(
        (
            ("buckets", number(len(plan.tasks))),
            ("commits", number(len(report.commits))),
            ("files replaced", number(report.files_removed)),
            ("files written", number(report.files_added)),
        )
    )
    app.show({"plan": plan.to_dict(), "dry_run": False, "report": report.to_dict()}, done)
