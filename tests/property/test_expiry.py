"""What expires is what plain Python says, for any rows, times, units and commits (RFC 0018)."""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait import Table, Ttl
from plait.definition.create import define_table
from plait.storage.memory import MemoryStore
from plait.testing import SeqIds, SimClock, sim_ports
from plait.txn.table_decisions import create_table
from tests.support.protocol import client

_NAMES = itertools.count()
DAY = dt.timedelta(days=1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MOMENTS = st.one_of(st.none(), st.integers(-40, 400).map(lambda hours: hours * 3600))
"""Seconds after the table was made, some hours before the first look or after the last."""
BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from("xyz"), MOMENTS), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)


@dataclass
class Row:
    """One row as the model knows it."""

    number: int
    place: str
    at: object
    written_ms: int


def over(row: Row, ttl: Ttl, now_ms: int) -> bool:
    """Tell whether the time of a row is over."""
    if ttl.by == "written":
        return row.written_ms + ttl.after * 1000 <= now_ms
    after, now = dt.timedelta(seconds=ttl.after), EPOCH + dt.timedelta(milliseconds=now_ms)
    if row.at is None:
        return False
    if isinstance(row.at, dt.datetime):
        return row.at.replace(tzinfo=dt.UTC) + after < now
    assert isinstance(row.at, dt.date)
    midnight = dt.datetime.combine(row.at, dt.time(), dt.UTC) + DAY
    return midnight + after <= now


def left(rows: list[Row], ttl: Ttl, now_ms: int) -> list[Row]:
    """Return the rows that stay."""
    gone = [row for row in rows if over(row, ttl, now_ms)]
    if ttl.unit == "partition":
        young = {row.place for row in rows if row not in gone}
        gone = [row for row in gone if row.place not in young]
    return [row for row in rows if row not in gone]


@settings(deadline=None)
@given(
    batches=BATCHES,
    kind=st.sampled_from(["date", "timestamp", "timestamp_ntz"]),
    table_type=st.sampled_from(["cow", "mor"]),
    keyed=st.booleans(),
    ttl=st.sampled_from(["at 30h row", "at 30h partition", "at 7d row", "written 30h partition"]),
    looks=st.lists(st.integers(1, 60), min_size=1, max_size=3),
    data=st.data(),
)
def test_what_expires_is_what_the_model_says(
    *,
    batches: list[list[tuple[str, int | None]]],
    kind: str,
    table_type: str,
    keyed: bool,
    ttl: str,
    looks: list[int],
    data: st.DataObject,
) -> None:
    """Nothing goes too early, and all that is over goes."""
    clock = SimClock()
    store = MemoryStore(f"memory://expiring-{next(_NAMES)}", clock=clock)
    lifetime = Ttl.parse(ttl)
    # Rows without a key stay in the files of their commit, and so do those of a new key with MOR.
    key = ("number",) if keyed and (table_type == "mor" or lifetime.by == "at") else ()
    definition = define_table(
        f"number bigint, place string, at {kind}",
        record_key=key,
        partition_by=("place",),
        table_type=table_type,
        lock="none",
        ttl=lifetime,
    )
    create_table(store, sim_ports(clock=clock, ids=SeqIds("0")), definition)
    table = Table(client(store, clock))
    start = EPOCH + dt.timedelta(milliseconds=clock.now_ms())
    rows: list[Row] = []
    numbers = itertools.count()
    for batch in batches:
        fresh = []
        for place, seconds in batch:
            moment = None if seconds is None else start + dt.timedelta(seconds=seconds)
            at = moment if moment is None or kind != "date" else moment.date()
            if kind == "timestamp_ntz" and moment is not None:
                at = moment.replace(tzinfo=None)
            fresh.append(Row(next(numbers), place, at, clock.now_ms()))
        columns = {name: [getattr(row, name) for row in fresh] for name in ("number", "place")}
        times = pa.array([row.at for row in fresh], table.schema.field("at").type)
        version = table.append(pa.table({**columns, "at": times})).version
        written_ms = table.inspect.history(limit=1)[0].completed_ms
        assert table.version == version
        rows += [Row(row.number, row.place, row.at, written_ms) for row in fresh]
        clock.advance(3600 * data.draw(st.integers(0, 30)))
    for hours in looks:
        clock.advance(3600 * hours)
        table.maintenance.expire()
        rows = left(rows, lifetime, clock.now_ms())
        found = sorted(table.scan(columns=["number"]).to_arrow()["number"].to_pylist())
        assert found == [row.number for row in rows]
        assert table.maintenance.expire().commits == ()
    assert not table.check.verify().problems
