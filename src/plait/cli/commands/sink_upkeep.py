"""Parts of ``tablectl sink``: the table is created, the status shown, the sink moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plait.cli.application import Application
from plait.cli.exits import CheckFailedError, NotKnownError
from plait.cli.schema_text import schema_text
from plait.cli.view import Facts, Grid, duration, number, time_short
from plait.definition.create import define_table
from plait.errors import OptionError, TableNotFoundError
from plait.kafka.client import Clients
from plait.kafka.inference import infer_schema
from plait.kafka.preflight import require_rights
from plait.kafka.seeking import SeekPlan, plan_seek, seek
from plait.kafka.settings import JSON, SinkSettings
from plait.kafka.status import UNDONE, sinks_of, status_of
from plait.kafka.task import check_sink
from plait.model.history import PendingEntry
from plait.table import Table

INFER = "infer"


def create_table(
    app: Application,
    settings: SinkSettings,
    uri: str,
    storage: Mapping[str, str],
    *,
    schema: str,
    key: Sequence[str],
) -> None:
    """Create the table of a sink unless it exists, also if another process does so now.

    Nothing is created if the sink could not work with it.

    Raises:
        SchemaError: the schema cannot be stored, or none can be inferred, or it lacks a column.
        OptionError: the key is no column, or the settings do not fit the table.
        TableNotFoundError: a topic is not there.
        AccessDeniedError: the sink could not run: its user lacks a right on the brokers.
        StorageError: the brokers do not answer.
    """
    if schema == INFER and settings.format != JSON:
        message = f"a schema cannot be inferred from {settings.format} values"
        hint = "pass it: --create 'id bigint, ...'"
        raise OptionError(message, hint=hint, key="create", value=schema)
    try:
        Table.open(uri, storage_options=storage or None, allow=app.allowed)
    except TableNotFoundError:
        clients = Clients(settings.bootstrap, settings.client)
        require_rights(clients, settings)
        columns: object = schema_text(schema)
        if schema == INFER:
            columns = infer_schema(clients, settings.topics, settings.name)
        check_sink(clients, settings, define_table(columns, record_key=key).spec)
        Table.create(
            uri,
            columns,
            record_key=key,
            if_not_exists=True,
            storage_options=storage or None,
            allow=app.allowed,
        )


def show_status(app: Application, table: Table, name: str, clients: Clients | None) -> None:
    """Show how far a sink is; exit 8 if a partition cannot go on."""
    name = name or _only_sink(table)
    found = status_of(table, name, clients)
    coordinator = found.coordinator
    facts = Facts(
        (
            ("sink", found.sink),
            ("epoch", number(found.epoch)),
            ("version", number(found.version)),
            ("committed (UTC)", time_short(found.committed_ms)),
            ("rows a second", found.rows_per_s),
            ("coordinator", _who(coordinator)),
            ("lag", None if found.lag is None else number(found.lag)),
        )
    )
    rows: list[list[object]] = [
        [str(p.source), p.offset.number, p.end, p.lag, p.problem] for p in found.partitions
    ]
    grid = Grid(("partition", ">in the table to", ">end", ">lag", "problem"), rows)
    app.show(found.to_dict(), facts, grid, items=[each.to_dict() for each in found.partitions])
    stuck = [each for each in found.partitions if each.problem]
    if stuck:
        message = f"{stuck[0].source} cannot go on: {stuck[0].problem}"
        hint = "tablectl sink seek continues elsewhere, and records it"
        if stuck[0].problem == UNDONE:
            hint = "tablectl replay lets the sink read these records again"
        raise CheckFailedError(message, hint=hint)


@dataclass(slots=True)
class Seeking:
    """Lets a sink continue elsewhere: plan, ask, decide."""

    app: Application
    table: Table
    name: str
    """Name of the sink; empty if the table has only one."""
    _plan: SeekPlan | None = None

    def plan(self, clients: Clients, places: tuple[str, ...], drop: tuple[str, ...]) -> None:
        """Find what ``[WHERE=]PLACE`` and the topics to drop stand for."""
        self.name = self.name or _only_sink(self.table)
        wanted = {where: place for where, _, place in (each.rpartition("=") for each in places)}
        self._plan = plan_seek(self.table, self.name, clients, wanted, drop)

    def execute(self, *, again: bool, dry_run: bool, yes: bool) -> None:
        """Show the plan; ask, and decide it."""
        plan = self._plan or SeekPlan(None, ())
        grid = Grid(
            ("partition", "is read next at", "will be read next at"),
            [[str(each.source), each.before, each.after or "dropped"] for each in plan.moves],
        )
        data = {"sink": self.name, "moves": [each.to_dict() for each in plan.moves]}
        if dry_run:
            self.app.show({**data, "dry_run": True, "version": None}, grid)
            return
        plan.require(again=again)
        self.app.ask(f"let sink {self.name!r} continue there?", data, grid, yes=yes)
        version = seek(self.table, self.name, plan, again=again)
        facts = Facts((("decided in version", version),))
        self.app.show({**data, "dry_run": False, "version": version}, facts, grid)


def _only_sink(table: Table) -> str:
    names = sinks_of(table)
    if len(names) != 1:
        message = "the table has several sinks" if names else "the table has no Kafka sink"
        hint = f"pass --name, one of {', '.join(names)}" if names else "a sink begins by its start"
        raise NotKnownError(message, hint=hint)
    return names[0]


def _who(turn: PendingEntry | None) -> str:
    if turn is None:
        return ""
    life = "" if turn.alive else f", silent for {duration(turn.silent_ms)}"
    return f"{turn.host} process {turn.pid}{life}"
