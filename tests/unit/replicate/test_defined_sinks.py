"""Sinks in a table's own definition: every writer sends to them first, or is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from plait import MissingDependencyError, OptionError, Table, UnsupportedFeatureError
from plait.definition import features
from plait.errors import ReplicationError, RetryableConflictError
from plait.replicate import Replicas, TableSink, repair, status
from plait.storage import open_store
from plait.testing import sim_ports
from plait.timeline.replica_records import load_attempts
from plait.txn.table_handle import open_handle
from plait.write import replication
from plait.write.sink_address import parse_sink
from tests.support import build
from tests.support.build import by_id, keys
from tests.support.memory import forget

SCHEMA = "id bigint, v bigint"
rows = partial(build.rows, v=0)


@pytest.fixture
def uri(request: pytest.FixtureRequest) -> str:
    made = f"memory://{request.node.name}"
    for name in (made, f"{made}-eu", f"{made}-us"):
        forget(name)
        if name != made:
            Table.create(name, SCHEMA, record_key="id")
    return made


@pytest.fixture
def t(uri: str) -> Table:
    made = Table.create(uri, SCHEMA, record_key="id", replicas=[f"eu={uri}-eu"])
    return Table(
        open_handle(open_store(made._handle.store.address), sim_ports(), made._handle.consent)
    )


def other(uri: str) -> Table:
    """Open the table in another client, which may use the sinks of these tests."""
    return Table.open(uri, allow=[f"{uri}-eu", f"{uri}-us"])


def eu(uri: str) -> dict[object, object]:
    return by_id(Table.open(f"{uri}-eu"))


# --- columns -------------------------------------------------------------------------------------


def test_the_columns_stay_those_of_the_sinks(t: Table, uri: str) -> None:
    """A sink that lacks a column would refuse every later write."""
    t.upsert(rows(1))
    before = t.version
    for change in (
        t.alter.columns().add("z", "int"),
        t.alter.columns().rename("v", "w"),
        t.alter.columns().drop("v").add("v", "bigint"),
        t.alter.columns().move("v", after=""),
    ):
        with pytest.raises(OptionError) as refused:
            change.commit()
        assert refused.value.key == "replicas"
    assert t.version == before
    with t.writer("upsert") as writer:
        writer.write(rows(2))
        t.alter.columns().comment("v", "what it is").default("v", 3).commit()
    t.upsert(rows(3))
    assert eu(uri) == by_id(t) == {1: 0, 2: 0, 3: 0}
    t.replicas.remove("eu")
    t.alter.columns().add("z", "int").commit()


# --- writers -------------------------------------------------------------------------------------


def test_every_kind_of_write_that_sinks_can_take_goes_there_first(t: Table, uri: str) -> None:
    t.upsert(rows(1, 2, 3))
    assert eu(uri) == by_id(t) == {1: 0, 2: 0, 3: 0}
    t.delete(keys=keys(1))
    with t.writer("upsert") as w:
        w.write(rows(2, v=1))
        w.remove(keys(3))
    assert eu(uri) == by_id(t) == {2: 1}
    with t.transaction() as tx:
        tx.delete(keys=keys(2))
        tx.upsert(rows(4, 5))
        tx.upsert(rows(5, v=2))
    assert eu(uri) == by_id(t) == {4: 0, 5: 2}
    position = t.stream("app").position
    with t.stream("app").writer("upsert", after=position, end="1", on_conflict="raise") as w:
        w.write(rows(6))
    assert eu(uri) == by_id(t) == {4: 0, 5: 2, 6: 0}
    assert [each.in_step for each in status(t)] == [True]


def test_a_transaction_names_what_each_of_its_operations_sent_also_if_it_fails(
    t: Table, uri: str
) -> None:
    with t.transaction() as tx:
        tx.upsert(rows(1, 2))
        tx.delete(keys=keys(2))
    (decision,) = t._handle.cache.timeline.load_after(tx.result.version - 1, limit=1)
    ledger = decision.replicas
    assert ledger is not None
    assert [(task.task, task.digest.rows) for task in ledger.tasks] == [("s1-0", 2), ("s2-0", 1)]
    assert not load_attempts(t._handle.store)

    def fail() -> None:
        with t.transaction() as tx:
            tx.upsert(rows(3))
            forget(f"{uri}-eu")
            tx.upsert(rows(4))

    with pytest.raises(ReplicationError):
        fail()
    assert by_id(t) == {1: 0}
    assert [attempt.sinks for attempt in load_attempts(t._handle.store)] == [("eu",)]


@pytest.mark.parametrize(
    "act",
    [
        lambda t: t.append(rows(9)),
        lambda t: t.insert(rows(9)),
        lambda t: t.overwrite(rows(9)),
        lambda t: t.update({"v": "1"}),
        lambda t: t.delete(where="id = 1"),
        lambda t: t.merge(rows(9)),
        lambda t: t.upsert(rows(9), on_conflict="retry"),
        lambda t: t.upsert(keys(9), missing_columns="keep"),
        lambda t: t.versions.restore(version=0),
        lambda t: t.layout.repush(source=0),
        lambda t: t.alter.set_ttl("written 1d partition"),
    ],
)
def test_what_sinks_cannot_take_is_refused_before_anything_is_written(t: Table, uri, act) -> None:
    t.upsert(rows(1))
    with pytest.raises(OptionError):
        act(t)
    assert (t.version, by_id(t), eu(uri)) == (1, {1: 0}, {1: 0})


def test_a_block_refuses_an_operation_that_sinks_cannot_take(t: Table, uri: str) -> None:
    def act() -> None:
        with t.transaction() as tx:
            tx.upsert(rows(1))
            tx.update({"v": "2"}, where="id = 1")

    with pytest.raises(OptionError):
        act()
    assert by_id(t) == {}
    assert [each.ahead != () for each in status(t)] == [True]


def test_a_block_that_meets_another_commit_or_a_swap_still_names_what_the_sinks_hold(
    t: Table, uri: str
) -> None:
    t.upsert(rows(1, 2, 3, 4, 5, 6, 7, 8))
    for number, meet in enumerate(
        (lambda: other(uri).upsert(rows(9)), lambda: Table.open(uri).layout.repush(buckets=2)), 20
    ):
        with t.transaction() as tx:
            tx.delete(keys=keys(number - 19))
            tx.upsert(rows(number, v=1))
            meet()
        assert by_id(t) == eu(uri)
        assert by_id(t)[number] == 1
    assert status(t)[0].in_step


@pytest.mark.parametrize("layout", [{"ordering": "v"}, {"partition_by": "v"}])
def test_rows_that_sinks_took_by_another_key_or_ordering_are_not_committed(
    t: Table, uri: str, layout: dict[str, str]
) -> None:
    """D1: after the swap, other rows of these would stand in the table than in the sinks."""

    def race() -> None:
        with t.writer("upsert") as w:
            w.write(rows(1, v=1))
            w.write(rows(1, v=0))
            Table.open(uri).layout.repush(**layout)

    t.upsert(rows(1, v=2))
    with pytest.raises(RetryableConflictError):
        race()
    assert by_id(t) == {1: 2}
    assert status(t)[0].ahead


def test_many_batches_are_few_commits_of_a_table_as_the_sink(t: Table, uri: str) -> None:
    """D1: all of them are committed there before the commit here is published."""
    seen: list[int] = []

    class Watching:
        def phase(self, name: str, **facts: object) -> None:
            if name == "publish":
                seen.append(len(eu(uri)))

    t.alter.set({"replicas.batch.size": 1})
    t = Table(open_handle(open_store(uri), sim_ports(observer=Watching()), t._handle.consent))
    with t.writer("upsert") as w:
        w.write(rows(*range(500)))
        w.remove(keys(3, 4))
        w.write(rows(4, v=1))
    assert eu(uri) == by_id(t)
    assert seen == [499]
    assert Table.open(f"{uri}-eu").version <= 4
    (decision,) = t._handle.cache.timeline.load_after(w.result.version - 1, limit=1)
    assert decision.replicas is not None
    assert decision.replicas.tasks[0].batches == 503


def test_services_leave_the_sinks_alone(t: Table, uri: str) -> None:
    for number in range(3):
        t.upsert(rows(number))
    before = Table.open(f"{uri}-eu").version
    t.maintenance.compact(full=True)
    t.maintenance.clean()
    t.layout.repush(buckets=2)
    assert Table.open(f"{uri}-eu").version == before
    t.upsert(rows(9))
    assert eu(uri) == by_id(t) == dict.fromkeys((0, 1, 2, 9), 0)
    assert [each.in_step for each in status(t)] == [True]


# --- adding and removing -------------------------------------------------------------------------


def test_a_sink_that_is_added_gets_what_is_written_from_then_on(t: Table, uri: str) -> None:
    old = other(uri)  # knows of no second sink
    t.upsert(rows(1))
    t.replicas.add(f"us={uri}-us")
    old.upsert(rows(2))
    us = Table.open(f"{uri}-us")
    assert by_id(us) == {2: 0}
    assert {each.sink: each.behind for each in status(t)} == {"eu": (), "us": (1,)}
    repair(t, TableSink("us", f"{uri}-us"))
    assert by_id(us) == by_id(t)
    assert all(each.in_step for each in status(t))


def test_a_writer_that_began_before_a_sink_was_added_cannot_commit_without_it(
    t: Table, uri: str
) -> None:
    def race() -> None:
        with t.writer("upsert") as w:
            w.write(rows(1))
            other(uri).replicas.add(f"us={uri}-us")

    with pytest.raises(RetryableConflictError, match="us"):
        race()
    assert by_id(t) == {}
    other(uri).upsert(rows(1))
    assert by_id(t) == by_id(Table.open(f"{uri}-us")) == {1: 0}
    assert any(each.ahead for each in status(t))  # what the first sent is told of


def test_a_sink_that_is_removed_gets_nothing_more(t: Table, uri: str) -> None:
    t.replicas.remove("eu")
    t.append(rows(1))
    assert (eu(uri), by_id(t)) == ({}, {1: 0})
    with pytest.raises(OptionError, match="names no sink eu"):
        t.replicas.remove("eu")


def test_the_sinks_of_an_argument_must_contain_those_of_the_definition(t: Table, uri: str) -> None:
    with pytest.raises(OptionError, match="eu"):
        t.writer("upsert", replicas=Replicas([TableSink("us", f"{uri}-us")]))
    both = [TableSink("eu", f"{uri}-eu"), TableSink("us", f"{uri}-us")]
    with t.writer("upsert", replicas=Replicas(both, batch_size=9)) as w:
        w.write(rows(1))
    assert by_id(t) == eu(uri) == by_id(Table.open(f"{uri}-us")) == {1: 0}


@pytest.mark.parametrize(
    ("definition", "replica"),
    [
        ({}, "eu=memory://no-key"),
        ({"record_key": "id", "policy": "merge", "ordering": "v"}, "eu=memory://merges"),
        ({"record_key": "id"}, "eu"),
        ({"record_key": "id"}, "../x=memory://t"),
        ({"record_key": "id"}, "log=kafka://host:9092"),
        ({"record_key": "id"}, "db=sqlite:///serving.db"),
        ({"record_key": "id"}, "db=postgresql+psycopg://me:hidden@host/db#t"),
        ({"record_key": "id"}, "eu=s3://bucket/t?secret=hidden"),
    ],
)
def test_what_cannot_be_a_sink_of_the_table_is_refused_and_no_secret_is_kept(
    uri: str, definition: dict[str, str], replica: str
) -> None:
    with pytest.raises(OptionError) as refused:
        Table.create(uri, SCHEMA, replicas=[replica], **definition)
    assert "hidden" not in str(refused.value)
    t = Table.create(uri, SCHEMA, **definition)
    with pytest.raises(OptionError):
        t.replicas.add(replica)
    assert t.version == 0


def test_a_client_that_does_not_know_of_sinks_reads_the_table_and_writes_nothing(
    t: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    t.upsert(rows(1))
    known = tuple(each for each in features.KNOWN if each != features.REPLICAS)
    monkeypatch.setattr(features, "KNOWN", known)
    older = Table.open(t._handle.store.address.uri, allow=t._handle.consent.patterns)
    assert older.scan().to_arrow().num_rows == 1
    with pytest.raises(UnsupportedFeatureError) as refused:
        older.upsert(rows(2))
    assert refused.value.features == ["replicas-1"]
    assert older.version == t.version


def test_where_no_room_makes_the_sinks_nothing_is_written_without_them(
    t: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 0022: the room of the sinks is found by the metadata of the package, which may be old."""
    replication._sinks_of_definition.cache_clear()
    monkeypatch.setattr(replication, "GROUP", "plait.nobody")
    with pytest.raises(MissingDependencyError, match="no entry point"):
        t.upsert(rows(1))
    assert t.scan().count() == 0
    monkeypatch.undo()
    t.upsert(rows(1))
    assert all(each.in_step for each in status(t))


