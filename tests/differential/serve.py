"""What services do on the real table, and what they tell."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from plait import InstantExpiredError, InstantNotFoundError, OptionError, Table
from plait.model.words import TableType
from plait.queries.lookup import look_up
from tests.differential.program import COLUMNS, Serve

STREAM = "s"
"""The application of every epoch."""
SAVED = "kept"
IDS = range(-1, 60)
"""Every key of a history, and some that are nowhere."""


@dataclass(frozen=True, slots=True)
class Undid:
    """What a restore told."""

    version: int | None
    """Of its decision; None if the table was as wanted."""
    to: int
    shown: int
    """The version of the plan that its caller saw."""
    undone: tuple[int, ...]
    returned: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a replay told."""

    version: int | None
    """Of its decision; None if there was nothing to decide."""
    commit_ids: tuple[str, ...]
    back: int | None
    """The epoch after which the stream goes on, -1 for the beginning; None: it was not set back."""


Served = Undid | Allowed


def serve(table: Table, turn: Serve) -> Served | None:
    """Do what a turn says; give what was told, where a judge asks for it."""
    if turn.kind in SERVICES:
        SERVICES[turn.kind](table)
        return None
    return _replay(table) if turn.kind == "replay" else _restore(table, turn)


def _restore(table: Table, turn: Serve) -> Undid:
    if turn.kind == "undo":
        plan = table.versions.undo(dry_run=True)
    elif turn.kind == "saved":
        plan = table.versions.restore(savepoint=SAVED, dry_run=True)
    else:
        plan = table.versions.restore(version=max(0, table.version - turn.back), dry_run=True)
    report = table.versions.restore(plan, replay=turn.replay)
    undone, returned = (
        tuple(sorted(each.version for each in commits))
        for commits in (report.plan.reverted, report.plan.returned)
    )
    return Undid(report.version, report.plan.to, plan.version, undone, returned)


def _replay(table: Table) -> Allowed:
    report = table.versions.replay()
    tokens = {each.application: each.token for each in report.plan.applications}
    token = tokens.get(STREAM)
    back = (-1 if token is None else token.epoch) if STREAM in tokens else None
    return Allowed(report.version, report.plan.commit_ids, back)


def _roll_back(table: Table) -> None:
    for entry in table.inspect.timeline().pending:
        table.maintenance.rollback(entry.instant)


def _rebuild(table: Table) -> None:
    table.alter.set({"metadata.statistics": "on"})
    table.maintenance.rebuild_metadata()


def _repush(table: Table) -> None:
    """Lay the table out in another way; one bucket stays one, since a promise hangs on it."""
    spec = table._handle.cache.refresh().table.spec
    other: TableType = "cow" if spec.layout.table_type == "mor" else "mor"
    count = spec.layout.buckets.count
    buckets = None if not spec.keyed else 1 if count == 1 else 5 - count
    table.layout.repush(buckets=buckets, table_type=other, rows_per_task=2)


def _alter(table: Table) -> None:
    """Put the last column first: no row looks otherwise by the names of its columns."""
    table.alter.columns().move(table.schema.names[-1], after="").commit()


def _undo_repush(table: Table) -> None:
    with suppress(InstantNotFoundError):  # none came to its end
        table.layout.undo()


def _index(table: Table) -> None:
    """Give the table an index, or make it anew."""
    if table.index.create() is None:
        table.index.build(anew=True)


def _unindex(table: Table) -> None:
    with suppress(OptionError):  # there is none
        table.index.drop()


def look(table: Table) -> bool:
    """Look every key up, and keys that are nowhere; tell whether an index was asked.

    Raises:
        AssertionError: a look-up gives other rows than a scan of its version.
    """
    found = look_up(table._handle, list(IDS), COLUMNS)
    with suppress(InstantExpiredError):
        there = table.scan(columns=COLUMNS, version=found.version).to_arrow()
        rows = [sorted(map(repr, each.to_pylist())) for each in (found.rows, there)]
        if rows[0] != rows[1]:
            message = f"a look-up through {found.through} gives {rows[0]}, a scan {rows[1]}"
            raise AssertionError(message)
    return found.through == "index"


SERVICES: dict[str, Callable[[Table], object]] = {
    "alter": _alter,
    "archive": lambda table: table.maintenance.archive(),
    "clean": lambda table: table.maintenance.clean(),
    "cluster": lambda table: table.maintenance.cluster(order_by=["v", "n"], kind="hilbert"),
    "compact": lambda table: table.maintenance.compact(full=True),
    "expire": lambda table: table.maintenance.expire(),
    "index": _index,
    "look": look,
    "order": lambda table: table.maintenance.cluster(),
    "publish": lambda table: table.maintenance.publish(),
    "rebuild": _rebuild,
    "repush": _repush,
    "rollback": _roll_back,
    "save": lambda table: table.versions.savepoint(SAVED),
    "undo_repush": _undo_repush,
    "unindex": _unindex,
    "set": lambda table: table.alter.set({"lock.wait": "58s"}),
}
"""Services by name; ``order`` puts rows in the order that the table records."""
