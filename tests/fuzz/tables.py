"""Tables to be damaged, and what each version of them holds, noted by the code that wrote them."""

from __future__ import annotations

import contextlib
import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pyarrow as pa

from plait import Table
from plait.files.data_file import data_path
from plait.locks.file import FileLock
from plait.model.bucket import UNKEYED
from plait.model.document import seal_record
from plait.model.instant import Instant, Operation, State
from plait.model.order import KEY_ORDER, NO_ORDER
from plait.ports import Ports
from plait.storage.local import LocalStore
from plait.timeline import paths
from plait.timeline.pending import PendingInstant, write_inflight, write_requested

Row = tuple[int, str, int]
SCHEMA = pa.schema([("id", pa.int64()), ("place", pa.string()), ("v", pa.int64())])
OPTIONS = {
    "clean.retain.time": "0s",
    "clean.grace": "0s",
    "clean.retain.versions": "3",
    "checkpoint.interval": "4",
}
DEAD = Instant.parse("20200101000000000-" + "d" * 16)
LIVING = Instant.parse("20200101000000001-" + "e" * 16)
_MANIFEST = re.compile(r'"manifest":"([^"]+)"')
LEASE = f"{paths.LEASES}/{0:020d}-{'a' * 16}"


def rows_of(rows: list[Row]) -> pa.Table:
    """Make Arrow rows."""
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA.names
    )


@dataclass
class Model:
    """What a table holds at each of its versions."""

    keyed: bool
    partitioned: bool
    rows: list[Row] = field(default_factory=list)
    at: dict[int, list[Row]] = field(default_factory=dict)
    horizon: int = 0

    def note(self, version: int) -> None:
        """Remember the rows of now for every version up to this one that is not known."""
        for missing in range(max(self.at, default=-1) + 1, version):
            self.at[missing] = list(self.at[missing - 1])
        self.at[version] = sorted(self.rows)

    def upsert(self, rows: list[Row]) -> None:
        """Replace rows of the same key in the same place, or add them."""
        keys = {self._key(row) for row in rows} if self.keyed else set()
        self.rows = [row for row in self.rows if self._key(row) not in keys] + rows

    def _key(self, row: Row) -> tuple[object, ...]:
        return (row[0], row[1]) if self.partitioned else (row[0],)

    def delete(self, least: int) -> None:
        """Drop rows whose id is at least so much."""
        self.rows = [row for row in self.rows if row[0] < least]

    def to_dict(self) -> dict[str, object]:
        """Write it for a process that judges."""
        return {
            "keyed": self.keyed,
            "partitioned": self.partitioned,
            "at": {str(k): v for k, v in self.at.items()},
            "horizon": self.horizon,
        }


KINDS = {
    "cow": (True, False, "cow"),
    "mor": (True, True, "mor"),
    "plain": (False, False, "cow"),
    "old": (True, False, "mor"),
}
"""Each with a key or not, with partitions or not, and its type.

``old`` was kept in shape: its old decisions are archived, its bounds were made again from files,
and its rows are in an order.
"""
OLD = "old"
AGED = {
    "archive.keep": "1",
    "metadata.statistics": "off",
    "cluster.by": "v",
    "cluster.kind": "sort",
}


@contextlib.contextmanager
def small_thresholds() -> Iterator[None]:
    """Let everything that can stand in a file of its own stand there."""
    with (
        mock.patch("plait.files.deletion.INLINE_BYTES_MAX", 8),
        mock.patch("plait.files.row_map.INLINE_BYTES_MAX", 8),
        mock.patch("plait.arrow.output.ORDERED_GROUP_ROWS", 2),
        contextlib.ExitStack() as stack,
    ):
        for name in ("INLINE_KEYS_MAX", "INLINE_ROWS_MAX"):
            for module in _users_of(name):
                stack.enter_context(mock.patch(f"{module}.{name}", 1))
        yield


