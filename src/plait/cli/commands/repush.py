"""Lay a table out anew under its writers: repush."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import click

from plait.cli.application import Application
from plait.cli.command import command, copy_options, dry_run_option, pairs_option, yes_option
from plait.cli.opening import open_table
from plait.cli.schema_text import layout_text
from plait.cli.view import Facts, duration, number, size
from plait.definition.ttl import Ttl
from plait.model.plan import COW, MOR
from plait.model.repush import RepushSource, SourceAddress
from plait.repush import RepushReport, RepushRequest
from plait.repush.begin import ROWS_PER_TASK, is_over, require_layout, resumed, with_order
from plait.repush.run import PROGRESS
from plait.repush.run import repush as run_repush
from plait.repush.source import WantedSource
from plait.services.maintenance.expiry import ExpiryPlan, plan_expiry
from plait.table import Table, handle_of

_ITEM = re.compile(r"(?:[^,(]++|\([^)]*+\)?+)++")
"""What stands between commas; those in brackets divide nothing."""


@dataclass(frozen=True, slots=True)
class _Teller:
    """Tells a person how far the copy is."""

    app: Application

    def phase(self, name: str, **facts: object) -> None:
        """Write a line for each task of the copy and each round."""
        if name == PROGRESS:
            loaded, followed, rounds = (
                number(int(str(facts[key]))) for key in ("rows_loaded", "rows_followed", "rounds")
            )
            self.app.note(f"{loaded} rows copied; {followed} rows followed in {rounds} rounds")


@command(
    "repush",
    "repush ./flights --partition-by day --table-type mor --dry-run",
    "repush ./flights --source delta:./old-flights",
)
@click.option("--buckets", type=click.IntRange(min=1), help="Buckets in each partition.")
@click.option("--bucket-by", help="The columns of the record key that are hashed, with commas.")
@click.option("--partition-by", help="The partition columns, with commas.")
@click.option("--no-partitions", is_flag=True, help="Without partitions.")
@click.option("--ordering", help="The ordering column.")
@click.option("--no-ordering", is_flag=True, help="Without an ordering column.")
@click.option(
    "--table-type", "--type", type=click.Choice([COW, MOR]), help="The type of the table."
)
@click.option("--sort-by", help="The columns by which rows are ordered in a bucket, with commas.")
@pairs_option(
    "--property", "properties", "A property that changes with the swap; repeatable.", "--set"
)
@click.option("--source", help="Whose rows replace the table's: a version, a savepoint, a place.")
@copy_options(ROWS_PER_TASK)
@click.option("--expire", help="Remove older rows first: COLUMN TIME [row|partition].")
@click.option("--commit-id", help="Names this repush, so that it is swapped in once, for ever.")
@click.option("--cancel", is_flag=True, help="Cancel the open repush and delete what it copied.")
@click.option("--undo", is_flag=True, help="Give the table its former layout back.")
@click.option("--version", type=int, help="The repush that --undo takes back, if it is the newest.")
@dry_run_option
@yes_option
def repush(  # noqa: PLR0913 - one parameter an option
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    buckets: int | None,
    bucket_by: str | None,
    partition_by: str | None,
    no_partitions: bool,
    ordering: str | None,
    no_ordering: bool,
    table_type: str | None,
    sort_by: str | None,
    properties: dict[str, str],
    rows_per_task: int,
    source: str | None,
    source_options: dict[str, str],
    expire: str | None,
    commit_id: str | None,
    cancel: bool,
    undo: bool,
    version: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Lay a table out anew while others read and write it.

    Rows are copied into new files, which follow what others commit meanwhile. Then one decision
    swaps them in. What is not named stays as it is. If the command is killed, run it again: it goes
    on where it was, and without options it goes on with the open repush. Old versions stay
    readable, each under its own layout.

    With --source, the rows that the table had at the beginning are replaced by those of a version
    (17), a savepoint (its name), another table of Plait (a place with a slash), delta:PLACE,
    iceberg:PLACE, hudi:PLACE or parquet:PLACE. What others commit meanwhile is carried over.

    With --undo, the former layout comes back. Name the --version of the repush if the command may
    be run twice: without it, the second run undoes the first.

    With --expire 'at 30d row', rows that are older are removed first, by the time in a column or
    when they were written ('written 30d row'). Change reads show them as deletes.
    """
    if (no_partitions and partition_by is not None) or (no_ordering and ordering is not None):
        raise click.UsageError("a --no- option excludes the option that it takes back")
    named_empty = {"--partition-by": partition_by, "--bucket-by": bucket_by, "--ordering": ordering}
    for option, text in named_empty.items():
        if text is not None and not text.strip(" ,"):
            message = f"{option} names no column"  # often a variable of a shell that is not set
            raise click.UsageError(message)
    asked = None
    if source is not None:
        asked = WantedSource(SourceAddress.of(source), source_options, given=True)
    request = RepushRequest(
        buckets=buckets,
        partition_by=() if no_partitions else _names(partition_by),
        ordering="" if no_ordering else ordering,
        table_type=table_type,
        properties=with_order(properties, _names(sort_by)),
        rows_per_task=rows_per_task,
        bucket_by=_names(bucket_by),
        source=asked,
        expire=Ttl.of(expire),
        commit_id=commit_id,
    )
    named = request != RepushRequest(rows_per_task=rows_per_task)
    if source_options and source is None and named:
        raise click.UsageError("--source-option needs --source")
    if (cancel and undo) or ((cancel or undo) and (named or dry_run)):
        raise click.UsageError("--cancel takes no other option, and --undo only --version")
    if version is not None and not undo:
        raise click.UsageError("--version needs --undo")
    table = open_table(app, uri, storage)
    if cancel:
        _cancel(app, table)
    elif undo:
        _show(app, _told(app, table).layout.undo(version), None)
    else:
        request = request if named else _open_one(table, source_options)
        _run(app, table, request, dry_run=dry_run, yes=yes)


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(each for name in _ITEM.findall(text) if (each := name.strip()))


