"""What tests of the commit protocol share: a clock by hand, and writers without Parquet.

``Hand`` stages one tiny file a bucket; its mark is the one key that it writes. The file of a
bucket holds the marks of every writer that ever wrote to it, so that a lost update shows in the
data as well as in the timeline.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import xxhash

from plait import Table
from plait.definition.create import define_table
from plait.errors import CommitOutcomeUnknownError
from plait.files.data_file import data_path
from plait.files.hash import encode_hashes
from plait.locks.port import Holder
from plait.model.bucket import UNKEYED, BucketId, Partition, partition_text
from plait.model.changes import (
    ADDED,
    BASE,
    KEYS_INLINE,
    KEYS_NONE,
    LOG,
    PATHS,
    TOUCHED,
    Changes,
    WriteStats,
    WriteStatus,
)
from plait.model.decision import SCOPE_APPEND, SCOPE_BUCKETS, CommitResult, Scope, Token
from plait.model.instant import Operation
from plait.model.plan import Snapshot
from plait.model.request import WriteRequest
from plait.ports import Observer
from plait.state.cache import StateCache
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import ManualBackground, SeqIds, SimClock, sim_ports
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import OptimisticTransaction

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string())])
_NAMES = itertools.count()
_CLIENTS = itertools.count(0xC00000)


@dataclass
class Phases:
    """An observer that hears, and does what a test asks when a phase comes."""

    heard: list[str] = field(default_factory=list)
    on: dict[str, Callable[[], object]] = field(default_factory=dict)

    def phase(self, name: str, **facts: object) -> None:
        self.heard.append(name)
        act = self.on.pop(name, None)
        if act is not None:
            act()


def beside(table: Table, phase: str, *acts: Callable[[], object]) -> Table:
    """Return a client of the table that does one thing each time it comes to a phase."""
    return doing(Table.open(str(table.inspect.describe()["uri"])), phase, *acts)


def doing(client: Table, phase: str, *acts: Callable[[], object]) -> Table:
    """Let a client do one thing each time it comes to a phase."""
    left = list(acts)

    def act() -> None:
        if left:
            now = left.pop(0)
            observer.on[phase] = act
            now()

    observer = Phases(on={phase: act})
    ports = replace(client._handle.ports, observer=observer)
    client._opened.handle = replace(client._handle, ports=ports)
    return client


class NoLock:
    """A lock that everybody gets; counts how often it was asked for."""

    name = "none"
    token: int | None = None
    lost: str | None = None

    def __init__(self) -> None:
        self.asked = 0

    @contextlib.contextmanager
    def acquire(self, *, wait_s: float, owner: str) -> Iterator[NoLock]:
        self.asked += 1
        yield self

    def holder(self) -> Holder | None:
        return None


def memory(clock: SimClock | None = None) -> MemoryStore:
    """Give a store that nobody else has."""
    return MemoryStore(f"memory://protocol-{next(_NAMES)}", clock=clock or SimClock())


def client(
    store: Store,
    clock: SimClock | None = None,
    *,
    nonces: str = "",
    observer: Observer | None = None,
    background: ManualBackground | None = None,
) -> TableHandle:
    """Give one client of the table in a store, with nothing known yet.

    ``nonces`` is the prefix of all that it draws, in hex digits; by default nobody else has it.
    """
    ids = SeqIds(nonces or f"{next(_CLIENTS):06x}")
    mine = sim_ports(clock=clock, ids=ids, observer=observer or Phases(), background=background)
    return TableHandle(store, mine, StateCache(store, mine), NoLock())


def create(
    store: Store,
    *,
    partition_by: tuple[str, ...] = (),
    keyed: bool = True,
    buckets: int = 4,
    concurrency: str = "multi_writer",
    failed_writes: str = "lazy",
    policy: str = "file_group",
    table_type: str = "cow",
    properties: dict[str, object] | None = None,
) -> None:
    """Create a table of (id, value) and text partitions."""
    schema = SCHEMA
    for name in partition_by:
        schema = schema.append(pa.field(name, pa.string()))
    definition = define_table(
        schema,
        record_key=("id",) if keyed else (),
        partition_by=partition_by,
        buckets=buckets if keyed else None,
        lock="none",
        concurrency=concurrency,
        failed_writes=failed_writes,
        policy=policy,
        table_type=table_type,
        properties=properties or {},
    )
    create_table(store, sim_ports(ids=SeqIds("0")), definition)


class Hand:
    """Stages tiny files by hand, as the writers do with Parquet."""

    def __init__(
        self, store: Store, txn: OptimisticTransaction, buckets: Iterable[BucketId], mark: str
    ) -> None:
        self._store, self._txn, self._mark = store, txn, mark
        self._wanted = list(buckets)
        self._staged: dict[BucketId, tuple[dict[str, object], list[str]]] = {}
        self._numbers = itertools.count()
        self.written: list[str] = []
        self.rounds: list[frozenset[BucketId] | None] = []

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None = None) -> WriteStatus:
        """Write what is asked for again on a snapshot; give the status of the whole."""
        self.rounds.append(buckets)
        todo = self._wanted if buckets is None else sorted(buckets, key=str)
        self._txn.announce(partition for partition, _ in todo)
        for each in todo:
            self._stage(snapshot, each)
        return self._status()

    def _stage(self, snapshot: Snapshot, at: BucketId) -> None:
        appending = at[1] == UNKEYED
        kind = LOG if appending else BASE
        old = [] if appending else _files_of(snapshot, at)
        lines = [line for path in old for line in _lines(self._store, path)]
        attempt = f"0-{next(self._numbers):04d}"
        path = data_path(at[0], at[1], self._txn.instant, attempt, kind)
        body = "\n".join([*lines, self._mark]).encode()
        self._store.put(path, body)
        self.written.append(path)
        row = {
            "path": path,
            "partition": partition_text(at[0]),
            "bucket": at[1],
            "kind": kind,
            "rows": len(lines) + 1,
            "bytes": len(body),
            "order": 0,
            "schema_id": 0,
            "footer": 0,
            "stats": None,
        }
        self._staged[at] = (row, old)

    def _status(self) -> WriteStatus:
        rows = [row for row, _ in self._staged.values()]
        removed = [path for _, old in self._staged.values() for path in old]
        key = encode_hashes(
            np.array([xxhash.xxh64_intdigest(self._mark.encode())], dtype=np.uint64)
        )
        touched = [
            {
                "partition": row["partition"],
                "bucket": row["bucket"],
                "keys": KEYS_NONE if row["bucket"] == UNKEYED else KEYS_INLINE,
                "key_count": 1,
                "key_inline": None if row["bucket"] == UNKEYED else key,
            }
            for row in rows
        ]
        used = {row["path"] for row in rows}
        changes = Changes(
            added=pa.Table.from_pylist(rows, schema=ADDED),
            touched=pa.Table.from_pylist(touched, schema=TOUCHED),
            removed=pa.table({"path": removed}, schema=PATHS),
            garbage=pa.table({"path": [p for p in self.written if p not in used]}, schema=PATHS),
        )
        return WriteStatus(changes, WriteStats(rows_in=len(rows), files_added=len(rows)))


def _files_of(snapshot: Snapshot, at: BucketId) -> list[str]:
    rows = snapshot.files.select(["path", "partition", "bucket"]).to_pylist()
    wanted = (partition_text(at[0]), at[1])
    return [row["path"] for row in rows if (row["partition"], row["bucket"]) == wanted]


def _lines(store: Store, path: str) -> list[str]:
    body = store.find(path)
    assert body is not None, f"{path} is missing"
    return body.decode().split("\n")


@dataclass
class Work:
    """One write by hand: begun, staged, not yet committed."""

    handle: TableHandle
    txn: OptimisticTransaction
    hand: Hand
    scope: Scope
    status: WriteStatus

    @classmethod
    def begin(
        cls,
        handle: TableHandle,
        buckets: Iterable[BucketId] = (((), 0),),
        *,
        operation: Operation = Operation.UPSERT,
        scope: Scope | None = None,
        mark: str = "mark",
        commit_id: str | None = None,
        on_conflict: str = "raise",
        kind: type[OptimisticTransaction] = OptimisticTransaction,
        hand: type[Hand] = Hand,
        token: Token | None = None,
    ) -> Work:
        wanted = list(buckets)
        partitions: tuple[Partition, ...] = tuple(dict.fromkeys(p for p, _ in wanted))
        request = WriteRequest(
            operation, commit_id, on_conflict, partitions=partitions, token=token
        )
        txn = kind.begin(handle, request)
        by_hand = hand(handle.store, txn, wanted, mark)
        appending = operation is Operation.APPEND
        scope = scope or Scope(SCOPE_APPEND if appending else SCOPE_BUCKETS)
        work = cls(handle, txn, by_hand, scope, WriteStatus())
        with work.giving_up():
            work.status = by_hand.stage(txn.base.snapshot(handle.store))
        return work

    @contextlib.contextmanager
    def giving_up(self) -> Iterator[None]:
        """Roll back if the block raises, as the writer does."""
        try:
            yield
        except CommitOutcomeUnknownError:
            raise
        except BaseException as error:
            self.txn.abort(f"{type(error).__name__} in a test")
            raise

    def commit(self) -> CommitResult:
        with self.giving_up():
            return self.txn.commit(self.status, self.scope, self.hand.stage)


def upsert(
    handle: TableHandle,
    *buckets: int,
    mark: str = "mark",
    commit_id: str | None = None,
    on_conflict: str = "raise",
) -> CommitResult:
    """Write into some buckets of a table without partitions."""
    chosen: list[BucketId] = [((), number) for number in buckets or (0,)]
    return Work.begin(
        handle, chosen, mark=mark, commit_id=commit_id, on_conflict=on_conflict
    ).commit()


def append(handle: TableHandle, mark: str = "mark") -> CommitResult:
    """Append to a table without keys."""
    return Work.begin(handle, [((), UNKEYED)], operation=Operation.APPEND, mark=mark).commit()


def live_marks(store: Store) -> list[str]:
    """Give the marks in all live files, as a new client sees them."""
    return marks_of(client(store))


def marks_of(handle: TableHandle) -> list[str]:
    """Give the marks in all live files, as a client sees them."""
    files = handle.cache.snapshot().files
    return sorted(line for path in files["path"].to_pylist() for line in _lines(handle.store, path))


def listed(store: Store, prefix: str = "") -> list[str]:
    return [info.path for info in store.list(prefix)]
