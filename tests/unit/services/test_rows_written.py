"""What a table that keeps the version that wrote each row shows, and what it hides (RFC 0023)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import Insert, OptionError, SchemaMismatchError, Table, Ttl, Update
from plait.definition.create import define_table
from plait.errors import InvariantError
from plait.model.instant import Operation
from plait.model.request import WriteRequest
from plait.model.schema import WRITTEN_COLUMN
from plait.services.maintenance import expired
from plait.testing import SimClock, sim_ports
from plait.txn.table_decisions import create_table
from plait.write.writer import Writer
from tests.support import build
from tests.support.expiry import KINDS
from tests.support.protocol import beside, client, memory

ON = {"rows.written": "on"}
Act = Callable[[Table], object]
rows = partial(build.rows, p="a", v=0)


def made(clock: SimClock | None = None, **definition: object) -> Table:
    """Make a table whose rows keep the version that wrote them."""
    clock = clock or SimClock()
    store = memory(clock)
    asked = {"lock": "none", "properties": ON, **definition}
    table = define_table("id bigint, p string, v bigint", **asked)  # type: ignore[arg-type]
    create_table(store, sim_ports(clock=clock), table)
    return Table(client(store, clock))


def of_kind(table_type: str, *, keyed: bool, **definition: object) -> Table:
    key = {"record_key": ("id",), "buckets": 1} if keyed else {}
    return made(table_type=table_type, **key, **definition)


def written(table: Table, version: int | None = None) -> dict[int, int]:
    """Return by id the version that wrote a row."""
    scan = table.scan(columns=["id", WRITTEN_COLUMN], version=version)
    return {row["id"]: row[WRITTEN_COLUMN] for row in scan.to_arrow().to_pylist()}


# --- what is copied -------------------------------------------------------------------------

CHANGES: dict[str, tuple[Act, dict[int, int]]] = {
    "upsert": (lambda t: t.upsert(rows(2, 9, v=5)), {1: 1, 2: 3, 3: 2, 4: 2, 9: 3}),
    "insert": (lambda t: t.insert(rows(9)), {1: 1, 2: 1, 3: 2, 4: 2, 9: 3}),
    "update": (lambda t: t.update({"v": "0"}, where="id = 2"), {1: 1, 2: 3, 3: 2, 4: 2}),
    "delete": (lambda t: t.delete(where="id = 2"), {1: 1, 3: 2, 4: 2}),
    "delete keys": (lambda t: t.delete(keys=pa.table({"id": [2]})), {1: 1, 3: 2, 4: 2}),
    "partial": (
        lambda t: t.upsert(rows(2).select(["id", "v"]), missing_columns="keep"),
        {1: 1, 2: 3, 3: 2, 4: 2},
    ),
    "merge": (
        lambda t: t.merge(rows(2, 9), matched=[Update()], not_matched=[Insert()]),
        {1: 1, 2: 3, 3: 2, 4: 2, 9: 3},
    ),
    "overwrite": (lambda t: t.overwrite(rows(9), where="id IN (2, 9)"), {1: 1, 3: 2, 4: 2, 9: 3}),
    "compact": (lambda t: t.maintenance.compact(full=True), {1: 1, 2: 1, 3: 2, 4: 2}),
    "cluster": (lambda t: t.maintenance.cluster(order_by="v"), {1: 1, 2: 1, 3: 2, 4: 2}),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("table_type", "keyed"), KINDS)
def test_a_row_keeps_the_version_that_wrote_it(table_type: str, keyed: bool, change: str) -> None:
    """Whatever else happens to its file, in one step or in two."""
    if not keyed and change in ("upsert", "insert", "partial", "merge", "delete keys"):
        return
    act, expected = CHANGES[change]
    table = of_kind(table_type, keyed=keyed)
    table.append(rows(1, 2))
    table.append(rows(3, 4))
    act(table)
    assert written(table) == expected
    table.maintenance.compact(full=True)
    table.maintenance.cluster(order_by="v")
    assert written(table) == expected
    assert written(table, 2) == {1: 1, 2: 1, 3: 2, 4: 2}
    assert not table.check.verify(history=True).problems


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_rows_of_a_transaction_are_written_by_its_commit_and_not_before(table_type: str) -> None:
    """Its files have no version yet when its next operation copies them; others may be first."""
    table = of_kind(table_type, keyed=True, partition_by=("p",))
    table.upsert(rows(1, 2))

    def others() -> None:
        table.append(rows(50, p="b"))

    late = beside(table, "publish", others)
    with late.transaction(on_conflict="retry") as tx:
        tx.upsert(rows(3))
        tx.upsert(rows(4))
        tx.update({"v": "7"}, where="id = 4")
    assert late.version == 3
    assert written(table) == {1: 1, 2: 1, 3: 3, 4: 3, 50: 2}
    table.maintenance.compact(full=True)
    assert written(table) == {1: 1, 2: 1, 3: 3, 4: 3, 50: 2}


@pytest.mark.parametrize(("table_type", "keyed"), KINDS)
def test_a_restore_brings_rows_back_as_old_as_they_were(table_type: str, keyed: bool) -> None:
    """And nobody sees how old rows are who does not ask."""
    table = of_kind(table_type, keyed=keyed)
    table.append(rows(1, 2))
    table.append(rows(3))
    table.delete(where="id < 3")
    table.append(rows(5))
    table.maintenance.compact(full=True)
    table.versions.restore(version=2)
    assert written(table) == {1: 1, 2: 1, 3: 2}
    table.update({"v": "1"}, where="id = 2")
    again = table.version
    table.maintenance.compact(full=True)
    assert written(table) == {1: 1, 2: again, 3: 2}
    for shown in (table, table.scan().to_arrow()):
        assert shown.schema.names == ["id", "p", "v"]
    assert WRITTEN_COLUMN not in table.changes(since=0).to_arrow().schema.names
    assert table.inspect.compare(table.scan(version=again)).equal
    assert table.changes(since=again).to_arrow().num_rows == 0


def test_older_files_count_as_written_by_their_commit_when_it_is_switched_on() -> None:
    """And files that are rewritten forget it once it is off; what they say is never too old."""
    table = of_kind("cow", keyed=True, properties={})
    table.upsert(rows(1))
    table.upsert(rows(2))
    with pytest.raises(SchemaMismatchError):
        written(table)
    late = pa.table({**rows(3).to_pydict(), WRITTEN_COLUMN: [3]})
    writer = Writer(table._handle, WriteRequest(Operation.UPSERT, with_row_version=True))
    with pytest.raises(InvariantError), writer:
        writer.write(late)
    with pytest.raises(SchemaMismatchError):
        table.upsert(late)
    table.alter.set(ON)
    assert written(table) == {1: 2, 2: 2}
    (path,) = table.snapshot().files()["path"].to_pylist()
    found = pq.read_table(table._handle.store.filesystem().open_input_file(path))
    assert found.schema.names == ["id", "p", "v"], "rows of one commit need no column"
    third = table.upsert(rows(3)).version
    assert written(table) == {1: 2, 2: 2, 3: third}
    table.alter.set({"rows.written": "off"})
    fourth = table.upsert(rows(4)).version
    table.alter.set(ON)
    assert written(table) == dict.fromkeys([1, 2, 3, 4], fourth)


# --- who sees it ----------------------------------------------------------------------------


def test_a_column_of_that_name_and_the_property_exclude_each_other() -> None:
    """And the property stays while rows expire by it."""
    with pytest.raises(OptionError):
        build.make("id bigint, _Written date", record_key=(), properties=ON)
    table = build.make("id bigint, _written bigint", record_key=())
    table.append(pa.table({"id": [1], "_written": [77]}))
    with pytest.raises(OptionError):
        table.alter.set(ON)
    assert table.scan(columns=["_written"]).to_arrow()["_written"].to_pylist() == [77]
    table = made(ttl=Ttl.parse("written 1d row"))
    with pytest.raises(OptionError):
        table.alter.set({"rows.written": "off"})
    table.alter.set_ttl(None)
    table.alter.set({"rows.written": "off"})
    with pytest.raises(OptionError):
        table.alter.set_ttl("written 1d")


def test_writers_must_know_it() -> None:
    """Others would copy rows without it (rows-written-1)."""
    table = made(properties={**ON, "checkpoint.interval": "2"})
    first = table._handle.cache.timeline.find(0)
    assert first is not None
    assert first.writer_features == ("rows-written-1",)
    for number in range(4):
        table.append(rows(number))
    state = table._handle.cache.known().checkpoint
    body = table._handle.store.find(f".meta/checkpoints/{state:020d}/state.json") or b""
    assert b"rows-written-1" in body


# --- what expiry reads ----------------------------------------------------------------------


@pytest.mark.parametrize(("table_type", "keyed"), KINDS)
def test_only_files_with_rows_of_both_ages_are_read(
    table_type: str, keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds and versions tell the others apart; without bounds files are read, and no row errs."""
    clock = SimClock()
    key = {"record_key": ("id",), "buckets": 1} if keyed else {}
    table = made(
        clock, table_type=table_type, partition_by=("p",), ttl=Ttl.parse("written 1h row"), **key
    )
    for place in ("old", "mixed", "young"):
        if place != "young":
            table.append(rows(1, p=place))
    clock.advance(3000)
    for place in ("mixed", "young"):
        table.append(rows(2, p=place))
    table.maintenance.compact(full=True)
    clock.advance(700)
    read: list[str] = []
    real = expired.Matches.hidden

    def noted(self: expired.Matches, files: list[expired.LiveFile]) -> object:
        read.extend(file.partition[0] or "" for file in files)
        return real(self, files)

    monkeypatch.setattr(expired.Matches, "hidden", noted)
    assert [task.partition for task in table.maintenance.expire(dry_run=True).tasks] == [
        ("mixed",),
        ("old",),
    ]
    assert table.maintenance.expire().rows_deleted == 2
    assert read == ["mixed"]
    left = table.scan(columns=["id", "p"]).to_arrow().to_pylist()
    assert sorted((row["p"], row["id"]) for row in left) == [("mixed", 2), ("young", 2)]