# --- names and places ----------------------------------------------------------------------------


def test_a_name_stands_for_one_place_for_ever(t: Table, uri: str) -> None:
    """RFC 0022: status never counts rows for a store that did not get them."""
    t.upsert(rows(1))
    with pytest.raises(OptionError, match=f"{uri}-eu"):
        t.replicas.add(f"eu={uri}-us")
    t.replicas.remove("eu")
    version = t.version
    with pytest.raises(OptionError, match=f"{uri}-eu"):
        other(uri).replicas.add(f"eu={uri}-us")
    assert t.version == version
    t.replicas.add(f"eu={uri}-eu")
    t.replicas.add(f"us={uri}-us")
    t.upsert(rows(2))
    assert [each.in_step for each in status(t) if each.sink == "us"] == [False]


def test_a_table_is_no_sink_of_itself_and_no_name_stands_for_two(t: Table, uri: str) -> None:
    version = t.version
    with pytest.raises(OptionError, match="itself"):
        t.replicas.add(f"me={uri}")
    for replicas, told in (
        ([f"me={uri}-new"], "itself"),
        (["a=memory://x", "a=memory://y"], "two sinks"),
    ):
        with pytest.raises(OptionError, match=told):
            Table.create(f"{uri}-new", SCHEMA, record_key="id", replicas=replicas)
    assert t.version == version


@pytest.mark.parametrize("address", ["sqlite:///serving.db#t", "./eu", "sqlite:///in/serving.db#t"])
def test_a_relative_place_is_one_place_for_writers_in_all_directories(
    t: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    t.replicas.add(f"near={address}")
    known = t._handle.cache.refresh().table.replicas["near"]
    assert str(tmp_path) in known
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert parse_sink(f"near={known}") == ("near", known)


@pytest.mark.parametrize("address", ["sqlite://#t", "sqlite:///:memory:#t"])
def test_a_database_in_memory_is_no_sink_of_a_table(t: Table, address: str) -> None:
    with pytest.raises(OptionError, match="memory"):
        t.replicas.add(f"near={address}")
