"""What looks after a table: rollback, clean, verify."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import click

from plait.cli.application import Application
from plait.cli.command import command, dry_run_option, yes_option
from plait.cli.exits import Exit
from plait.cli.opening import open_for_verify, open_table
from plait.cli.view import Block, Facts, Grid, number, size
from plait.errors import IllegalTransitionError
from plait.model.history import PendingEntry
from plait.table import Table

_SHOWN = 50


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """The instants that a rollback ends: shown first, then exactly these."""

    doomed: tuple[PendingEntry, ...]
    named: str | None
    spared: tuple[PendingEntry, ...] = ()

    @property
    def instants(self) -> list[str]:
        """The instants to end, those without records too."""
        found = [str(entry.instant) for entry in self.doomed]
        return found or ([self.named] if self.named else [])

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "instants": self.instants,
            "alive": [str(entry.instant) for entry in self.doomed if entry.alive],
            "spared": [str(entry.instant) for entry in self.spared],
        }


def _plan(pending: Iterable[PendingEntry], named: str | None) -> RollbackPlan:
    entries = tuple(pending)
    if named is not None:
        return RollbackPlan(tuple(e for e in entries if str(e.instant) == named), named)
    dead = tuple(entry for entry in entries if not entry.alive)
    return RollbackPlan(dead, None, tuple(entry for entry in entries if entry.alive))


@command(
    "rollback",
    "rollback ./flights --failed --dry-run",
    "rollback ./flights 20260101000000000-0123456789abcdef --yes",
)
@click.argument("instant", required=False)
@click.option("--failed", is_flag=True, help="All pending instants of dead writers.")
@dry_run_option
@yes_option
def rollback(  # noqa: PLR0913 - one parameter an option
    app: Application,
    uri: str,
    storage: dict[str, str],
    instant: str | None,
    *,
    failed: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Roll back an instant, or all instants of dead writers.

    The changes of a rolled-back instant never become visible. If its writer is still alive, the
    writer gets an error and loses its work; the table loses nothing.
    """
    if failed == (instant is not None):
        raise click.UsageError("pass either INSTANT or --failed")
    table = open_table(app, uri, storage)
    plan = _plan(table.inspect.timeline().pending, instant)
    rows = [[name, *_signs(plan, name)] for name in plan.instants]
    grid = Grid(("to roll back", "operation", "host", ">pid", "life"), rows)
    if dry_run or not plan.instants:
        app.show({"plan": plan.to_dict(), "dry_run": dry_run, "ended": []}, grid)
        return
    app.ask(f"roll back {len(plan.instants)} instant(s)?", {"plan": plan.to_dict()}, grid, yes=yes)
    ended = [entry for name in plan.instants for entry in _end(table, name, failed=failed)]
    done = Grid(("instant", "outcome", ">files deleted"), [list(e.values()) for e in ended])
    app.show({"plan": plan.to_dict(), "dry_run": False, "ended": ended}, done)


def _signs(plan: RollbackPlan, name: str) -> list[object]:
    for entry in plan.doomed:
        if str(entry.instant) == name:
            life = "ALIVE" if entry.alive else "dead?"
            return [entry.operation, entry.host, entry.pid, life]
    return [None, None, None, "no records"]


def _end(table: Table, name: str, *, failed: bool) -> list[dict[str, object]]:
    """End one instant; one of the dead that had committed needs no more than that."""
    try:
        return [entry.to_dict() for entry in table.maintenance.rollback(name).ended]
    except IllegalTransitionError:
        if not failed:
            raise
        return [{"instant": name, "outcome": "committed", "files_deleted": 0}]


