"""How far the sinks of a dual write are, and what sets them right."""

from __future__ import annotations

from typing import Final, Literal

import click

from plait.cli.application import Application
from plait.cli.command import bare_command, dry_run_option, table_options, yes_option
from plait.cli.exits import CheckFailedError
from plait.cli.opening import open_table
from plait.cli.view import Facts, Grid, number
from plait.model.decision import CommitResult
from plait.replicate import ReplicaRepair, ReplicaStatus, Sink
from plait.replicate import repair as repair_sink
from plait.replicate import status as load_status
from plait.replicate.address import sink_of
from plait.replicate.defined import defined_sink
from plait.table import Table, handle_of

_COLUMNS: Final = ("sink", "in step", ">compared at", ">behind", ">rows", ">ahead", ">pending")


@bare_command(
    "replicas",
    "replicas add ./flights --replica eu=s3://eu/flights",
    "replicas repair ./flights --replica 'serving=sqlite:///serving.db#flights' --dry-run",
)
@click.argument("action", type=click.Choice(["status", "repair", "add", "remove"]))
@click.argument("uri")
@click.option(
    "--replica",
    "--sink",
    "sink",
    metavar="NAME=ADDRESS",
    help="The sink, as described above; not with status.",
)
@click.option(
    "--extra",
    type=click.Choice(["remove", "keep"]),
    help="With repair: what happens to rows that only the sink has.  [default: remove]",
)
@dry_run_option
@yes_option
@table_options
@click.pass_obj
def replicas(  # noqa: PLR0913 - one parameter an option
    app: Application,
    action: str,
    uri: str,
    storage: dict[str, str],
    *,
    sink: str | None,
    extra: Literal["remove", "keep"] | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Name the sinks of a table, show how far they are from it, or set one right row by row.

    `add` puts a sink into the definition of the table: from then on, every writer sends its rows
    there first. ADDRESS has no password. `remove` takes one out, by its NAME.

    `status` asks no sink. A sink is behind by the commits that changed rows and were not sent to
    it, and ahead by the writers that sent rows and did not commit. The exit code is 8 if a sink
    is not in step.

    `repair` reads the whole sink and the whole table, and changes the rows of the sink that differ.
    A sink of the definition needs its NAME alone.

    ADDRESS is the place of a table; or a database and its table, such as
    postgresql+psycopg://host/db#flights; or a topic, such as kafka://host:9092/flights.
    Writers may go on meanwhile.
    """
    if (action == "status") != (sink is None):
        message = f"{action} needs --sink" if sink is None else "status takes no --sink"
        raise click.UsageError(message)
    if action != "repair" and (extra or dry_run or yes):
        raise click.UsageError("only repair takes --extra, --dry-run and --yes")
    table = open_table(app, uri, storage)
    if sink is None:
        _show_status(app, load_status(table))
    elif action == "add":
        _show_definition(app, table, table.replicas.add(sink))
    elif action == "remove":
        _show_definition(app, table, table.replicas.remove(sink))
    else:
        _repair(app, table, sink, extra or "remove", dry_run=dry_run, yes=yes)


def _show_definition(app: Application, table: Table, done: CommitResult) -> None:
    named = dict(handle_of(table).cache.known().table.replicas)
    facts = Facts((("version", done.version), *(("sink", f"{n}={named[n]}") for n in named)))
    app.show({"version": done.version, "replicas": named}, facts)


def _show_status(app: Application, sinks: tuple[ReplicaStatus, ...]) -> None:
    rows = [
        [
            each.sink,
            each.in_step,
            each.compared_at,
            number(len(each.behind)),
            number(each.rows_behind),
            number(len(each.ahead)),
            number(len(each.pending)),
        ]
        for each in sinks
    ]
    shown = [each.to_dict() for each in sinks]
    app.show({"sinks": shown}, Grid(_COLUMNS, rows), items=list(shown))
    late = [each.sink for each in sinks if not each.in_step]
    if late:
        hint = "run `tablectl replicas repair`, or write through the sinks again"
        raise CheckFailedError(f"not in step with the table: {', '.join(late)}", hint=hint)


def _repair(
    app: Application,
    table: Table,
    address: str,
    extra: Literal["remove", "keep"],
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    sink = _sink(table, address)
    found = repair_sink(table, sink, extra=extra, dry_run=True)
    if dry_run:
        app.show({"found": found.to_dict(), "repair": None}, _facts(found))
        return
    if not found.equal:
        question = f"change the rows of sink {sink.name}?"
        app.ask(question, {"found": found.to_dict()}, _facts(found), yes=yes)
    done = repair_sink(table, sink, extra=extra)
    app.show({"found": found.to_dict(), "repair": done.to_dict()}, _facts(done))


def _sink(table: Table, text: str) -> Sink:
    """Return the sink of NAME=ADDRESS, or of a NAME that the definition has an address for."""
    address = handle_of(table).cache.known().table.replicas.get(text)
    return sink_of(text) if address is None else defined_sink(handle_of(table), text, address)


def _facts(found: ReplicaRepair) -> Facts:
    return Facts(
        (
            ("sink", found.sink),
            ("compared with version", found.version),
            ("rows of the table", number(found.rows)),
            ("missing", number(found.missing)),
            ("different", number(found.different)),
            ("only in the sink", number(found.extra)),
            ("removed", number(found.removed)),
            ("wrote meanwhile", number(len(found.overlapped))),
        )
    )