def _open_one(table: Table, source_options: dict[str, str]) -> RepushRequest:
    opened = handle_of(table).cache.refresh().table.repush
    if opened is None:
        message = "name what is to change, such as --buckets 64; no repush is open to go on with"
        raise click.UsageError(message)
    request = resumed(opened)
    if request.source is None:
        return request
    return replace(request, source=replace(request.source, options=source_options))


def _cancel(app: Application, table: Table) -> None:
    result = table.layout.cancel()
    version = None if result is None else result.version
    if version is None:
        app.note("no repush is open")
    app.show({"cancelled": version is not None, "version": version}, Facts((("version", version),)))


def _run(
    app: Application, table: Table, request: RepushRequest, *, dry_run: bool, yes: bool
) -> None:
    """Show or do it; what replaces or removes rows asks first."""
    described = table.inspect.describe()
    require_layout(handle_of(table), request)
    layout = request.layout_for(handle_of(table).cache.known().table).to_dict()
    old = None if request.expire is None else plan_expiry(handle_of(table), request.expire)
    source = _source(table, request)
    plan = {
        "now": {name: described[name] for name in layout},
        "then": layout,
        "properties": dict(request.properties),
        "source": None if source is None else source.to_dict(),
        "expire": None if old is None else old.to_dict(),
        "open": "repush" in described,
        **{name: described[name] for name in ("rows", "files", "bytes")},
    }
    facts: tuple[tuple[str, object], ...] = (
        ("now", layout_text(described)),
        ("then", layout_text(layout)),
        *request.properties.items(),
        *_amounts(described, source),
        *([("rows to look at that may expire", _candidates(old))] if old else []),
        ("open already", plan["open"]),
    )
    if dry_run:
        app.show({"plan": plan, "dry_run": True, "report": None}, Facts(facts))
        return
    if (source is not None or old is not None) and not plan["open"]:
        what = "remove the old rows" if source is None else "replace the rows of the table"
        app.ask(f"{what}?", {"plan": plan}, Facts(facts), yes=yes)
    _show(app, run_repush(handle_of(_told(app, table)), request), plan)


def _source(table: Table, request: RepushRequest) -> RepushSource | None:
    """Look at the source; that of an open repush is what it was."""
    state = handle_of(table).cache.known()
    opened = state.table.repush
    if opened is not None or request.source is None:
        return None if opened is None else opened.source
    if is_over(handle_of(table), state, request.commit_id):
        return None
    found = request.source.find(handle_of(table), state)
    found.require_fits(state.table.spec)
    return found.source


def _amounts(
    described: Mapping[str, object], source: RepushSource | None
) -> tuple[tuple[str, object], ...]:
    if source is None:
        copied = number(int(str(described["rows"])))
        return ("rows to copy", copied), ("bytes to copy", size(int(str(described["bytes"]))))
    return (
        ("source", f"{source.address} (version {source.version})"),
        ("rows to copy", number(source.rows)),
        ("rows to replace", number(int(str(described["rows"])))),
    )


def _candidates(plan: ExpiryPlan) -> str:
    return number(sum(task.rows for task in plan.tasks))


def _told(app: Application, table: Table) -> Table:
    """Return the table as a client that tells how far it is."""
    handle = handle_of(table)
    return Table(replace(handle, ports=replace(handle.ports, observer=_Teller(app))))


def _show(app: Application, report: RepushReport, plan: object) -> None:
    if report.version is None:
        app.note("another process ended this repush")
    facts = (
        ("swapped in version", report.version),
        *([("source", report.source)] if report.source else []),
        *([("rows expired", number(report.rows_expired))] if report.rows_expired else []),
        ("rows loaded", number(report.rows_loaded)),
        ("rows followed", number(report.rows_followed)),
        ("rows kept", number(report.rows_kept)),
        ("rounds", number(report.rounds)),
        *((f"{name} took", duration(int(spent * 1000))) for name, spent in report.seconds.items()),
    )
    data = {"dry_run": False, "report": report.to_dict()}
    app.show(data if plan is None else {"plan": plan, **data}, Facts(facts))