@command("clean", "clean ./flights --yes --json", "clean ./flights --undo")
@click.option("--now", is_flag=True, help="Delete at once; this clean cannot be undone.")
@click.option("--undo", is_flag=True, help="Make readable again what cleans let go of.")
@click.option(
    "--since",
    type=int,
    metavar="VERSION",
    help="With --undo: not the cleans before this version.",
)
@dry_run_option
@yes_option
def clean(  # noqa: PLR0913 - one parameter an option
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    now: bool,
    undo: bool,
    since: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Let go of old versions, and delete files that nobody needs.

    The properties clean.retain.* say which versions stay readable. The files of the others are
    deleted by a clean that runs after clean.grace; until then --undo makes them readable again.
    Files that running writers and readers need are kept.
    """
    if (undo and (now or dry_run)) or (since is not None and not undo):
        raise click.UsageError("--undo takes only --since, and --since needs --undo")
    table = open_table(app, uri, storage)
    if undo:
        _undo_clean(app, table, since)
        return
    plan = table.maintenance.clean(now=now, dry_run=True)
    counts = Facts(
        (
            ("oldest readable version", plan.horizon),
            ("files to condemn", number(len(plan.condemned))),
            ("their bytes", size(sum(plan.sizes.values()))),
            ("files condemned earlier", number(len(plan.waiting))),
            ("files to delete after clean.grace", number(plan.held)),
        )
    )
    paths = [*plan.condemned, *plan.waiting]
    grid = Grid(("file", ">ended by version"), paths[:_SHOWN])
    if dry_run:
        app.show({"plan": plan.to_dict(), "dry_run": True, "report": None}, counts, grid)
        return
    question = f"delete up to {len(paths):,} file(s)?"
    app.ask(question, {"plan": plan.to_dict()}, grid, yes=yes or not paths)
    report = table.maintenance.clean(plan)
    done = Facts(
        (
            ("decided in version", report.version),
            ("files deleted", number(len(report.deleted) + len(report.late))),
            ("bytes freed", size(report.bytes_freed)),
            ("files spared", number(len(report.spared))),
            ("files to delete after clean.grace", number(plan.held)),
            ("instants rolled back", number(len(report.rollback.ended))),
            *([("versions stay because", report.held_back)] if report.held_back else ()),
        )
    )
    app.show({"plan": plan.to_dict(), "dry_run": False, "report": report.to_dict()}, done)


def _undo_clean(app: Application, table: Table, since: int | None) -> None:
    reverted = table.maintenance.undo_clean(since=since)
    facts = Facts(
        (
            ("decided in version", reverted.version),
            ("cleans undone", ", ".join(map(str, reverted.reverted)) or "none"),
            ("oldest readable version", reverted.horizon),
        )
    )
    app.show(reverted.to_dict(), facts)
    if reverted.version is None:
        app.note("nothing to undo: the files of all cleans may be deleted already")


@command("verify", "verify ./flights", "verify s3://lake/flights --history --json")
@click.option("--no-data", is_flag=True, help="Check only metadata; do not open data files.")
@click.option("--history", is_flag=True, help="Check only the timeline: isolation, lost updates.")
@click.pass_context
def verify(
    context: click.Context,
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    no_data: bool,
    history: bool,
) -> None:
    """Check the invariants on the table as it is.

    --history checks only the timeline: that every commit was isolated from the others, that no
    update was lost, and that no instant was decided twice.

    Changes nothing. The exit code is 8 if there are problems. Works beside writers, and on a table
    that is too damaged to be opened.
    """
    report = open_for_verify(app, uri, storage).check.verify(data=not no_data, history=history)
    found = [(p.invariant, p.path, p.message) for p in report.problems]
    blocks: list[Block] = [
        Facts(tuple((k, number(v)) for k, v in report.checked.items()), "checked")
    ]
    if report.notes:
        blocks.append(Grid(("noted", "message"), [(n.path, n.message) for n in report.notes]))
    if found:
        blocks.append(Grid(("invariant", "path", "problem"), found))
    data = report.to_dict()
    app.show(data, *blocks, items=[problem.to_dict() for problem in report.problems])
    app.note(f"{len(found)} problem(s) found" if found else "no problems found")
    if found:
        context.exit(int(Exit.PROBLEMS))
