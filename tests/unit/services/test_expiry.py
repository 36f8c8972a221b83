"""Expiry takes away what is too old, and nothing else."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pyarrow as pa
import pytest

from plait import Table, Ttl
from plait.definition.create import define_table
from plait.errors import (
    ClockUnavailableError,
    OptionError,
    SchemaMismatchError,
)
from plait.testing import SimClock, sim_ports
from plait.txn.table_decisions import change_table, create_table
from tests.support import build
from tests.support.expiry import (
    KINDS,
    NEW,
    OLD,
    YOUNG,
    content,
    filled,
    ids,
    make,
    rows,
    sound,
)
from tests.support.protocol import beside, client, memory

# --- what expires ---------------------------------------------------------------------------


@pytest.mark.parametrize(("table_type", "keyed"), KINDS)
def test_rows_whose_time_is_over_disappear_and_no_others(table_type: str, keyed: bool) -> None:
    """INV-04: old versions stay; change reads show deletes; null never expires."""
    table = filled(make(table_type, keyed=keyed))
    before = content(table)
    version = table.version
    plan = table.maintenance.expire(dry_run=True)
    assert table.version == version
    assert content(table) == before
    report = table.maintenance.expire(plan)
    assert report.rows_deleted == len(before) - len(YOUNG)
    assert ids(table) == YOUNG
    assert content(table, version) == before
    changes = table.changes(since=version).to_arrow()
    assert set(changes["_change_type"].to_pylist()) == {"delete"}
    assert sorted(changes["id"].to_pylist()) == [0, 4, 8, 12, 16, 51]
    assert table.inspect.history()[0].operation == "expire"
    assert table.maintenance.expire().commits == ()
    sound(table)


@pytest.mark.parametrize(("table_type", "keyed"), KINDS)
def test_a_partition_whose_newest_time_is_over_is_removed_whole(
    table_type: str, keyed: bool
) -> None:
    table = make(table_type, keyed=keyed, partition_by=["p"], ttl="ts 30d partition")
    table.append(rows((1, OLD, "old", 0), (2, OLD, "old", 0), (3, OLD, "mixed", 0)))
    table.append(rows((4, NEW, "mixed", 0), (5, OLD, "null", 0), (6, None, "null", 0)))
    assert [task.partition for task in table.maintenance.expire(dry_run=True).tasks] == [("old",)]
    report = table.maintenance.expire()
    assert report.files_removed
    assert ids(table) == [3, 4, 5, 6]
    masked = table._handle.cache.snapshot().files["masked"].to_pylist()
    assert set(masked) == {0}
    assert table.maintenance.expire().commits == ()
    sound(table)


@pytest.mark.parametrize("unit", ["row", "partition"])
def test_the_value_of_a_partition_says_that_all_of_it_is_over(unit: str) -> None:
    """Also of a file that came since: no file is read."""
    table = make(partition_by=["ts"], ttl=f"ts 30d {unit}")
    table.append(rows((1, OLD, "a", 0), (2, NEW, "a", 0), (3, None, "a", 0)))
    late = beside(table, "publish", lambda: table.append(rows((4, OLD, "a", 0))))
    late.maintenance.expire()
    assert ids(table) == [2, 3]
    sound(table)


def test_files_without_bounds_are_read_before_their_partition_goes() -> None:
    """The metadata has bounds of the first columns only."""
    wide = [(f"c{i}", pa.int64()) for i in range(40)]
    schema = pa.schema([("p", pa.string()), *wide, ("ts", pa.timestamp("us", "UTC"))])
    table = build.make(schema, record_key=(), partition_by=["p"], ttl="ts 1d partition")
    for p, ts in (("old", OLD), ("new", NEW), ("mixed", OLD), ("mixed", NEW)):
        values = {name: [0] for name, _ in wide}
        table.append(pa.table({"p": [p], **values, "ts": pa.array([ts], schema.field("ts").type)}))
    table.maintenance.expire()
    assert sorted(table.scan(columns=["p"]).to_arrow()["p"].to_pylist()) == [
        "mixed",
        "mixed",
        "new",
    ]


@pytest.mark.parametrize("column", ["date", "timestamp", "timestamp_ntz"])
def test_time_is_told_by_the_stores_clock_and_to_the_moment(column: str) -> None:
    """A date counts until its day is over, in UTC, and nothing expires too early."""
    clock = SimClock()
    table = _sim(clock, column)
    at = dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    value = {"date": at.date(), "timestamp": at, "timestamp_ntz": at.replace(tzinfo=None)}[column]
    table.append(pa.table({"id": [1], "t": pa.array([value], table.schema.field("t").type)}))
    due_ms = 1_700_000_000_000 + 3_600_000
    if column == "date":
        due_ms = 1_700_006_400_000 + 3_600_000  # midnight after it, and an hour
    clock.advance((due_ms - 1) / 1000 - clock.now_ms() / 1000)
    assert table.maintenance.expire(dry_run=True).tasks == ()
    clock.advance(0.002)
    assert len(table.maintenance.expire(dry_run=True).tasks) == 1
    table.maintenance.expire()
    assert table.scan().to_arrow().num_rows == 0


@pytest.mark.parametrize(("table_type", "keyed"), KINDS)
def test_partitions_expire_by_the_time_at_which_their_newest_file_was_written(
    table_type: str, keyed: bool
) -> None:
    """A rewrite puts rows into new files: their time begins anew, and is never too early."""
    clock = SimClock()
    table = _sim(
        clock,
        "date",
        partition_by=("id",),
        ttl=Ttl.parse("written 1h partition"),
        table_type=table_type,
        record_key=("t",) if keyed else (),
    )
    days = [dt.date(2020, 1, 1 + i) for i in range(3)]
    for day in days:
        table.append(pa.table({"id": [1, 2], "t": pa.array([day, day])}))
    clock.advance(3000)
    table.append(pa.table({"id": [2], "t": pa.array([dt.date(2020, 2, 1)])}))
    clock.advance(601)
    assert [task.partition for task in table.maintenance.expire(dry_run=True).tasks] == [("1",)]
    table.maintenance.compact(full=True)
    assert table.maintenance.expire(dry_run=True).tasks == () or table_type == "cow"
    clock.advance(2999)
    table.maintenance.expire()
    clock.advance(700)
    table.maintenance.expire()
    assert table.scan().to_arrow().num_rows == 0


def _sim(clock: SimClock, column: str, **definition: object) -> Table:
    """Make a table in a store whose time a test tells."""
    store = memory(clock)
    asked = {"lock": "none", "ttl": "t 1h", **definition}
    table = define_table(f"id bigint, t {column}", **asked)  # type: ignore[arg-type]
    create_table(store, sim_ports(clock=clock), table)
    return Table(client(store, clock))


# --- the definition -------------------------------------------------------------------------


def test_the_time_to_live_is_set_changed_and_taken_away_by_decisions() -> None:
    """And a client that does not know it refuses the table (ttl-1)."""
    table = filled(make(ttl=None))
    assert "ttl" not in table.inspect.describe()
    assert table.maintenance.expire(dry_run=True).ttl is None
    assert table.maintenance.expire().commits == ()
    features = table._handle.cache.timeline.find(0)
    assert features is not None
    assert "ttl-1" not in features.features
    version = table.alter.set_ttl(Ttl("TS", 86_400)).version
    assert table.inspect.describe()["ttl"] == {"by": "ts", "after": 86_400, "unit": "row"}
    decision = table._handle.cache.timeline.find(version)
    assert decision is not None
    assert "ttl-1" in decision.features
    again = build.again(table)
    assert again.maintenance.expire(dry_run=True).tasks
    done = again.maintenance.expire().commits[0]
    decided = table._handle.cache.timeline.find(done.version)
    assert decided is not None
    assert (decided.action.value, decided.operation.value) == ("expiry", "expire")
    assert "ttl-1" in decided.features
    table.append(rows((60, OLD, "a", 0)))
    table.alter.set_ttl(None)
    assert again.maintenance.expire().commits == ()
    assert 60 in ids(table)


SENSELESS = (
    *("v 30d", "p 30d"),  # nobody knows what integers count
    *("ts", "ts soon", "ts 0s", "ts 1500ms", "ts 999999999d", "ts 30d bucket", "nobody 30d"),
    "ts 30d partition",  # it has no partitions
    *("written 30d row", "written 30d"),
    *(Ttl("ts", True), Ttl("", 5)),
)


def test_a_time_to_live_that_makes_no_sense_is_refused() -> None:
    table = make(ttl=None)
    for ttl in SENSELESS:
        error = SchemaMismatchError if ttl == "nobody 30d" else OptionError
        with pytest.raises(error):
            table.alter.set_ttl(ttl)
        with pytest.raises(error):
            make(ttl=ttl)
    assert table.version == 0
    with pytest.raises(OptionError) as caught:
        make(ttl=Ttl.parse("written 30d row"))
    assert "rows.written" in str(caught.value.hint)
    named = build.make("Written date, p string", record_key=(), partition_by="p")
    with pytest.raises(OptionError):
        named.alter.set_ttl("written 1d partition")


def test_a_column_that_is_gone_stops_the_expiry_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A definition from elsewhere, or a restore of older columns, may lack it.

    Nor does anything expire without the clock of the store.
    """
    table = filled(make())
    change_table(table._handle, lambda t: replace(t, ttl=Ttl("nobody", 5)))
    for dry_run in (True, False):
        with pytest.raises(SchemaMismatchError):
            table.maintenance.expire(dry_run=dry_run)
    table.alter.set_ttl("ts 30d")

    def unknown(_: object) -> int:
        message = "the store reports no time"
        raise ClockUnavailableError(message)

    with monkeypatch.context() as patch:
        patch.setattr(type(table._handle.store), "now_ms", unknown)
        with pytest.raises(ClockUnavailableError):
            table.maintenance.expire()
    assert len(ids(table)) == 22
    assert table.maintenance.expire().rows_deleted == 6
