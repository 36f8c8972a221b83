"""Changes of columns beside writers of real Parquet, a compaction and each other (RFC 0027)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa

from plait import Table
from plait.definition.create import define_table
from plait.errors import (
    BadRecordError,
    ConstraintError,
    PredicateError,
    RetryableConflictError,
    SchemaError,
    SchemaMismatchError,
    TableError,
)
from plait.model.decision import Decision
from plait.model.words import Evolve
from plait.services.definition.alter import Alteration
from plait.testing import SeqIds, SimClock, sim_ports
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import TableHandle
from tests.interleave.columns import Column, ColumnsCheck, Part, Past, Row, Shown, began
from tests.interleave.real import compact
from tests.scheduler import CALL_EVENTS, Oracle, Scenario, Start
from tests.scheduler.oracle import NATURAL
from tests.support.build import LITTLE
from tests.support.effort import MORE
from tests.support.protocol import client, memory

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("n", pa.int32()), ("note", pa.string())]
)
VERIFIED = MORE
FILES = ((1, 2, 3), (4,), (1,))
"""The keys that each file brings; one row of the first is hidden where logs are kept."""


def rows(note: str, *ids: int, sign: int = 1) -> pa.Table:
    numbers = [sign * 10 * number for number in ids]
    return pa.table({"id": ids, "n": numbers, "note": [note] * len(ids)}, schema=SCHEMA)


# --- writers -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Put:
    """Upsert rows, in the columns that the table had when it was made and maybe one more."""

    ids: tuple[int, ...]
    note: str | None = "new"
    sign: int = 1
    brings: tuple[str, object, pa.DataType] | None = None

    @property
    def table(self) -> pa.Table:
        made = rows(self.note or "", *self.ids, sign=self.sign)
        if self.note is None:
            made = made.set_column(2, "note", pa.nulls(len(self.ids), pa.string()))
        if self.brings is not None:
            name, value, kind = self.brings
            made = made.append_column(name, pa.array([value] * len(self.ids), kind))
        return made

    def __call__(self, handle: TableHandle) -> object:
        evolve: Evolve = "none" if self.brings is None else "add"
        return Table(handle).upsert(self.table, on_conflict="retry", evolve=evolve)

    def effect(self, past: Past, decision: Decision) -> Shown:
        shown, then = past.newest, past.versions[began(decision)]
        known = {each.name: each.identity for each in then.columns}
        for column in self.table.schema:
            if column.name in known:
                continue
            assert self.brings is not None, f"nobody asked for {column.name}"
            if shown.find(column.name) is None:
                made = Column(f"{decision.version}.{column.name}", column.name, column.type)
                shown = shown.added(made)
            found = shown.find(column.name)
            assert found is not None
            known[column.name] = found.identity
        for row in self.given:
            key = int(str(row["id"]))
            shown = shown.put(key, {known[name]: value for name, value in row.items()})
        return shown

    def may_refuse(self, error: TableError, past: Past) -> bool:
        if isinstance(error, BadRecordError):
            return past.ever(lambda shown: any(map(shown.broken_by, self.given)))
        if type(error) is SchemaMismatchError:  # it began when its rows did not fit any more
            mine = {(each.name, each.type) for each in self.table.schema}
            return past.ever(
                lambda shown: {(each.name, each.kind) for each in shown.columns} != mine
            )
        return type(error) is RetryableConflictError and past.ever(self._stands_for_another)

    def _stands_for_another(self, shown: Shown) -> bool:
        """Tell whether the name of what it brings is that of a column which it cannot be."""
        found = None if self.brings is None else shown.find(self.brings[0])
        if found is None or self.brings is None:
            return False
        return found.kind != self.brings[2] or found.identity in SCHEMA.names

    @property
    def given(self) -> list[dict[str, object]]:
        return [dict(row) for row in self.table.to_pylist()]


@dataclass(frozen=True)
class ByName:
    """Delete or update by an expression: it is refused if its column has another name meanwhile."""

    run: Callable[[Table], object]
    change: Callable[[Shown], Shown]

    def __call__(self, handle: TableHandle) -> object:
        return self.run(Table(handle))

    def effect(self, past: Past, decision: Decision) -> Shown:
        assert past.versions[began(decision)].find("n") is not None
        return self.change(past.newest)

    def may_refuse(self, error: TableError, past: Past) -> bool:
        named = (RetryableConflictError, SchemaMismatchError, PredicateError)
        return isinstance(error, named) and past.ever(_renamed)


def _renamed(shown: Shown) -> bool:
    """Tell whether a column of the first rows has another name, or is gone."""
    there = {(each.identity, each.name) for each in shown.columns}
    return any((name, name) not in there for name in SCHEMA.names)


def _without(key: int) -> Callable[[Shown], Shown]:
    return lambda shown: replace(
        shown, rows={number: row for number, row in shown.rows.items() if number != key}
    )


def _one_more(shown: Shown) -> Shown:
    row = shown.rows[1]
    number = row["n"]
    assert isinstance(number, int)
    return replace(shown, rows={**shown.rows, 1: {**row, "n": number + 1}})


@dataclass(frozen=True)
class Same:
    """Do what changes no row."""

    run: Callable[[TableHandle], object]

    def __call__(self, handle: TableHandle) -> object:
        return self.run(handle)

    def effect(self, past: Past, _: Decision) -> Shown:
        return past.newest

    def may_refuse(self, _error: TableError, _past: Past) -> bool:
        return False


# --- changes of columns --------------------------------------------------------------------------

Ask = Callable[[Alteration], Alteration]
Become = Callable[[Shown, int], Shown]
"""What the table is after an alteration, which was decided in a version."""


Holds = Callable[[Row], bool]


@dataclass(frozen=True)
class Alter:
    """Change columns in one decision."""

    ask: Ask
    become: Become
    needs: tuple[str, ...] = ()
    """Names of columns without which it is refused."""
    takes: tuple[str, ...] = ()
    """Names of columns and checks with which it is refused."""
    holds: Holds = lambda _: True
    """What no row may break, so that it is not refused."""

    def __call__(self, handle: TableHandle) -> object:
        return self.ask(Table(handle).alter.columns()).commit()

    def effect(self, past: Past, decision: Decision) -> Shown:
        return self.become(past.newest, decision.version)

    def may_refuse(self, error: TableError, past: Past) -> bool:
        if isinstance(error, ConstraintError):
            return past.ever(lambda shown: not all(map(self.holds, shown.rows.values())))
        return isinstance(error, (SchemaError, PredicateError)) and past.ever(self._impossible)

    def _impossible(self, shown: Shown) -> bool:
        there = {*shown.rules, *(each.name for each in shown.columns)}
        return not there.issuperset(self.needs) or not there.isdisjoint(self.takes)


def _adding(name: str, default: int | None = 7) -> Become:
    def become(shown: Shown, version: int) -> Shown:
        return shown.added(Column(f"{version}.{name}", name, pa.int32(), default=default))

    return become


def _not_negative(row: Row) -> bool:
    number = row.get("n")
    return not isinstance(number, int) or number >= 0


def _checked(shown: Shown, _: int) -> Shown:
    return replace(shown, rules={**shown.rules, "positive": _not_negative})


def _ten_times(row: Row) -> bool:
    return row.get("n") == 10 * int(str(row["id"]))


def _generated(shown: Shown, _: int) -> Shown:
    return replace(shown, rules={**shown.rules, "n generated": _ten_times})


def _reshaped(shown: Shown, version: int) -> Shown:
    shown = shown.edited("n", name="m", kind=pa.int64()).dropped("note")
    return _adding("extra")(shown, version)


PARTS: Mapping[str, Part] = {
    "put": Put((2, 5)),
    "put bad": Put((2, 5), sign=-1),
    "put null": Put((2, 5), note=None),
    "bring": Put((6,), brings=("extra", 60, pa.int32())),
    "bring same": Put((7,), brings=("extra", 70, pa.int32())),
    "bring other": Put((7,), brings=("other", "seven", pa.string())),
    "delete": ByName(lambda table: table.delete(where="n = 40", on_conflict="retry"), _without(4)),
    "update": ByName(
        lambda table: table.update({"n": "n + 1"}, where="id = 1", on_conflict="retry"), _one_more
    ),
    "compact": Same(compact),
    "add": Alter(lambda a: a.add("extra", "int", default=7), _adding("extra"), takes=("extra",)),
    "add other": Alter(
        lambda a: a.add("other", "int", default=7), _adding("other"), takes=("other",)
    ),
    "rename": Alter(
        lambda a: a.rename("n", "m"), lambda shown, _: shown.edited("n", name="m"), ("n",), ("m",)
    ),
    "rename and add": Alter(
        lambda a: a.rename("n", "m").add("n", "int"),
        lambda shown, v: _adding("n", None)(shown.edited("n", name="m"), v),
        ("n",),
        ("m",),
    ),
    "widen": Alter(
        lambda a: a.widen("n", "bigint"),
        lambda shown, _: shown.edited("n", kind=pa.int64()),
        ("n",),
    ),
    "drop": Alter(lambda a: a.drop("note"), lambda shown, _: shown.dropped("note"), ("note",)),
    "drop and add": Alter(
        lambda a: a.drop("note").add("note", "int", default=7),
        lambda shown, v: _adding("note")(shown.dropped("note"), v),
        ("note",),
    ),
    "reshape": Alter(
        lambda a: (
            a.rename("n", "m").widen("m", "bigint").drop("note").add("extra", "int", default=7)
        ),
        _reshaped,
        ("n", "note"),
        ("m", "extra"),
    ),
    "check": Alter(
        lambda a: a.add_check("positive", "n >= 0"), _checked, ("n",), ("positive",), _not_negative
    ),
    "require": Alter(
        lambda a: a.require("note"),
        lambda shown, _: shown.edited("note", nullable=False),
        ("note",),
        holds=lambda row: row.get("note") is not None,
    ),
    "generate": Alter(
        lambda a: a.generate("n", "CAST(id * 10 AS int)"), _generated, holds=_ten_times
    ),
}
"""What actors do; rows of writers have keys of their own, so that no two of them conflict."""


@cache
def start(table_type: str) -> tuple[Start, Mapping[int, Shown]]:
    """Make a table, and say what its versions show."""
    clock = SimClock()
    store = memory(clock)
    definition = define_table(
        SCHEMA,
        record_key=("id",),
        buckets=1,
        table_type=table_type,
        lock="none",
        properties={**LITTLE, "clean.retain.versions": "40"},
    )
    create_table(store, sim_ports(ids=SeqIds("0")), definition)
    table = Table(client(store, clock, nonces="8"))
    columns = [Column(each.name, each.name, each.type, each.nullable) for each in SCHEMA]
    shown = {0: Shown(tuple(columns), {})}
    for version, ids in enumerate(FILES, 1):
        put = Put(ids, "old")
        table.upsert(put.table)
        now = shown[version - 1]
        for row in put.given:
            now = now.put(int(str(row["id"])), row)
        shown[version] = now
    return Start.of(store), shown


def altering(table_type: str, *names: str, events: bool = False) -> Scenario:
    """Make a scenario of these parts of ``PARTS``."""
    first, shown = start(table_type)
    parts = {chr(ord("a") + at): PARTS[name] for at, name in enumerate(names)}
    made = Scenario(
        f"{' | '.join(names)} on a {table_type} table",
        first,
        parts,
        check=ColumnsCheck(parts, shown, verified=VERIFIED),
        oracle=Oracle(natural=(*NATURAL, SchemaError, PredicateError)),
    )
    return replace(made, events=CALL_EVENTS, events_max=2) if events else made


LONG = [
    ("cow", ("reshape", "put", "update", "compact")),
    ("mor", ("rename", "add other", "bring", "delete", "compact")),
    ("cow", ("check", "put bad", "require", "put null")),
    ("mor", ("bring", "bring other", "drop and add", "update")),
]


def altering_scenarios() -> tuple[Scenario, ...]:
    """Make the long ones anew."""
    return tuple(altering(table_type, *names, events=True) for table_type, names in LONG)
