"""``concurrency="single_writer"``: one live writer, wherever and however it begins."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import plait
from plait import SingleWriterError, Table
from plait.errors import RolledBackError
from plait.model.instant import Instant, Operation
from plait.model.instant import State as InstantState
from plait.spark.sink import Job
from plait.storage.memory import MemoryStore
from plait.stream.transport import Hub
from plait.testing import ManualBackground, SimClock
from plait.timeline import paths
from plait.timeline.pending import PendingInstant, load_pending, write_requested
from plait.txn.liveness import has_ended, process_mark
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import request_instant
from plait.write.request import write_request
from tests.support.dead import bury, ended_process
from tests.support.protocol import Work, client, create, listed, live_marks, memory, upsert
from tests.support.streams import ready

ROWS = pa.table({"id": [1, 2], "v": [0, 0]})
SCHEMA = "id bigint, v bigint"
FAILED = ("lazy", "eager")
SOURCE = Path(plait.__file__).parent


def _writer(table: Table) -> None:
    with table.writer("upsert") as writer:
        writer.write(ROWS)


def _block(table: Table) -> None:
    with table.transaction() as block:
        block.upsert(ROWS)


def _stream(table: Table) -> None:
    with table.stream("loader").writer("upsert", after=None, end="1") as writer:
        writer.write(ROWS)


def _begin_at(table: Table) -> None:
    table.stream("later").begin_at(epoch=3, end="3")


def _coordinator(table: Table) -> None:
    """Two turns are open at once: they are one writer's."""
    stream, hub = table.stream("several"), Hub()
    with (
        stream.coordinator(hub.coordinator(), "upsert") as coordinator,
        stream.participant(hub.writer(), "one") as participant,
    ):
        ready(coordinator, participant, ROWS)
        assert coordinator.complete() is not None


def _sink(table: Table) -> None:
    """A write through Spark's data source: no task had a row."""
    order = write_request("append", table._handle.cache.known().table.spec)
    names = [StructField("id", LongType()), StructField("v", LongType())]
    job = Job.prepare(table, order, StructType(names))
    try:
        job.commit([])
    except BaseException:
        job.abort()
        raise


BEGINS: tuple[Callable[[Table], object], ...] = (
    _writer,
    _block,
    _stream,
    _begin_at,
    _coordinator,
    _sink,
    lambda table: table.append(ROWS.slice(0, 0)),
    lambda table: table.upsert(ROWS),
    lambda table: table.delete(where="id = 7"),
    lambda table: table.update({"v": "v + 1"}, where="id = 7"),
    lambda table: table.merge(ROWS, matched=[plait.Delete()]),
    lambda table: table.overwrite(ROWS),
)
begins = pytest.mark.parametrize("begin", BEGINS, ids=lambda case: f"{case.__name__.strip('_<>')}")


@pytest.fixture(params=FAILED)
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    made = str(tmp_path / "t")
    Table.create(
        made,
        SCHEMA,
        record_key=["id"],
        buckets=1,
        concurrency="single_writer",
        failed_writes=request.param,
    )
    return made


@pytest.mark.long(8)
@begins
def test_a_second_live_writer_is_refused_by_name(
    begin: Callable[[Table], object], uri: str
) -> None:
    first = Table.open(uri).writer("upsert")
    with first:
        first.write(ROWS)
        with pytest.raises(SingleWriterError, match="another writer is alive") as caught:
            begin(Table.open(uri))
        assert caught.value.instant == str(first.instant)
        (pending,) = load_pending(Table.open(uri)._handle.store)
        assert (caught.value.host, caught.value.pid) == (pending.host, pending.pid)
        assert str(caught.value.since).endswith("Z")
    assert first.result.version <= 2  # beside it at most the roll-back of a job of several tasks
    begin(Table.open(uri))
    assert load_pending(Table.open(uri)._handle.store) == []


