"""Writers that send to one sink and change little: absent keys, rows that lose, keys that return.

What a status calls in step, with nobody at work, is equal to the table, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from plait import Table
from plait.definition.create import define_table
from plait.model.decision import CommitResult
from plait.model.sink_ledger import SinkPosition
from plait.model.words import WriteOperation
from plait.replicate import Replicas, repair, status
from plait.replicate.lane import Retries
from plait.storage.port import Store
from plait.testing import SeqIds, SimClock, sim_ports
from plait.timeline.replica_records import write_position
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import TableHandle
from tests.interleave.sinking import Unlike
from tests.scheduler import CALL_EVENTS, End, Scenario, Start
from tests.support.build import LITTLE
from tests.support.protocol import client, memory
from tests.support.sinks import PLACES, KeyValueSink, Place

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string()), ("o", pa.int64())])
THERE, ABSENT, HEAD = 1, 7, 1
FIRST = {"id": [THERE, 2], "value": ["old", "old"], "o": [3, 3]}


def place_of(store: Store) -> str:
    """Return the name of the sink: each schedule has its own."""
    return "kv-" + store.address.uri.rsplit("/", 1)[-1].replace(":", "-")


def rows_of(value: str, order: int, *ids: int) -> pa.Table:
    columns = {"id": ids, "value": [value] * len(ids), "o": [order] * len(ids)}
    return pa.table(columns, schema=SCHEMA)


def keys_of(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def sends(
    operation: WriteOperation, *data: tuple[str, pa.Table]
) -> Callable[[TableHandle], CommitResult]:
    """Return a writer that sends rows, and keys to remove, a row at a time."""

    def act(handle: TableHandle) -> CommitResult:
        sink = KeyValueSink(place_of(handle.store))
        replicas = Replicas([sink], retries=Retries(attempts=1))
        with Table(handle).writer(operation, replicas=replicas) as writer:
            for how, rows in data:
                (writer.remove if how == "remove" else writer.write)(rows)
        return writer.result

    return act


def mends(handle: TableHandle) -> object:
    """Repair the sink beside writers."""
    return repair(Table(handle), KeyValueSink(place_of(handle.store)))


ACTORS: Mapping[str, Callable[[TableHandle], object]] = {
    "put": sends("upsert", ("write", rows_of("put", 5, ABSENT))),
    "gone": sends("delete", ("write", keys_of(ABSENT))),
    "lost": sends("upsert", ("write", rows_of("lost", 1, THERE))),
    "drop": sends("delete", ("write", keys_of(THERE))),
    "both": sends("upsert", ("write", rows_of("both", 4, THERE)), ("remove", keys_of(ABSENT))),
    "back": sends("upsert", ("remove", keys_of(THERE)), ("write", rows_of("back", 2, THERE))),
    "mend": mends,
}


@dataclass(frozen=True)
class EqualCheck:
    """D5: what is called in step is equal."""

    def __call__(self, end: End) -> None:
        table, name = Table(end.handle()), place_of(end.store)
        told = next((each for each in status(table) if each.sink == name), None)
        if told is None or not told.in_step or told.pending:
            return
        shown = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
        held = {key[0]: row for key, row in PLACES[name].rows.items()}
        assert shown == held, f"D5: called in step, and the table has {shown}, the sink {held}"


@cache
def start(kind: str, *, ordered: bool) -> Start:
    clock = SimClock()
    store = memory(clock)
    definition = define_table(
        SCHEMA,
        record_key=("id",),
        buckets=1,
        table_type=kind,
        ordering="o" if ordered else None,
        lock="none",
        properties=LITTLE,
    )
    create_table(store, sim_ports(ids=SeqIds("0")), definition)
    Table(client(store, clock, nonces="8")).upsert(pa.table(FIRST, schema=SCHEMA))
    return Start.of(store)


def fresh_sink(store: Store) -> Store:
    """Give the sink the rows of the table, and nothing else; say that they were compared."""
    name, rows = place_of(store), pa.table(FIRST, schema=SCHEMA).to_pylist()
    PLACES[name] = Place({(row["id"],): row for row in rows})
    write_position(store, SinkPosition(name, HEAD))
    return store


def sending(
    *actors: str, kind: str = "cow", ordered: bool = True, events: bool = False
) -> Scenario:
    """Make a scenario of these actors on a table and a sink with the same rows."""
    return Scenario(
        f"{' '.join(actors)} to a sink",
        start(kind, ordered=ordered),
        {chr(97 + at): ACTORS[name] for at, name in enumerate(actors)},
        check=EqualCheck(),
        events=CALL_EVENTS if events else (),
        wrap=fresh_sink,
        oracle=Unlike(sends("upsert", ("write", rows_of("next", 9, 1, 2, 7)))),
    )


LONG = (("put", "gone", "mend"), ("lost", "drop", "back"), ("both", "put", "drop"))


def sending_scenarios() -> tuple[Scenario, ...]:
    """Make the long ones anew."""
    return tuple(sending(*actors, events=True) for actors in LONG)
