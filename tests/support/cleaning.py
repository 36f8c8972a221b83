"""A clean that retains nothing, between any two storage calls of somebody else.

The table is written anew by it without a change of its rows: every row is put again, and what was
before is condemned and deleted, with the checkpoints and the runs of the record index that went by.
So who reads the newest version has one right answer, whatever comes in between.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from plait import Table
from plait.definition.create import define_table
from plait.storage import memory
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import ManualBackground, SeqIds, SimClock, sim_ports
from plait.testing.wrapper import WrappedStore
from plait.timeline import paths
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import open_handle
from tests.support.build import LITTLE
from tests.support.memory import forget

T = TypeVar("T")
Files = dict[str, tuple[bytes, int]]
SCHEMA = pa.schema([("id", pa.int64()), ("place", pa.string()), ("v", pa.int64())])
PROPERTIES = {
    **LITTLE,
    "checkpoint.interval": "2",
    "archive.keep": "1",
    "compact": "off",
    "rows.written": "on",
    "metadata.statistics": "off",
}
ROWS = {key: (key, "ab"[key % 2], 10 * key) for key in range(8)}
"""What every version from 4 on shows."""


def rows_of(keys: Iterator[int] | range) -> pa.Table:
    columns = list(zip(*(ROWS[key] for key in keys), strict=True))
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


class Interrupted(WrappedStore):
    """Does something before the nth call, once."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls = 0
        self.at = -1
        self.act: Callable[[], None] = lambda: None

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        if self.calls == self.at:
            self.at = -1
            self.act()
        self.calls += 1
        return run()


@dataclass
class Cleaned:
    """One table, made once and copied for each attempt."""

    table_type: str
    partition_by: tuple[str, ...] = ("place",)
    unique: str = "partition"
    name: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        uri = f"memory://cleaning-{self.table_type}-{self.unique}"
        forget(uri)
        self.clock, self.ids = SimClock(), SeqIds("c1")
        store = MemoryStore(uri, clock=self.clock)
        defined = define_table(
            "id bigint, place string, v bigint",
            lock="process",
            record_key=("id",),
            partition_by=self.partition_by,
            buckets=2,
            table_type=self.table_type,
            unique=self.unique,
            properties=PROPERTIES,
        )
        create_table(store, self._ports(), defined)
        table = self._open(store)
        table.upsert(rows_of(range(4)))
        table.index.create()
        table.upsert(rows_of(range(4, 8)))
        table.index.build()
        table.upsert(rows_of(range(0, 8, 3)))
        table.alter.set({"metadata.statistics": "on"})  # so bounds are to be made again
        self.base = table.version
        self._made: dict[bool, tuple[Files, Files]] = {}
        for warm in (False, True):
            if warm:
                table.upsert(rows_of(range(2)))  # a client that knew it before is a little behind
            before = dict(store._space.files)
            self._made[warm] = before, self._written_anew(before)
        self.files = self._made[False][0]

    def _ports(self):
        return sim_ports(clock=self.clock, ids=self.ids, background=ManualBackground())

    def _open(self, store: Store) -> Table:
        self.clock.advance(1)
        return Table(open_handle(store, self._ports()))

    def attempt(self, *, warm: bool) -> tuple[Table, Interrupted]:
        """Open a copy; a client that is not warm knows nothing yet."""
        inner = self._copy(self.files)
        store = Interrupted(inner)
        table = self._open(store)
        if warm:
            table.scan().to_arrow()
            table.get([1])
        inner._space.files.clear()
        inner._space.files.update(self._made[warm][0])
        store.act = lambda: self.rewrite(inner, warm=warm)
        store.calls = 0
        return table, store

    def _copy(self, files: Files) -> MemoryStore:
        uri = f"memory://cleaning-copy-{next(self.name)}"
        memory._SPACES[uri] = memory._Space(dict(files))
        return MemoryStore(uri, clock=self.clock)

    def _written_anew(self, files: Files) -> Files:
        """Put every row again, and let other metadata stand for what was before."""
        store = self._copy(files)
        other = self._open(store)
        for keys in (range(8), range(4)):
            other.upsert(rows_of(keys))
            other.index.build()
        other.maintenance.compact(full=True)
        other.maintenance.archive()
        forget(store._uri)
        return store._space.files

    def rewrite(self, store: MemoryStore, *, warm: bool) -> None:
        """Let others do all that, beside what the client has written itself; then clean."""
        before, after = self._made[warm]
        files = store._space.files
        own = {path: entry for path, entry in files.items() if path not in before}
        if any(path.startswith(paths.TIMELINE) for path in own):
            after = self._written_anew(files)
        gone = before.keys() - files.keys()
        files.clear()
        files |= {path: entry for path, entry in after.items() if path not in gone} | own
        self.clock.advance(1)
        self._open(store).maintenance.clean()
