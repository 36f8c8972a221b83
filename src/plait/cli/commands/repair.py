"""Mend what verify finds, and make again what can be made: repair, metadata rebuild."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import (
    bare_command,
    command,
    dry_run_option,
    pairs_option,
    table_options,
    yes_option,
)
from plait.cli.exits import Exit
from plait.cli.opening import open_for_verify, open_table
from plait.cli.view import Facts, Grid, number
from plait.services.verify.repair import Finding

_SHOWN = 100


@command(
    "repair",
    "repair ./flights --source s3://backup/flights",
    "repair ./flights --replica s3://other-region/flights",
)
@click.option(
    "--source", "--from", "source", metavar="URI", help="A copy of the table, such as a backup."
)
@pairs_option(
    "--source-option", "source_storage", "Option of the copy's store; repeatable.", "--from-option"
)
@click.option(
    "--replica", metavar="URI", help="A table with the same rows: damaged buckets come from it."
)
@click.option(
    "--sink", metavar="NAME", help="The name of the replica, if it is a sink of the table."
)
@click.option(
    "--accept-loss",
    "accept_loss",
    metavar="FINDING",
    multiple=True,
    help="Give up rows of a lost file (file:...), or commits from a lost slot on (slot:...).",
)
@dry_run_option
@yes_option
@click.pass_context
def repair(  # noqa: PLR0913 - one parameter an option
    context: click.Context,
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    source: str | None,
    source_storage: dict[str, str],
    replica: str | None,
    sink: str | None,
    accept_loss: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Mend what verify finds, where the mend is provably right.

    Bytes are taken from a copy only if a decision of this table proves that they are the lost
    ones. For the rest it says what a person can do, or what is lost. With --accept-loss the rows
    of a lost file are deleted from the newest version, or the table ends below a lost slot. End
    all writers before that. The exit code is 8 if anything is left. Mend the timeline first: run
    it again until nothing is to be mended.

    With --replica the buckets of which a file cannot be read are written anew from another table,
    if it has as many rows of them, and every row that can still be read.
    """
    if replica is not None:
        if source is not None or accept_loss:
            raise click.UsageError("--replica goes with neither --from nor --accept-loss")
        _repair_from_replica(app, uri, storage, (replica, sink), source_storage, dry_run=dry_run)
        return
    table = open_for_verify(app, uri, storage)
    plan = table.check.repair(
        source=source, storage_options=source_storage or None, accept_loss=accept_loss, dry_run=True
    )
    data: dict[str, object] = {"plan": plan.to_dict(), "dry_run": dry_run, "report": None}
    if dry_run or not plan.repairs:
        app.show(data, _grid(plan.findings))
        left = plan.findings
    else:
        question = f"make {len(plan.repairs)} mend(s)?"
        app.ask(question, {"plan": plan.to_dict()}, _grid(plan.findings), yes=yes)
        report = table.check.repair(plan, storage_options=source_storage or None)
        done = (("mended", number(len(report.mended))), ("left", number(len(report.left))))
        app.show({**data, "report": report.to_dict()}, Facts(done), _grid(report.left))
        left = report.left
    if left:
        context.exit(int(Exit.PROBLEMS))


def _repair_from_replica(
    app: Application,
    uri: str,
    storage: dict[str, str],
    named: tuple[str, str | None],
    replica_storage: dict[str, str],
    *,
    dry_run: bool,
) -> None:
    table = open_table(app, uri, storage)
    replica, sink = named
    report = table.check.repair_from_replica(
        replica, sink=sink, storage_options=replica_storage or None, dry_run=dry_run
    )
    rows = [
        [each.place, len(each.files), number(each.rows), number(each.found or 0)]
        for each in report.buckets[:_SHOWN]
    ]
    done = (("files read there", number(report.files_read)), ("version", report.version))
    grid = Grid(("bucket", ">files lost", ">rows", ">found"), rows)
    app.show({**report.to_dict(), "dry_run": dry_run}, Facts(done), grid)


@bare_command(
    "metadata", "metadata rebuild ./flights --dry-run", "metadata rebuild ./flights --json"
)
@click.argument("action", type=click.Choice(["rebuild"]))
@click.argument("uri")
@dry_run_option
@table_options
@click.pass_obj
def metadata(
    app: Application, action: str, uri: str, storage: dict[str, str], *, dry_run: bool
) -> None:
    """Make the bounds of columns again that the table's metadata lacks.

    They are read from the data files and written into a checkpoint; then scans skip files by them.
    Run it after you set metadata.statistics=on, or after that checkpoint was lost. It changes no
    row, and writers go on meanwhile.
    """
    del action  # there is one
    table = open_table(app, uri, storage)
    plan = table.maintenance.rebuild_metadata(dry_run=True)
    facts = [("files", number(plan.files)), ("without bounds", number(plan.missing))]
    data: dict[str, object] = {"plan": plan.to_dict(), "dry_run": dry_run, "report": None}
    if dry_run or not plan.missing:
        app.show(data, Facts(tuple(facts)))
        return
    report = table.maintenance.rebuild_metadata(plan)
    facts += [("rebuilt", number(report.rebuilt)), ("not readable", number(len(report.unread)))]
    shown = Facts((*facts, ("decided in version", report.version)))
    app.show({**data, "report": report.to_dict()}, shown)


def _grid(findings: tuple[Finding, ...]) -> Grid:
    rows = [[each.answer, each.id, each.problem, each.what] for each in findings[:_SHOWN]]
    return Grid(("answer", "finding", "problem", "what"), rows)