@pytest.mark.long(8)
@begins
def test_what_a_dead_writer_left_is_ended_before_the_next_begins(
    begin: Callable[[Table], object], uri: str, tmp_path: Path
) -> None:
    """``eager`` deletes its files at once, ``lazy`` leaves them for recovery; none may commit."""
    writer = Table.open(uri).writer("upsert").__enter__()
    writer.write(ROWS)
    instant = writer.instant
    assert writer._parts is not None
    base = writer._parts.txn.base.snapshot(writer._handle.store)
    writer._parts.begun[0].staging.stage(base, None)  # no commit
    assert list(tmp_path.rglob(f"*{instant.nonce}*.parquet"))
    table = Table.open(uri)
    bury(table._handle.store, instant)
    begin(table)
    assert table.inspect.history()[-2].ended == (instant,)
    left = list(tmp_path.rglob(f"*{instant.nonce}*.parquet"))
    eager = table._handle.cache.known().table.contract.failed_writes == "eager"
    assert bool(left) is not eager
    assert bool(load_pending(table._handle.store)) is not eager
    with pytest.raises(RolledBackError):
        writer.__exit__(None, None, None)
    table.maintenance.rollback()
    assert not list(tmp_path.rglob(f"*{instant.nonce}*.parquet"))


def test_every_place_that_begins_an_instant_goes_through_the_same_door() -> None:
    """What writes the record of an instant also looks for others."""
    found = set()
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    for path in [path for path, text in texts.items() if "write_requested" in text]:
        for node in ast.walk(ast.parse(texts[path])):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "write_requested":
                found.add(path.relative_to(SOURCE).as_posix())
    # a service that needs a record is no writer: nobody has to give way to it
    assert found == {"txn/transaction.py", "txn/service.py"}


# --- who is alive, and who gives way ---------------------------------------------------------


def single(clock: SimClock, failed_writes: str = "lazy") -> MemoryStore:
    store = memory(clock)
    create(store, concurrency="single_writer", failed_writes=failed_writes)
    return store


@pytest.mark.parametrize("failed_writes", FAILED)
def test_the_living_are_never_rolled_back_and_the_silent_are_passed_over_in_time(
    failed_writes: str,
) -> None:
    """INV-03: one was only asleep; its end was decided before the next one began."""
    clock = SimClock()
    store = single(clock, failed_writes)
    sleeper = Work.begin(client(store, clock), mark="sleeper")
    clock.advance(119)
    with pytest.raises(SingleWriterError) as caught:
        Work.begin(client(store, clock))
    assert (caught.value.silent_ms, caught.value.timeout_s) == (119_000, 120)
    assert "upsert" in caught.value.message
    clock.advance(2)
    upsert(client(store, clock), 0, mark="next")
    with pytest.raises(RolledBackError):
        sleeper.commit()
    upsert(client(store, clock), 1, mark="last")
    assert live_marks(store) == ["last", "next"]
    assert load_pending(store) == []


def test_a_writer_that_was_dropped_falls_silent() -> None:
    """Nobody holds it, and nothing that it made holds it either."""
    clock, background = SimClock(), ManualBackground()
    store = single(clock)
    lost = Table(client(store, clock, background=background)).writer("upsert")
    lost.__enter__()
    lost.write(pa.table({"id": [1], "value": ["x"]}))
    background.run()
    assert len(listed(store, paths.HEARTBEATS)) == 1
    gc.disable()  # what holds itself would go with the next collection of cycles, whenever that is
    try:
        del lost
    finally:
        gc.enable()
    clock.advance(121)
    background.run()
    upsert(client(store, clock), 0, mark="next")
    assert live_marks(store) == ["next"]
    assert background.steps == []


