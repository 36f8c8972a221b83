"""``tablectl publish``: bring the metadata up to date that other engines read."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import command
from plait.cli.opening import open_table
from plait.cli.view import Grid, duration, number
from plait.errors import OptionError


@command("publish", "publish ./flights", "publish ./flights --status --json")
@click.option("--status", is_flag=True, help="Only show how far it is.")
def publish(app: Application, uri: str, storage: dict[str, str], *, status: bool) -> None:
    """Publish what is missing, in each format that the property publish names.

    Clients do so after each of their commits, for as long as the property publish.deadline says.
    What others wrote to the published metadata is undone.
    """
    table = open_table(app, uri, storage)
    if not status:
        report = table.maintenance.publish()
        if not report.targets:
            message = f"{uri} is not published in any format"
            hint = f"tablectl set {uri} publish=delta"
            raise OptionError(message, hint=hint, key="publish", value="")
        rows = [
            [
                each.target,
                "none" if each.version is None else number(each.version),
                number(each.published),
                number(each.left_out),
                number(len(each.undone)),
            ]
            for each in report.targets
        ]
        grid = Grid(("format", ">version", ">published", ">left out", ">undone"), rows)
        app.show(report.to_dict(), grid)
        return
    found = table.inspect.publications()
    rows = [
        [
            each.target,
            "none" if each.version is None else number(each.version),
            number(each.lag_versions),
            duration(each.lag_ms),
            number(each.foreign),
            each.problem or "",
        ]
        for each in found
    ]
    grid = Grid(
        ("format", ">version", ">versions behind", ">behind", ">foreign commits", "problem"), rows
    )
    app.show({"publications": [each.to_dict() for each in found]}, grid)