@pytest.mark.parametrize(("table_type", "keyed"), KINDS)
def test_a_partition_expires_by_its_newest_row_however_often_it_is_compacted(
    table_type: str, keyed: bool
) -> None:
    clock = SimClock()
    key = {"record_key": ("id",), "buckets": 1} if keyed else {}
    lifetime = Ttl.parse("written 1h partition")
    table = made(clock, table_type=table_type, partition_by=("p",), ttl=lifetime, **key)
    table.append(rows(1))
    clock.advance(1800)
    table.append(rows(2))
    clock.advance(1000)
    table.maintenance.compact(full=True)
    clock.advance(2599)
    assert not table.maintenance.expire(dry_run=True).tasks
    clock.advance(2)
    assert table.maintenance.expire().rows_deleted == 2


# --- rows from elsewhere --------------------------------------------------------------------


@pytest.mark.parametrize(("table_type", "keyed"), KINDS)
def test_rows_can_come_with_the_version_that_wrote_them(table_type: str, keyed: bool) -> None:
    """For a copy of the table in another layout: also of rows that meet older ones."""
    table = of_kind(table_type, keyed=keyed)
    table.append(rows(1, 2))
    table.append(rows(3))
    table.append(rows(4))
    copy = of_kind(table_type, keyed=keyed)
    operation = Operation.UPSERT if keyed else Operation.APPEND
    first = table.scan(columns=["id", "p", "v", WRITTEN_COLUMN], version=2)
    with Writer(copy._handle, WriteRequest(operation, with_row_version=True)) as writer:
        writer.write(first.to_arrow())
    assert written(copy) == {1: 1, 2: 1, 3: 2}
    late = pa.table({**rows(3, 4).to_pydict(), WRITTEN_COLUMN: [3, 3]})
    with Writer(copy._handle, WriteRequest(operation, with_row_version=True)) as writer:
        writer.write(late.slice(0 if keyed else 1))
    assert written(copy) == {1: 1, 2: 1, 3: 3 if keyed else 2, 4: 3}
    copy.maintenance.compact(full=True)
    assert written(copy) == {1: 1, 2: 1, 3: 3 if keyed else 2, 4: 3}
    assert copy.scan().to_arrow().schema.names == ["id", "p", "v"]
    assert not copy.check.verify().problems