class Told(SimClock):
    """A clock that tells when somebody waits."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act: Callable[[], object] | None = act
        self.waited = 0.0

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.waited += seconds
        act, self.act = self.act, None
        if act is not None:
            act()


def record(handle: TableHandle, ms: int) -> PendingInstant:
    """Give the record of an instant of a time."""
    instant = Instant.at(SimClock.START_MS + ms, handle.ports.ids.nonce())
    return PendingInstant(
        instant,
        InstantState.REQUESTED,
        Operation.UPSERT,
        0,
        (),
        timeout_s=120,
        process=process_mark(),
    )


def ask(handle: TableHandle, asked: PendingInstant) -> str:
    """Ask to be let in."""
    return request_instant(
        handle.store, asked, handle.cache.refresh().table.contract, lambda: handle
    )


def test_the_older_of_two_waits_until_the_younger_has_given_way() -> None:
    """It is let in: of two that begin at once one works."""
    store = single(SimClock())
    younger = client(store)
    theirs = record(younger, 1000)
    write_requested(store, theirs)

    def refused() -> None:
        with pytest.raises(SingleWriterError):
            ask(younger, theirs)

    older = client(store, Told(refused))
    path = ask(older, record(older, 0))
    assert store.find(path) is not None
    assert [entry.instant for entry in load_pending(store)] == [Instant.parse(path[14:-10])]


@pytest.mark.parametrize("older", [True, False], ids=["the older", "the younger"])
def test_who_finds_another_that_stays_gives_way(*, older: bool) -> None:
    """The younger at once; the older after a bounded wait, since it may have been seen too late."""
    store, clock = single(SimClock()), Told(lambda: None)
    first = client(store)
    theirs = record(first, 1000)
    ask(first, theirs)
    second = client(store, clock)
    with pytest.raises(SingleWriterError):
        ask(second, record(second, 0 if older else 2000))
    assert 1 < clock.waited < 5 if older else clock.waited == 0
    assert [entry.instant for entry in load_pending(store)] == [theirs.instant]


def test_a_job_of_several_processes_is_not_driven_out_by_who_came_later() -> None:
    """Its next task waits for a newcomer to give way, whichever of them is older."""
    store = single(SimClock())
    handle, newcomer = client(store), client(store)
    job = replace(record(handle, 1000), process="")
    ask(handle, job)
    theirs = record(newcomer, 0)
    write_requested(store, theirs)

    def give_way() -> None:
        store.delete([paths.requested(theirs.instant)])

    ask(client(store, Told(give_way)), job)
    assert [entry.instant for entry in load_pending(store)] == [job.instant]


@pytest.mark.parametrize("uri", ["lazy"], indirect=True)
def test_a_killed_writer_is_passed_over_at_once(uri: str) -> None:
    """A restart on the same machine does not wait for the heartbeat's time-out."""
    program = (
        "import os, signal, sys, pyarrow as pa; from plait import Table; "
        f"w = Table.open({uri!r}).writer('upsert').__enter__(); "
        "w.write(pa.table({'id': [1], 'v': [1]})); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ran = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert ran.returncode == -9
    table = Table.open(uri)
    assert [entry.alive for entry in table.inspect.timeline().pending] == [False]
    table.upsert(ROWS)
    assert table.scan().count() == 2


def test_death_is_believed_only_when_it_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another boot, another namespace, an id in use, another user's, nonsense: all are alive."""
    mine, gone = process_mark(), ended_process()
    place, pid, born = gone.rsplit("/", 2)
    in_use = mine.rsplit("/", 2)[1]
    assert has_ended(gone)
    assert not has_ended(mine)
    assert has_ended(f"{place}/{in_use}/1")  # the id was given out again
    forged = (
        "",
        "/",
        "a/b",
        f"x{place}/{pid}/{born}",
        f"{place}/-1/{born}",
        f"{place}/{'9' * 40}/{born}",
        f"{place}//{born}",
    )
    assert [mark for mark in forged if has_ended(mark)] == []

    def kill(pid: int, signal: int) -> None:
        raise PermissionError(pid, signal)

    monkeypatch.setattr("plait.txn.liveness.os.kill", kill)
    assert not has_ended(f"{place}/{in_use}/1")


@pytest.mark.skipif(not Path("/proc/self/ns/time").exists(), reason="needs Linux 5.6")
@pytest.mark.parametrize("kind", ["pid", "time"])
def test_the_dead_of_another_namespace_are_not_known_to_be(kind: str) -> None:
    """Its process ids are others, and its start times count from another boot time."""
    mark = ended_process()
    namespace = str(Path(f"/proc/self/ns/{kind}").readlink())
    assert has_ended(mark)
    assert namespace in mark.split("/")
    assert not has_ended(mark.replace(namespace, f"{kind}:[1]"))
