"""A row expires after the commit that wrote it, wherever it was copied since (RFC 0023)."""

from __future__ import annotations

import itertools

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait import Insert, Table, Ttl, Update
from plait.definition.create import define_table
from plait.storage.memory import MemoryStore
from plait.testing import SeqIds, SimClock, sim_ports
from plait.txn.table_decisions import create_table
from tests.support.effort import share
from tests.support.protocol import client

_NAMES = itertools.count()
HOUR_MS = 3_600_000
IDS = st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True)
Rows = dict[int, tuple[int, int]]
"""By id: the value, and when it was written."""
KEYED = ("upsert", "insert", "merge", "partial", "transaction", "remove")
EITHER = ("append", "update", "delete", "compact", "cluster", "restore", "expire", "expire")


class Model:
    """A table, and what plain Python knows of it."""

    def __init__(self, table: Table, clock: SimClock, after_ms: int, *, keyed: bool) -> None:
        """Begin with an empty table."""
        self.table, self.clock, self.after_ms, self.keyed = table, clock, after_ms, keyed
        self.rows: Rows = {}
        self.then: dict[int, Rows] = {table.version: {}}
        self.numbers = itertools.count(10)
        self.values = itertools.count(1)

    def step(self, kind: str, ids: list[int]) -> None:
        """Do one thing, and compare."""
        value = next(self.values)
        if kind == "append":
            ids = [next(self.numbers) for _ in ids]
        given_rows = pa.table({"id": ids, "v": [value] * len(ids), "w": [0] * len(ids)})
        written = getattr(self, kind)(ids, given_rows, value)
        now_ms = self.table.inspect.history(limit=1)[0].completed_ms
        self.rows.update(dict.fromkeys(written, (value, now_ms)))
        self.then[self.table.version] = dict(self.rows)
        found = {r["id"]: r["v"] for r in self.table.scan().to_arrow().to_pylist()}
        assert found == {each: v for each, (v, _) in self.rows.items()}

    def append(self, ids: list[int], given_rows: pa.Table, _: int) -> list[int]:
        self.table.append(given_rows)
        return ids

    def upsert(self, ids: list[int], given_rows: pa.Table, _: int) -> list[int]:
        self.table.upsert(given_rows)
        return ids

    def insert(self, ids: list[int], given_rows: pa.Table, _: int) -> list[int]:
        self.table.insert(given_rows, on_duplicate="skip")
        return [each for each in ids if each not in self.rows]

    def partial(self, ids: list[int], given_rows: pa.Table, _: int) -> list[int]:
        self.table.upsert(given_rows.select(["id", "v"]), missing_columns="keep")
        return ids

    def merge(self, ids: list[int], given_rows: pa.Table, _: int) -> list[int]:
        self.table.merge(given_rows, matched=[Update()], not_matched=[Insert()])
        return ids

    def transaction(self, ids: list[int], given_rows: pa.Table, value: int) -> list[int]:
        """Rows that one operation writes are copied by the next."""
        with self.table.transaction() as tx:
            tx.upsert(given_rows)
            tx.update({"v": str(value)}, where="id < 3")
            tx.delete(where="id = 9")
        self.rows.pop(9, None)
        old = [each for each in self.rows if each < 3]
        return sorted({*old, *ids} - {9})

    def update(self, ids: list[int], _: pa.Table, value: int) -> list[int]:
        where = f"id IN ({', '.join(map(str, ids))})"
        self.table.update({"v": str(value)}, where=where)
        return [each for each in ids if each in self.rows]

    def delete(self, ids: list[int], *_: object) -> list[int]:
        self.table.delete(where=f"id IN ({', '.join(map(str, ids))})")
        for each in ids:
            self.rows.pop(each, None)
        return []

    def remove(self, ids: list[int], *_: object) -> list[int]:
        self.table.delete(keys=pa.table({"id": ids}))
        for each in ids:
            self.rows.pop(each, None)
        return []

    def compact(self, *_: object) -> list[int]:
        self.table.maintenance.compact(full=True)
        return []

    def cluster(self, *_: object) -> list[int]:
        self.table.maintenance.cluster(order_by="v")
        return []

    def restore(self, ids: list[int], *_: object) -> list[int]:
        versions = sorted(self.then)
        version = versions[ids[0] % len(versions)]
        self.table.versions.restore(version=version)
        self.rows = dict(self.then[version])
        return []

    def expire(self, ids: list[int], *_: object) -> list[int]:
        self.clock.advance(HOUR_MS / 1000 * ids[0])
        self.table.maintenance.expire()
        limit_ms = self.clock.now_ms() - self.after_ms
        self.rows = {each: (v, at) for each, (v, at) in self.rows.items() if at > limit_ms}
        return []


@settings(max_examples=share(60), deadline=None)
@given(
    table_type=st.sampled_from(["cow", "mor"]),
    keyed=st.booleans(),
    told=st.sampled_from(["on", "off"]),
    steps=st.lists(st.tuples(st.sampled_from(KEYED + EITHER), IDS), min_size=2, max_size=14),
)
def test_a_row_expires_when_its_time_is_over_and_never_before(
    *, table_type: str, keyed: bool, told: str, steps: list[tuple[str, list[int]]]
) -> None:
    """Rewrites, merges, restores and transactions keep the time of each row that they copy."""
    clock = SimClock()
    store = MemoryStore(f"memory://rows-written-{next(_NAMES)}", clock=clock)
    made = define_table(
        "id bigint, v bigint, w bigint",
        record_key=("id",) if keyed else (),
        buckets=2 if keyed else None,
        table_type=table_type,
        lock="none",
        ttl=Ttl.parse("written 5h row"),
        properties={
            "rows.written": "on",
            "metadata.statistics": told,
            "checkpoint.interval": "3",
            "clean.retain.versions": "1000",
        },
    )
    create_table(store, sim_ports(clock=clock, ids=SeqIds("0")), made)
    model = Model(Table(client(store, clock)), clock, 5 * HOUR_MS, keyed=keyed)
    for kind, ids in steps:
        if keyed or kind in EITHER:
            model.step(kind, ids)
            clock.advance(600 * ids[-1])
    model.step("expire", [4])
    assert not model.table.check.verify(history=True).problems
