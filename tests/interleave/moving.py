"""Clients that bring one key into different partitions of a table where it is unique (RFC 0030)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from unittest import mock

import pyarrow as pa

from plait import DuplicateKeyError, Table
from plait.definition.create import define_table
from plait.testing import SeqIds, SimClock, sim_ports
from plait.txn.conflict import Judge
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import TableHandle
from tests.interleave.actors import LITTLE, recover_dead
from tests.scheduler import Act, End, Scenario, Start
from tests.support.protocol import client, memory

SCHEMA = pa.schema([("id", pa.int64()), ("place", pa.string()), ("by", pa.string())])
_KEPT = {**LITTLE, "clean.retain.versions": "100"}


def rows(place: str, by: str, *ids: int) -> pa.Table:
    columns = [list(ids), [place] * len(ids), [by] * len(ids)]
    return pa.table([pa.array(each) for each in columns], schema=SCHEMA)


def mover(place: str) -> Act:
    """Move a row, and write a new one."""

    def act(handle: TableHandle) -> object:
        return Table(handle).upsert(rows(place, place, 1, 5), on_conflict="retry")

    return act


def inserter(place: str) -> Act:
    def act(handle: TableHandle) -> object:
        try:
            return Table(handle).insert(rows(place, place, 5, 6), on_conflict="retry")
        except DuplicateKeyError:
            return "refused"

    return act


def drop(handle: TableHandle) -> object:
    """Delete by key alone, wherever the row is."""
    return Table(handle).delete(keys=pa.table({"id": pa.array([1])}), on_conflict="retry")


def compact(handle: TableHandle) -> object:
    return Table(handle).maintenance.compact(full=True)


ACTS: Mapping[str, Act] = {
    "a": mover("b"),
    "b": mover("c"),
    "i": inserter("c"),
    "j": inserter("d"),
    "k": drop,
    "e": compact,
    "d": recover_dead,
}


def check(end: End) -> None:
    """INV-08 at each version; and a commit is whole: its rows have one writer, and lie together."""
    table = Table(end.handle())
    for version in range(table.version + 1):
        found = table.scan(version=version).to_arrow().to_pylist()
        ids = sorted(row["id"] for row in found)
        assert len(ids) == len(set(ids)), f"INV-08: version {version} has {found}"
        assert {2, 3} <= set(ids) or version < FIRST, f"version {version} lost rows: {found}"
        assert all(row["by"] in ("old", row["place"]) for row in found), found
        if "k" not in end.outcomes:
            assert 1 in ids or version < FIRST, f"version {version} lost a row: {found}"
    assert not table.check.verify().problems


FIRST = 2
"""The version from which on all rows are there."""


@cache
def start(table_type: str, policy: str) -> Start:
    clock = SimClock()
    store = memory(clock)
    definition = define_table(
        SCHEMA,
        record_key=("id",),
        partition_by=("place",),
        buckets=1,
        table_type=table_type,
        policy=policy,
        unique="table",
        lock="none",
        properties=_KEPT,
    )
    create_table(store, sim_ports(ids=SeqIds("0")), definition)
    table = Table(client(store, clock, nonces="8"))
    table.upsert(rows("a", "old", 1, 2))
    table.upsert(rows("b", "old", 3))
    return Start.of(store)


def moving(actors: str, table_type: str = "cow", policy: str = "key") -> Scenario:
    """Make a scenario of some of the actors."""
    return Scenario(
        f"moves of one key: {actors}, {table_type}, {policy}",
        start(table_type, policy),
        {name: ACTS[name] for name in actors},
        check=check,
    )


@contextlib.contextmanager
def _places_apart() -> Iterator[None]:
    """Conflicts are those of partitions: what came into another one is nobody's business."""
    with mock.patch.object(Judge, "in_other_partitions", return_value=frozenset()):
        yield


BROKEN: Mapping[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "a key that came into another partition is a conflict": _places_apart,
}