def _users_of(name: str) -> list[str]:
    import sys

    return [
        m
        for m, module in list(sys.modules.items())
        if m.startswith("plait.") and name in vars(module)
    ]


def build(root: str, kind: str, *, seed: int) -> Model:
    """Write a table with everything in it that a table can have."""
    keyed, partitioned, table_type = KINDS[kind]
    draw, model = random.Random(seed), Model(keyed, partitioned)
    table = Table.create(
        root,
        SCHEMA,
        record_key=["id"] if keyed else [],
        partition_by=["place"] if partitioned else [],
        table_type=table_type,
        buckets=2 if keyed and not partitioned else None,
        properties={**OPTIONS, **AGED} if kind == OLD else OPTIONS,
        ttl="written 3650d partition" if partitioned else None,
    )
    model.note(0)
    with small_thresholds():
        for number in range(8):
            ids = draw.sample(range(40), 8)
            rows = [(i, draw.choice("ab"), 1000 * seed + 100 * number + i) for i in ids]
            if number == 6:
                table.delete(where="id >= 30")
                model.delete(30)
            elif keyed:
                table.upsert(rows_of(rows), commit_id=f"c{number}")
                model.upsert(rows)
            else:
                table.append(rows_of(rows))
                model.upsert(rows)
            model.note(table.version)
            if number == 5:
                table.maintenance.compact(full=True)
                model.note(table.version)
                table.maintenance.cluster(
                    order_by="v", kind="sort"
                )  # a base of merge on read keeps its key index
                model.note(table.version)
        with table.stream("app").writer(after=None, end="1") as writer:
            rows = [(50 + n, "a", seed + n) for n in range(3)]
            writer.write(rows_of(rows))
        model.upsert(rows)
        model.note(table.version)
        _restore(table, model)
        _leave_condemned(table, root, model)
        if kind == OLD:
            _keep_in_shape(table, model)
        for number in range(3):  # the last two after the newest checkpoint, so that slots count
            rows = [(60 + 2 * number + n, "b", seed + n) for n in range(3)]
            table.upsert(rows_of(rows)) if keyed else table.append(rows_of(rows))
            model.upsert(rows)
            model.note(table.version)
    _leave_traces(root, partitioned=partitioned)
    return model


def _restore(table: Table, model: Model) -> None:
    """Keep a version, undo the epoch and bring it back; let a commit id be used again."""
    last = table.versions.savepoint("kept", version=table.version - 3).version + 3
    table.versions.undo()
    model.note(table.version - 1)
    model.rows = list(model.at[last - 1])
    model.note(table.version)
    table.versions.replay()
    table.versions.restore(version=last)
    model.note(table.version - 1)
    model.rows = list(model.at[last])
    model.note(table.version)


def _keep_in_shape(table: Table, model: Model) -> None:
    """Tell the bounds that no decision tells, put rows in order, put old decisions away."""
    table.alter.set({"metadata.statistics": "on"})
    assert table.maintenance.rebuild_metadata().rebuilt
    assert table.maintenance.cluster().commits
    assert table.maintenance.archive().emptied
    model.note(table.version)


def _leave_condemned(table: Table, root: str, model: Model) -> None:
    """Clean while a reader of the first version is there: what is condemned stays."""
    store = LocalStore(root)
    store.put(LEASE, seal_record(LEASE, {"version": 0, "ttl_s": 600.0, "host": "h", "pid": 1}))
    report = table.maintenance.clean()
    assert report.spared
    model.horizon = report.plan.horizon
    model.note(table.version)


