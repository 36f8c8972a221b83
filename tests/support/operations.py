"""Operations with real Parquet, each crashed or failed at one of its storage calls in turn.

What tests/fault and the crash certificate share.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from plait import Delete, Insert, Table, Update
from plait.definition.create import define_table
from plait.errors import TableError
from plait.index.manifest import list_manifests
from plait.model.words import Concurrency, TableType, Unique
from plait.ports import Ports
from plait.repush import RepushRequest, begin
from plait.repush.load import Load
from plait.repush.shadow import Shadow
from plait.storage import open_store
from plait.testing import (
    CountingStore,
    Fault,
    FaultStore,
    SeqIds,
    SimClock,
    SimulatedCrashError,
    StoreCall,
    open_wrapped,
    sim_ports,
)
from plait.timeline import paths
from plait.txn.read_pin import ReadPin
from plait.txn.recovery import roll_back_failed
from plait.txn.table_decisions import create_table
from tests.support import build
from tests.support.build import LITTLE
from tests.support.dead import bury

_NAMES = itertools.count()
CALLS_MAX = 120


SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("at", pa.date32())])
EXPIRED = frozenset({1, 2, 6})
OVER, FAR = dt.date(2001, 1, 1), dt.date(2901, 1, 1)


def rows(*ids: int, day: str = "a") -> pa.Table:
    times = [OVER if number in EXPIRED else FAR for number in ids]
    return pa.table({"id": ids, "day": [day] * len(ids), "at": times}, schema=SCHEMA)


class Made(NamedTuple):
    """How the table of an operation is made."""

    key: tuple[str, ...]
    table_type: TableType
    concurrency: Concurrency
    grace: str
    ttl: str | None
    unique: Unique
    interval: int
    first: Callable[[Table], object] | None


@dataclass(frozen=True)
class Case:
    """An operation, and the ids that are there before and after it."""

    run: Callable[[Table], object]
    before: frozenset[int]
    after: frozenset[int]
    key: tuple[str, ...] = ("id",)
    table_type: TableType = "cow"
    dead: bool = False
    """Whether a writer died on the table before."""
    concurrency: Concurrency = "multi_writer"
    grace: str = "0s"
    ttl: str | None = None
    unique: Unique = "partition"
    interval: int = 4
    """Of checkpoints; the table has three versions, and the fourth is due for one by default."""
    first: Callable[[Table], object] | None = None
    """What was done to the table before."""
    done: Callable[[Table], bool] | None = None
    """Of an operation of several decisions that the same call finishes: whether it is over."""

    def prepared(self) -> Mapping[str, bytes]:
        """Give the files of the table without the dead."""
        return prepared(self._made)

    def files(self) -> Mapping[str, bytes]:
        """Give the files of the table before the operation."""
        return (with_dead if self.dead else prepared)(self._made)

    @property
    def _made(self) -> Made:
        return Made(*(getattr(self, name) for name in Made._fields))


OLD = frozenset(range(10))
NEW = frozenset(range(8, 14))


def upsert(table: Table) -> object:
    return table.upsert(rows(*sorted(NEW)))


def merge(table: Table) -> object:
    clauses = [Delete(when="s.id = 9"), Update()]
    return table.merge(rows(*sorted(NEW)), matched=clauses, not_matched=[Insert()])


def change(table: Table) -> object:
    """Upsert, and remove keys among the rows: some that are there, some that came just before."""
    with table.writer("upsert") as writer:
        writer.write(rows(*sorted(NEW)))
        writer.remove(rows(0, 9, 10, 11, 50))
        writer.write(rows(9, 11))
    return writer.result


def move(table: Table) -> object:
    """Upsert rows into another partition; two of their keys are in one that is there."""
    return table.upsert(rows(*sorted(NEW), day="b"))


def upsert_elsewhere(table: Table) -> object:
    with table.writer("upsert") as writer:
        writer.write(rows(20, day="b"))
    return writer.result


def roll_back(table: Table) -> object:
    return roll_back_failed(table._handle, reason="dead", everything=True)


def undone(table: Table) -> object:
    table.maintenance.clean()
    return table.maintenance.undo_clean()


def rebuilt(table: Table) -> object:
    """Make bounds again that no decision tells."""
    table.alter.set({"metadata.statistics": "off"})
    table.upsert(rows(0))
    table.alter.set({"metadata.statistics": "on"})
    return table.maintenance.rebuild_metadata()


def without_foreign(table: Table) -> object:
    """Remove a file of a commit that does not name it."""
    named = table.inspect.files()["path"][0].as_py()
    table._handle.store.put(named.replace(".base.", "-again.base."), b"?")
    return table.check.remove_foreign(table.check.foreign())


def read(table: Table) -> None:
    """Look at the table under a lease, as a scan does until it is dropped."""
    lease = ReadPin(table._handle, table.version)
    try:
        table._handle.cache.snapshot()
    finally:
        lease.release()


def repush(table: Table, **layout: Any) -> object:
    """Lay the table out anew, and change a row while that is open."""
    begin(table._handle, RepushRequest(**layout))
    changed = pa.table({"id": [0], "day": ["a"], "at": [dt.date(2801, 1, 1)]}, schema=SCHEMA)
    if table._handle.cache.known().table.spec.keyed:
        table.upsert(changed)
    return table.layout.repush(**layout)


def is_laid_out(table: Table) -> bool:
    """Tell whether the swap was decided."""
    return bool(table._handle.cache.refresh().table.former)


def cancelled_repush(table: Table) -> object:
    """Begin to lay the table out anew, and give it up when it was loaded."""
    handle = table._handle
    opened = begin(handle, RepushRequest(buckets=3))
    assert opened is not None
    shadow = Shadow.open(handle, opened)
    progress = shadow.progress()
    if progress.version is None:
        Load.of(handle, shadow).run(shadow, progress)
    return table.layout.cancel()


def is_cancelled(table: Table) -> bool:
    """Tell whether the end was decided."""
    return bool(table._handle.cache.refresh().table.repushed)


CASES = {
    "append": Case(lambda t: t.append(rows(*range(10, 14))), OLD, OLD | set(range(10, 14)), ()),
    "upsert cow": Case(upsert, OLD, OLD | NEW),
    "upsert mor": Case(upsert, OLD, OLD | NEW, table_type="mor"),
    "upsert that removes cow": Case(change, OLD, (OLD | NEW) - {0, 10}),
    "upsert that removes mor": Case(change, OLD, (OLD | NEW) - {0, 10}, table_type="mor"),
    "upsert that moves cow": Case(move, OLD, OLD | NEW, unique="table"),
    "upsert that moves mor": Case(move, OLD, OLD | NEW, table_type="mor", unique="table"),
    "delete mor": Case(
        lambda t: t.delete(where="id < 5"), OLD, OLD - set(range(5)), table_type="mor"
    ),
    "merge cow": Case(merge, OLD, (OLD | NEW) - {9}),
    "merge mor": Case(merge, OLD, (OLD | NEW) - {9}, table_type="mor"),
    "single writer after a death": Case(
        upsert, OLD, OLD | NEW, dead=True, concurrency="single_writer"
    ),
    "overwrite": Case(lambda t: t.overwrite(rows(7, 99)), OLD, frozenset({7, 99})),
    "new partition": Case(upsert_elsewhere, OLD, OLD | {20}),
    "properties": Case(lambda t: t.alter.set({"lock.wait": "1s"}), OLD, OLD),
    "columns": Case(lambda t: t.alter.columns().move("at", after="id").commit(), OLD, OLD),
    "compact": Case(lambda t: t.maintenance.compact(full=True), OLD, OLD, table_type="mor"),
    "cluster": Case(lambda t: t.maintenance.cluster(order_by="id", kind="sort"), OLD, OLD, ()),
    "cluster buckets cow": Case(
        lambda t: t.maintenance.cluster(order_by="day", kind="sort"), OLD, OLD
    ),
    "cluster buckets mor": Case(
        lambda t: t.maintenance.cluster(order_by="day"), OLD, OLD, table_type="mor"
    ),
    "expire cow": Case(lambda t: t.maintenance.expire(), OLD, OLD - EXPIRED, ttl="at 1d"),
    "expire mor": Case(
        lambda t: t.maintenance.expire(), OLD, OLD - EXPIRED, (), table_type="mor", ttl="at 1d row"
    ),
    "clean": Case(lambda t: t.maintenance.clean(), OLD, OLD),
    "clean with grace": Case(lambda t: t.maintenance.clean(), OLD, OLD, grace="1h"),
    "clean that is undone": Case(undone, OLD, OLD, grace="1h"),
    "archive": Case(lambda t: t.maintenance.archive(), OLD, OLD, interval=1),
    "savepoint": Case(lambda t: t.versions.savepoint("kept"), OLD, OLD),
    "restore cow": Case(lambda t: t.versions.restore(version=1), OLD, frozenset(range(5))),
    "restore mor": Case(
        lambda t: t.versions.restore(version=1, replay=True),
        OLD,
        frozenset(range(5)),
        table_type="mor",
    ),
    "undo": Case(lambda t: t.versions.undo(), OLD, OLD),
    "metadata rebuild": Case(rebuilt, OLD, OLD),
    "foreign files": Case(without_foreign, OLD, OLD),
    "rollback": Case(roll_back, OLD, OLD, dead=True),
    "read": Case(read, OLD, OLD),
}
REPUSHES = {
    "repush cow": Case(lambda t: repush(t, buckets=3), OLD, OLD, done=is_laid_out),
    "repush mor": Case(
        lambda t: repush(t, partition_by=()), OLD, OLD, table_type="mor", done=is_laid_out
    ),
    "repush without a key": Case(
        lambda t: repush(t, partition_by=()), OLD, OLD, (), done=is_laid_out
    ),
    "repush that is cancelled": Case(cancelled_repush, OLD, OLD, done=is_cancelled),
}
"""Operations of several decisions; for the certificate alone."""


def with_index(table: Table) -> None:
    """Make an index of two manifests, which is a version behind."""
    table.index.create()
    table.upsert(rows(*sorted(NEW)))
    table.index.build()
    table.upsert(rows(1, 2))


def is_built(table: Table) -> bool:
    """Tell whether the index has everything."""
    status = table.index.status()
    return status.usable and status.lag == 0


def is_built_anew(table: Table) -> bool:
    """Tell whether an index that had two manifests was built and published."""
    name = table.index.status().name
    return (
        is_built(table) and name is not None and list_manifests(table._handle.store, name)[-1] > 1
    )


def drop_index(table: Table) -> object:
    """Drop the index unless that is done, and clean."""
    if table.index.status().name is not None:
        table.index.drop()
    return table.maintenance.clean()


def is_dropped(table: Table) -> bool:
    """Tell whether it is gone, and its files."""
    left = list(table._handle.store.list(paths.INDEX))
    return table.index.status().name is None and not left


INDEXES = {
    "index build": Case(lambda t: t.index.create(), OLD, OLD, done=is_built),
    "index catch up": Case(
        lambda t: t.index.build(), OLD | NEW, OLD | NEW, first=with_index, done=is_built
    ),
    "index build anew": Case(
        lambda t: t.index.build(anew=True), OLD | NEW, OLD | NEW, first=with_index,
        done=is_built_anew,
    ),
    "index drop": Case(drop_index, OLD | NEW, OLD | NEW, first=with_index, done=is_dropped),
}  # fmt: skip
"""Of no decision, or of one beside files; for the certificate alone."""


@functools.cache
def prepared(how: Made) -> Mapping[str, bytes]:
    """Make a table with three versions."""
    uri = f"memory://crash-{next(_NAMES)}"
    options = {
        **LITTLE,
        "checkpoint.interval": how.interval,
        "archive.keep": 1,
        "clean.grace": how.grace,
    }
    table = build.make(
        SCHEMA,
        uri=uri,
        record_key=how.key,
        partition_by=["day"],
        table_type=how.table_type,
        lock="none",
        concurrency=how.concurrency,
        properties=options,
        ttl=how.ttl,
        unique=how.unique,
    )
    table.append(rows(*range(5)))
    table.append(rows(*range(5, 10)))
    if how.key:
        table.upsert(rows(0, 9))
    else:
        table.alter.set({"lock.wait": "2s"})
    if how.first is not None:
        how.first(table)
    return files_at(uri)


@functools.cache
def with_dead(how: Made) -> Mapping[str, bytes]:
    """Make the same table, on which a writer died just before it published."""
    uri = copy_of(prepared(how))
    dying, store = open_wrapped(uri, FaultStore, ports=ports("dead"))
    store._script.append(Fault("crash_before", "put_if_absent"))
    with suppress(SimulatedCrashError):
        upsert(dying)
    bury_all(uri)
    return files_at(uri)


def bury_all(uri: str) -> None:
    """Let the processes of those who crashed have ended: a single writer waits for the living."""
    store = open_store(uri)
    for info in store.list(paths.PENDING):
        if info.path.endswith(".requested"):
            bury(store, info.path.removeprefix(f"{paths.PENDING}/").removesuffix(".requested"))


def files_at(uri: str) -> dict[str, bytes]:
    store = open_store(uri)
    return {info.path: store.find(info.path) or b"" for info in store.list("")}


def copy_of(files: Mapping[str, bytes]) -> str:
    uri = f"memory://crash-{next(_NAMES)}"
    store = open_store(uri)
    for path, body in files.items():
        store.put(path, body)
    return uri


def ports(nonces: str = "abc") -> Ports:
    return sim_ports(clock=SimClock(), ids=SeqIds(nonces))


def copied(case: Case) -> str:
    return copy_of(case.files())


def ids(table: Table) -> frozenset[int]:
    found = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert len(found) == len(set(found))
    return frozenset(found)


def calls_of(case: Case) -> tuple[str, tuple[StoreCall, ...]]:
    """Run the operation undisturbed; give where, and its calls."""
    uri = copied(case)
    table, store = open_wrapped(uri, CountingStore, ports=ports())
    store.reset()
    case.run(table)
    return uri, store.calls


def attempts(
    case: Case, kind: str, numbers: Iterable[int] = range(1, CALLS_MAX)
) -> Iterator[tuple[str, BaseException | None]]:
    """Run the operation on a new table each time, with the fault at a later call each time."""
    for nth in numbers:
        uri = copied(case)
        mine = ports()
        table, store = open_wrapped(uri, FaultStore, ports=mine)
        store._clock = mine.clock
        store.calls = 0
        store._script.append(Fault(kind, nth=nth))
        error: BaseException | None = None
        try:
            case.run(table)
        except (TableError, SimulatedCrashError) as raised:
            error = raised
        if isinstance(error, SimulatedCrashError):
            bury_all(uri)
        yield uri, error
        if store.calls < nth:
            assert error is None
            return
    if not isinstance(numbers, range):
        return
    message = "the operation has no end"
    raise AssertionError(message)


def _create(store: FaultStore | CountingStore) -> None:
    create_table(store, ports(), define_table(SCHEMA, lock="none"))


def create_calls() -> tuple[str, tuple[StoreCall, ...]]:
    """Create a table undisturbed; give where, and the calls."""
    uri = f"memory://crash-{next(_NAMES)}"
    store = CountingStore(open_store(uri))
    _create(store)
    return uri, store.calls


def create_attempts(kind: str, numbers: Iterable[int] = range(1, CALLS_MAX)) -> Iterator[str]:
    """Create a table at a new place each time, with the fault at a later call each time."""
    for nth in numbers:
        uri = f"memory://crash-{next(_NAMES)}"
        store = FaultStore(open_store(uri), [Fault(kind, nth=nth)])
        with suppress(SimulatedCrashError):
            _create(store)
        yield uri
        if store.calls < nth:
            return


def more(table: Table) -> object:
    """Write on until a checkpoint is due."""
    for number in range(5):
        table.append(rows(1_000 + number))
    return table


def listed(uri: str) -> list[str]:
    return [info.path for info in open_store(uri).list("")]
