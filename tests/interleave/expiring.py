"""Writers of both table types beside an expiry and a compaction, with real Parquet."""

from __future__ import annotations

import datetime as dt
from functools import cache

import pyarrow as pa

from plait import Table, Ttl
from plait.definition.create import define_table
from plait.errors import CommitError
from plait.model.decision import CommitResult
from plait.testing import SeqIds, SimClock, sim_ports
from plait.txn.read_pin import TTL_S
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import TableHandle
from tests.interleave.actors import recover_dead
from tests.interleave.real import clean, compact, scan, values
from tests.scheduler import CALL_EVENTS, End, Scenario, Start
from tests.support.build import LITTLE
from tests.support.protocol import client, memory

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string()), ("at", pa.timestamp("us", "UTC"))])
OLD, NEW = dt.datetime(2001, 1, 1, tzinfo=dt.UTC), dt.datetime(2901, 1, 1, tzinfo=dt.UTC)
EXPIRED = (6, 7, 8)
FILES = ((1, 2, 3, 6), (4, 7), (1, 8))


def rows(value: str, *ids: int) -> pa.Table:
    times = [OLD if number in EXPIRED else NEW for number in ids]
    return pa.table({"id": ids, "value": [value] * len(ids), "at": times}, schema=SCHEMA)


def put_two(handle: TableHandle) -> CommitResult:
    return Table(handle).upsert(rows("new", 2, 5))


def drop_two(handle: TableHandle) -> CommitResult:
    """Delete a row that stays and one that expires."""
    with Table(handle).writer("delete", on_conflict="retry") as writer:
        writer.write(pa.table({"id": pa.array([4, 7], pa.int64())}))
    return writer.result


def expire(handle: TableHandle) -> object:
    report = Table(handle).maintenance.expire()
    assert all(each.rebased == 0 for each in report.commits)
    return report


def check(end: End) -> None:
    """What stays follows from who committed; what expired never comes back; nobody was refused."""
    handle = end.handle()
    history = handle.cache.refresh().commits(end.store).to_pylist()
    done = {
        name
        for name, each in end.outcomes.items()
        for row in history
        if row["operation"] in ("upsert", "delete")
        and row["instant"].rsplit("-", 1)[-1].startswith(each.nonces)
    }
    expected = dict.fromkeys((1, 2, 3, 4), "old")
    if "a" in done:
        expected |= {2: "new", 5: "new"}
    if "b" in done:
        del expected[4]
    table = Table(handle)
    found = values(table)
    left = found.keys() & set(EXPIRED)
    assert {i: v for i, v in found.items() if i not in EXPIRED} == expected, f"{sorted(done)}"
    if any(row["operation"] == "expire" for row in history):
        gone: set[int] = set()
        shown = {8, 7, 6}
        for version in range(handle.cache.known().horizon, table.version + 1):
            now = set(table.scan(version=version).to_arrow()["id"].to_pylist())
            assert not now & gone, f"{now & gone} came back in version {version}"
            gone |= shown - now if version >= len(FILES) + 1 else set()
    assert not ("b" in done and 7 in left)
    if set(end.outcomes) == {"a", "e"}:  # there is nobody else who could be in its way
        error = end.outcomes["a"].error
        assert not isinstance(error, CommitError), f"INV-15: {error}"


@cache
def start(table_type: str, retries: int) -> Start:
    """Make a table of which some rows in each file have expired."""
    clock = SimClock()
    store = memory(clock)
    definition = define_table(
        SCHEMA,
        record_key=("id",),
        buckets=1,
        table_type=table_type,
        lock="none",
        properties={**LITTLE, "clean.retain.versions": "40", "commit.retries": retries},
        ttl=Ttl("at", 86_400),
    )
    create_table(store, sim_ports(ids=SeqIds("0")), definition)
    table = Table(client(store, clock, nonces="8"))
    for ids in FILES:
        table.upsert(rows("old", *ids))
    return Start.of(store)


def expiring(table_type: str) -> Scenario:
    """Make a scenario of writers beside two expiries and a compaction."""
    acts = {"a": put_two, "b": drop_two, "e": expire, "g": expire, "h": compact}
    return Scenario(
        f"expiries beside {table_type} writers",
        start(table_type, 20),
        {**acts, "c": clean, "d": recover_dead, "f": scan},
        check=check,
        events=CALL_EVENTS,
        jumps=(TTL_S / 5 + 1,),
        beats=1,
        lock_lost=True,
    )


def expiring_one(table_type: str) -> Scenario:
    """Make a short one: a writer that may not retry beside one expiry."""
    return Scenario(
        f"a {table_type} writer and an expiry",
        start(table_type, 0),
        {"a": put_two, "e": expire},
        check=check,
    )