def _leave_traces(root: str, *, partitioned: bool) -> None:
    """Leave a dead writer with a file, a living one with its heartbeat, and a lock's records."""
    store = LocalStore(root)
    place = ("a",) if partitioned else ()
    for instant in (DEAD, LIVING):
        pending = PendingInstant(
            instant,
            State.REQUESTED,
            Operation.APPEND,
            1,
            (place,),
            host="h",
            pid=1,
            started_ms=1,
            timeout_s=1.0 if instant == DEAD else 3600.0,
        )
        write_requested(store, pending)
        write_inflight(store, instant, [place], attempt="d1")
        store.put(paths.heartbeat(instant), b"1")
    store.put(data_path(place, UNKEYED, DEAD, "0-0001", "base"), b"PAR1 staged by the dead")
    for name in (paths.requested(DEAD), paths.inflight(DEAD, "d1"), paths.heartbeat(DEAD)):
        os.utime(Path(root, name), (1, 1))
    with FileLock(root, Ports()).acquire(wait_s=1, owner="me"):
        store.put(".meta/locks/commit.holder", b'{"owner":"me","host":"h","pid":1,"since_ms":1}')
        kept = store.find(".meta/locks/commit.holder")
    store.put(".meta/locks/commit.holder", kept or b"")
    store.put(".meta/locks/queue/00000000000000001-" + "c" * 16, b"")


def classify(root: str) -> dict[str, list[str]]:
    """Group the files of a table by what they are."""
    store, found = LocalStore(root), dict[str, list[str]]()
    infos = list(store.list(""))
    slots = sorted(i.path for i in infos if i.path.startswith(f"{paths.TIMELINE}/"))
    empty = {i.path for i in infos if not i.size}
    special = _special(Table.open(root))
    for info in infos:
        kind = _kind_of(info.path, slots)
        if kind.startswith("slot") and info.path in empty:
            kind = "slot archived"
        found.setdefault(special.get(info.path, kind), []).append(info.path)
    return found


def _special(table: Table) -> dict[str, str]:
    """Name files that are of a kind of their own: in an order, or parts with bounds made again."""
    state = table._handle.cache.loaded()
    files = table.inspect.files()
    ordered = {
        path: "data ordered"
        for path, order in zip(files["path"].to_pylist(), files["order"].to_pylist(), strict=True)
        if order not in (KEY_ORDER, NO_ORDER)
    }
    made = {entry.version for entry in table.inspect.history() if entry.operation == "rebuild"}
    parts = [part for part in state.parts if made and part.first == 0]
    rebuilt = {file.path: "checkpoint part rebuilt" for part in parts for file in part.files}
    return {**ordered, **rebuilt}


def live(root: str) -> set[str]:
    """Name what the newest version rests on: damage elsewhere may show nowhere."""
    table = Table.open(root)
    files = table.inspect.files()
    named = {*files["path"].to_pylist(), *files["dv_path"].to_pylist()}
    state = table._handle.cache.refresh()
    slots = [paths.slot(decision.version) for decision in state.tail]
    bodies = [Path(root, slot).read_text() for slot in slots]
    manifests = [name for body in bodies for name in _MANIFEST.findall(body)]
    parts = [file.path for part in state.parts for file in part.files]
    return {*named, *slots, *manifests, *parts, paths.checkpoint(state.checkpoint)} - {None}


_FOLDERS: dict[str, str] = {
    paths.HEARTBEATS: "heartbeat",
    paths.LEASES: "lease",
    paths.MANIFESTS: "manifest",
    f"{paths.META}/hints": "hint",
    f"{paths.META}/locks": "lock",
    paths.ARCHIVE: "archive",
}


def _kind_of(path: str, slots: list[str]) -> str:
    if path == paths.TABLE:
        return "identity"
    if path in slots:
        at = slots.index(path)
        return {0: "slot first", len(slots) - 1: "slot newest"}.get(at, "slot")
    if path.startswith(paths.CHECKPOINTS):
        return "checkpoint" if path.endswith("state.json") else "checkpoint part"
    if path.startswith(paths.PENDING):
        return "pending requested" if path.endswith("requested") else "pending inflight"
    for folder, kind in _FOLDERS.items():
        if path.startswith(f"{folder}/"):
            return kind
    return "data " + path.rsplit(".", 2)[1]


Build = Callable[[str], Model]
