"""What keeps tables in shape: compact, cluster, archive, optimize, services."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import allow_option, bare_command, command, dry_run_option, storage_option
from plait.cli.exits import CheckFailedError
from plait.cli.opening import open_table
from plait.cli.view import Facts, Grid, number, size
from plait.model.words import ORDER_KINDS, OrderKind
from plait.ports import SystemClock, SystemIds
from plait.services.maintenance.clustering import ClusteringReport, place_of
from plait.services.maintenance.compaction import CompactionReport
from plait.services.maintenance.runner import Looks, OptimizeReport, ServiceRun, serve
from plait.table import handle_of

_SHOWN = 50


@command("compact", "compact ./flights --dry-run", "compact ./flights --full")
@click.option("--full", is_flag=True, help="Every bucket that is not one file.")
@dry_run_option
def compact(
    app: Application, uri: str, storage: dict[str, str], *, full: bool, dry_run: bool
) -> None:
    """Merge log files, small files, and files with many hidden rows.

    No row changes, and old versions stay readable. Writers go on meanwhile: none fails, waits or
    starts again. The properties compact.* say what is worth it; with --full everything is.
    """
    table = open_table(app, uri, storage)
    plan = table.maintenance.compact(full=full, dry_run=True)
    shown = ((task, task.to_dict()) for task in plan.tasks[:_SHOWN])
    rows = [
        [each["place"], each["files"], number(task.rows), size(task.bytes), task.reason]
        for task, each in shown
    ]
    grid = Grid(("bucket", ">files", ">rows", ">bytes", "reason"), rows)
    if dry_run or not plan.tasks:
        app.show({"plan": plan.to_dict(), "dry_run": dry_run, "report": None}, grid)
        return
    report = table.maintenance.compact(plan)
    done = Facts((("buckets", number(len(plan.tasks))), *_rewritten(report)))
    app.show({"plan": plan.to_dict(), "dry_run": False, "report": report.to_dict()}, done)


@command("cluster", "cluster ./trips", "cluster ./trips --order-by city --kind sort --dry-run")
@click.option(
    "--order-by", "--by", "columns", default="", help="The columns of an order, with commas."
)
@click.option(
    "--kind",
    type=click.Choice(ORDER_KINDS),
    help="With --order-by: sorted by the first column, or along a curve.  [default: hilbert]",
)
@click.option("--where", help="Only files in which rows may match.")
@dry_run_option
def cluster(  # noqa: PLR0913 - one parameter an option
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    columns: str,
    kind: OrderKind | None,
    where: str | None,
    dry_run: bool,
) -> None:
    """Put rows that are near in some columns next to each other.

    Scans with predicates on these columns then skip files and row groups. No row changes, and
    writers go on meanwhile. The order is that of the properties cluster.by and cluster.kind, and
    what is in it already stays. With --order-by every file of the table is put in another order
    once; with --where only those that may match.
    """
    table = open_table(app, uri, storage)
    named = [name.strip() for name in columns.split(",") if columns]
    plan = table.maintenance.cluster(order_by=named, kind=kind, where=where, dry_run=True)
    rows = [
        [place_of(task.bucket), len(task.sources), number(task.rows), size(task.bytes)]
        for task in plan.tasks[:_SHOWN]
    ]
    grid = Grid(("place", ">files", ">rows", ">bytes"), rows)
    if dry_run or not plan.tasks:
        app.show({"plan": plan.to_dict(), "dry_run": dry_run, "report": None}, grid)
        return
    report = table.maintenance.cluster(plan)
    done = Facts(_rewritten(report))
    app.show({"plan": plan.to_dict(), "dry_run": False, "report": report.to_dict()}, done)


def _rewritten(*reports: CompactionReport | ClusteringReport) -> tuple[tuple[str, object], ...]:
    return (
        ("commits", number(sum(len(each.commits) for each in reports))),
        ("files replaced", number(sum(each.files_removed for each in reports))),
        ("files written", number(sum(each.files_added for each in reports))),
        ("rows moved", number(sum(each.rows_moved for each in reports))),
        ("bytes read", size(sum(each.bytes_read for each in reports))),
        ("bytes written", size(sum(each.bytes_written for each in reports))),
    )


@command("archive", "archive ./flights --dry-run", "archive ./flights --json")
@dry_run_option
def archive(app: Application, uri: str, storage: dict[str, str], *, dry_run: bool) -> None:
    """Move old decisions from their slots into a few files.

    The newest decisions stay, as many as the property archive.keep says, and those that two
    checkpoints do not cover yet. History, time travel, changes and commit ids work as before.
    """
    table = open_table(app, uri, storage)
    plan = table.maintenance.archive(dry_run=True)
    moved = f"{plan.first} to {plan.last}" if plan.decisions else "none"
    facts: tuple[tuple[str, object], ...] = (
        ("versions", moved),
        ("decisions", number(plan.decisions)),
        ("files to merge", number(len(plan.merged))),
    )
    if dry_run:
        app.show({"plan": plan.to_dict(), "dry_run": True, "report": None}, Facts(facts))
        return
    report = table.maintenance.archive(plan)
    done = (
        *facts,
        ("decided in version", report.version),
        ("files written", number(len(report.files))),
        ("slots emptied", number(report.emptied)),
    )
    app.show({"plan": plan.to_dict(), "dry_run": False, "report": report.to_dict()}, Facts(done))


@command("optimize", "optimize ./flights", "optimize ./flights --json")
def optimize(app: Application, uri: str, storage: dict[str, str]) -> None:
    """Do all upkeep of a table that falls due.

    Rolls dead writers back, compacts and clusters by the properties compact.* and cluster.*,
    cleans by the properties clean.*, and archives by archive.keep. Writers and readers go on
    meanwhile.
    """
    report = open_table(app, uri, storage).maintenance.optimize()
    app.show(report.to_dict(), Facts(_done(report)))


def _done(report: OptimizeReport) -> tuple[tuple[str, object], ...]:
    rewrites = (each for each in (report.compaction, report.clustering) if each is not None)
    ended = 0 if report.rollback is None else len(report.rollback.ended)
    deleted = 0 if report.clean is None else len(report.clean.deleted)
    freed = 0 if report.clean is None else report.clean.bytes_freed
    archived = 0 if report.archive is None else report.archive.plan.decisions
    return (
        ("instants rolled back", number(ended)),
        *_rewritten(*rewrites),
        ("files deleted", number(deleted)),
        ("bytes freed", size(freed)),
        ("decisions archived", number(archived)),
    )


@bare_command(
    "services",
    "services run ./flights ./bookings",
    "services run ./flights --once --json",
)
@click.argument("action", type=click.Choice(["run"]))
@click.argument("uris", nargs=-1, required=True)
@click.option("--once", is_flag=True, help="Look at each table once, then end.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="Seconds between two looks at the tables, on average.",
)
@storage_option
@allow_option
@click.pass_obj
def services(
    app: Application,
    action: str,
    uris: tuple[str, ...],
    storage: dict[str, str],
    *,
    once: bool,
    interval: float,
) -> None:
    """Keep tables in shape until it is stopped.

    Does for each table what `expire` and `optimize` do, again and again. Any number of processes on
    any hosts may run it for the same tables: they share the work. It prints a result for each table
    at which something was done, or which failed; a table that fails does not stop the others. With
    --once the exit code is 8 if one failed.
    """
    del action  # there is one
    looks: dict[str, Looks] = {}
    ids, clock = SystemIds(), SystemClock()
    while True:
        failed = 0
        for run in serve(uris, lambda uri: handle_of(open_table(app, uri, storage)), looks):
            failed += run.error is not None
            if once or not run.idle:
                _show(app, run)
        if once:
            break
        clock.sleep(interval * (0.5 + ids.jitter()))  # so that runners do not look all at once
    if failed:
        message = f"{failed} of {len(uris)} tables were not served"
        raise CheckFailedError(message, hint="see the errors above")


def _show(app: Application, run: ServiceRun) -> None:
    app.uri = run.uri
    facts: tuple[tuple[str, object], ...] = (("table", run.uri),)
    if run.expiry is not None:
        facts += (("rows expired", number(run.expiry.rows_deleted)),)
    if run.report is not None:
        facts += _done(run.report)
    if run.error is not None:
        facts += (("error", str(run.error)),)
    app.show(run.to_dict(), Facts(facts))
