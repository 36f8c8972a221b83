"""What undoes commits: savepoint, restore, undo, replay."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import command, dry_run_option, yes_option
from plait.cli.opening import open_table
from plait.cli.view import Block, Facts, Grid, number
from plait.services.maintenance.replay import ReplayPlan
from plait.services.maintenance.restore import RestorePlan
from plait.table import Table

_SHOWN = 50

_replay = click.option(
    "--replay", is_flag=True, help="Let streams and commit ids that it undoes be applied again."
)


@command("savepoint", "savepoint ./flights", "savepoint ./flights before-backfill --version 41")
@click.argument("name", required=False)
@click.option("--version", type=int, help="The version to keep; the newest by default.")
@click.option("--as-of", help="Or a time or an instant.")
@click.option("--drop", is_flag=True, help="Let the savepoint go.")
@dry_run_option
def savepoint(  # noqa: PLR0913 - one parameter an option
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    name: str | None,
    version: int | None,
    as_of: str | None,
    drop: bool,
    dry_run: bool,
) -> None:
    """Keep a version readable under a name, or list the savepoints.

    No clean deletes a file of a savepoint until --drop.
    """
    table = open_table(app, uri, storage)
    chosen = version is not None or as_of is not None
    if (drop and chosen) or (name is None and (drop or chosen)):
        raise click.UsageError("--drop takes a NAME alone; --version and --as-of take a NAME")
    if name is not None and not dry_run:
        if drop:
            table.versions.drop_savepoint(name)
        else:
            table.versions.savepoint(name, version=version, as_of=as_of)
    found = [each.to_dict() for each in table.versions.savepoints]
    grid = Grid(("savepoint", ">version"), [list(each.values()) for each in found])
    app.show({"savepoints": found, "dry_run": dry_run}, grid, items=list(found))


@command("restore", "restore ./flights --savepoint before-backfill --dry-run",
         "restore ./flights --version 41 --yes")  # fmt: skip
@click.option("--version", type=int, help="The version whose rows the table gets.")
@click.option("--as-of", help="Or a time or an instant.")
@click.option("--savepoint", "name", help="Or the name of a savepoint.")
@_replay
@dry_run_option
@yes_option
def restore(  # noqa: PLR0913 - one parameter an option
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    version: int | None,
    as_of: str | None,
    name: str | None,
    replay: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Give the table the rows of an older version.

    This is one new version. Later versions stay in the history and can be read; their commits
    are undone. To undo a restore, restore the version before it. It is refused if rows are
    committed after the plan.
    """
    if sum(each is not None for each in (version, as_of, name)) != 1:
        raise click.UsageError("pass one of --version, --as-of and --savepoint")
    table = open_table(app, uri, storage)
    plan = table.versions.restore(version=version, as_of=as_of, savepoint=name, dry_run=True)
    _execute(app, table, plan, replay=replay, dry_run=dry_run, yes=yes)


@command("undo", "undo ./flights --dry-run", "undo ./flights --yes --json")
@_replay
@dry_run_option
@yes_option
def undo(
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    replay: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Undo the newest commit of rows.

    This is a restore of the version before it. A second undo undoes the commit before.
    """
    table = open_table(app, uri, storage)
    _execute(app, table, table.versions.undo(dry_run=True), replay=replay, dry_run=dry_run, yes=yes)


@command("replay", "replay ./flights --dry-run", "replay ./flights --application loader --yes")
@click.option("--application", "applications", multiple=True, help="A stream; repeatable.")
@click.option("--commit-id", "commit_ids", multiple=True, help="A commit id; repeatable.")
@dry_run_option
@yes_option
def replay(  # noqa: PLR0913 - one parameter an option
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    applications: tuple[str, ...],
    commit_ids: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Let what a restore undid be applied again.

    These are streams and commit ids; without options, all of them. Each stream continues after
    the last epoch that the table contains. The rows do not come back by themselves: the jobs
    send them again.
    """
    table = open_table(app, uri, storage)
    some = bool(applications or commit_ids)
    plan = table.versions.replay(
        applications=applications if some else None,
        commit_ids=commit_ids if some else None,
        dry_run=True,
    )
    grid = _undone(plan)
    data = {"plan": plan.to_dict(), "dry_run": dry_run, "version": None}
    if dry_run or not (plan.applications or plan.commit_ids):
        app.show(data, grid)
        return
    app.ask("let these be applied again?", data, grid, yes=yes)
    report = table.versions.replay(plan)
    app.show({**report.to_dict(), "dry_run": False}, _undone(report.plan), _decided(report.version))


def _undone(plan: ReplayPlan) -> Grid:
    rows: list[list[object]] = [
        ["stream", each.application, "the beginning" if each.token is None else each.token.epoch]
        for each in plan.applications
    ]
    rows += [["commit id", commit_id, None] for commit_id in plan.commit_ids]
    return Grid(("undone", "name", ">continues after epoch"), rows)


def _execute(
    app: Application,
    table: Table,
    plan: RestorePlan,
    *,
    replay: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    facts = Facts(
        (
            ("restores version", plan.to),
            ("planned on version", plan.version),
            ("rows now", number(plan.rows_before)),
            ("rows then", number(plan.rows_after)),
            ("files that come back", number(plan.files_added)),
            ("files that go", number(plan.files_removed)),
            ("streams that stop", ", ".join(plan.applications) or None),
        )
    )
    rows = [["undone", *each.to_dict().values()] for each in plan.reverted]
    rows += [["back", *each.to_dict().values()] for each in plan.returned]
    heads = ("commit", ">version", "operation", "completed", "commit id")
    blocks: list[Block] = [facts, Grid(heads, rows[:_SHOWN])]
    data = {"plan": plan.to_dict(), "dry_run": dry_run, "version": None}
    if dry_run:
        app.show(data, *blocks)
        return
    question = f"undo {len(plan.reverted)} commit(s) and restore version {plan.to}?"
    app.ask(question, data, *blocks, yes=yes)
    report = table.versions.restore(plan, replay=replay)
    app.show({**report.to_dict(), "dry_run": False}, _decided(report.version))


def _decided(version: int | None) -> Facts:
    return Facts((("decided in version", version),))
