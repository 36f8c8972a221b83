"""The record index of a table: index build, drop, status, verify."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import bare_command, table_options
from plait.cli.exits import Exit
from plait.cli.opening import open_table
from plait.cli.view import Facts, number, size
from plait.services.index.build import IndexReport
from plait.services.index.record_index import IndexStatus
from plait.table import Table


@bare_command(
    "index",
    "index build ./flights",
    "index status ./flights --json",
)
@click.argument("action", type=click.Choice(["build", "drop", "status", "verify"]))
@click.argument("uri")
@click.option("--anew", is_flag=True, help="With build: read the keys of all rows again.")
@table_options
@click.pass_obj
@click.pass_context
def index(
    context: click.Context,
    app: Application,
    action: str,
    uri: str,
    storage: dict[str, str],
    *,
    anew: bool,
) -> None:
    """Build, drop, show or check the record index, which finds rows by key.

    build gives the table an index, if it has none, and brings it up to date beside the writers.
    drop takes it away; a clean deletes its files. verify looks every key of the table up in it,
    and exits with 8 if one is missing. To lose the index costs time, and no row.
    """
    if anew and action != "build":
        raise click.UsageError("--anew goes with build alone")
    table = open_table(app, uri, storage)
    if action == "build":
        _build(app, table, anew=anew)
    elif action == "drop":
        result = table.index.drop()
        app.show({"version": result.version}, Facts((("dropped in version", result.version),)))
    elif action == "status":
        _show(app, table.index.status(), None)
    elif not _verify(app, table):
        context.exit(int(Exit.PROBLEMS))


def _build(app: Application, table: Table, *, anew: bool) -> None:
    if table.index.status().name is None:
        report = table.index.create()
    else:
        report = table.index.build(anew=anew)
    if report is None:
        app.note("the index was up to date")
    _show(app, table.index.status(), report)


def _show(app: Application, status: IndexStatus, report: IndexReport | None) -> None:
    facts = (
        ("index", status.name or "none"),
        ("used by look-ups", "yes" if status.usable else f"no: {status.reason}"),
        ("goes up to version", "none" if status.built is None else status.built),
        ("decisions in no run yet", number(status.lag)),
        ("entries", number(status.entries)),
        ("runs", number(status.runs)),
        ("bytes", size(status.size_bytes)),
    )
    shown = {"status": status.to_dict(), "report": None if report is None else report.to_dict()}
    app.show(shown, Facts(facts))


def _verify(app: Application, table: Table) -> bool:
    found = table.index.verify()
    facts = (
        ("version", found.version),
        ("rows", number(found.rows)),
        ("entries", number(found.entries)),
        ("rows that the index misses", number(found.missing)),
    )
    app.show(found.to_dict(), Facts(facts))
    return found.ok
