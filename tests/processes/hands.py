"""Processes that do what they are told, step by step: writers that can be held, and cleaners.

They are forked from one process that has everything imported, so that one more costs little.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection

import pyarrow as pa

from plait import Table
from plait.errors import TableError
from plait.files import writer
from plait.model.contract import Options
from plait.ports import Ports
from plait.services.maintenance import clean as cleaning
from plait.services.table_maintenance import Maintenance
from plait.state.cache import StateCache
from plait.txn import conflict, matrix, recovery, transaction
from plait.txn.recovery import RollbackReport
from tests.services.forked import CONTEXT
from tests.services.process import Service, die_with_parent

SCHEMA = "id bigint, place string, value bigint"


def _no_clean() -> None:
    Maintenance.clean = lambda upkeep: None  # type: ignore[method-assign,assignment]  # broken


def _no_lazy_rollback() -> None:
    nothing = RollbackReport((), ())
    for module in (cleaning, recovery):
        module.roll_back_failed = lambda *_, **__: nothing


def _no_eager_rollback() -> None:
    transaction._end_dead = lambda handle, dead: None


def _no_compaction() -> None:
    Maintenance.compact = lambda upkeep, **_: None  # type: ignore[method-assign,assignment]  # broken


def _no_clustering() -> None:
    Maintenance.cluster = lambda upkeep, *_, **__: None  # type: ignore[method-assign,assignment]  # broken


def _no_archive() -> None:
    Maintenance.archive = lambda upkeep: None  # type: ignore[method-assign,assignment]  # broken


def _no_bounds() -> None:
    writer.file_stats = lambda *_: None  # type: ignore[assignment,return-value]  # broken


def _bounds_always() -> None:
    chosen = Options.choice

    def choice(options: Options, key: str) -> str:
        return "on" if key == "metadata.statistics" else chosen(options, key)

    Options.choice = choice  # type: ignore[method-assign]  # broken


def _no_rebuild() -> None:
    Maintenance.rebuild_metadata = lambda upkeep: None  # type: ignore[method-assign,assignment]  # broken


def _no_checkpoint() -> None:
    StateCache.checkpoint = lambda *_: None  # type: ignore[method-assign,assignment]  # broken


def _of_policy(policy: str, meant: str) -> Callable[[], None]:
    def put() -> None:
        for cells in {id(each): each for each in matrix.MATRIX.values()}.values():
            cells[policy] = cells[meant]  # type: ignore[index]  # broken

    return put


def _all_meet() -> None:
    conflict.Judge.meeting = lambda self, *_: self.buckets  # type: ignore[method-assign]  # broken


def _two_let_in() -> None:
    transaction._admit = lambda *_, **__: None


BREAKS = {
    "file_group rebases disjoint keys": _of_policy("file_group", "key"),
    "key refuses disjoint keys": _of_policy("key", "file_group"),
    "file groups are not told apart": _all_meet,
    "a second writer is let in": _two_let_in,
    "checkpoints are left out": _no_checkpoint,
    "compaction does nothing": _no_compaction,
    "clustering does nothing": _no_clustering,
    "archive does nothing": _no_archive,
    "bounds are left out": _no_bounds,
    "bounds are told though they are off": _bounds_always,
    "rebuild does nothing": _no_rebuild,
    "clean does nothing": _no_clean,
    "lazy rolls nobody back": _no_lazy_rollback,
    "eager rolls nobody back": _no_eager_rollback,
}
"""What a process can be made to leave out, to see that somebody misses it."""


def rows(place: str, value: int, *ids: int) -> pa.Table:
    """Make rows of one place and value."""
    count = len(ids)
    return pa.table({"id": ids, "place": [place] * count, "value": [value] * count})


class Gate:
    """Holds the writer when all is staged, until it is told to go on.

    An instant is known by its nonce: where its time was taken, it is decided under the next.
    """

    def __init__(self, wire: Connection) -> None:
        self._wire, self._nonce = wire, ""

    def phase(self, name: str, **facts: object) -> None:
        """Stop once, before the first publish of the instant that began."""
        nonce = str(facts.get("instant")).rpartition("-")[2]
        if name == "begin":
            self._nonce = nonce
        if name == "publish" and nonce == self._nonce:
            self._nonce = ""
            self._wire.send({"staged": nonce})
            self._wire.recv()


class Orders(Service):
    """Orders to somebody at the other end of a pipe."""

    _wire: Connection
    pid: int | None

    def tell(self, order: str, **facts: object) -> None:
        """Give an order, and do not wait."""
        self._wire.send({"order": order, **facts})

    def hear(self) -> dict[str, object]:
        """Wait for the answer; raise what the process met."""
        said: dict[str, object] = self._wire.recv()
        if isinstance(error := said.get("error"), BaseException):
            raise error
        return said

    def ask(self, order: str, **facts: object) -> dict[str, object]:
        """Give an order and wait for the answer."""
        self.tell(order, **facts)
        return self.hear()

    def stage(self, place: str, value: int, *ids: int) -> str:
        """Let it write, and hold it when its files are there and nobody can see them.

        Returns:
            The nonce of its instant.
        """
        return str(self.ask("upsert", place=place, value=value, ids=ids, held=True)["staged"])

    def go_on(self) -> dict[str, object]:
        """Let the held writer publish."""
        self._wire.send("go on")
        return self.hear()


class Hand(Orders):
    """One process, as its owner sees it."""

    def __init__(self, uri: str, broken: str | None = None) -> None:
        self._wire, other = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_obey, args=(other, uri, broken), daemon=True)
        self._process.start()
        other.close()
        self.pid = self._process.pid

    def kill(self) -> None:
        """End it as a machine does that loses its power."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGKILL)
        self._process.join()

    def stop(self) -> None:
        """End it, and let go of its pipe."""
        self._process.kill()
        self._process.join()
        self._wire.close()


def _obey(wire: Connection, uri: str, broken: str | None) -> None:
    """Be the process."""
    die_with_parent()
    if broken is not None:
        BREAKS[broken]()
    serve(wire, Table.open(uri), rows)


def serve(wire: Connection, table: Table, made: Callable[..., object]) -> None:
    """Carry out orders until nobody gives any more; ``made`` makes the rows to write."""
    orders: dict[str, Callable[..., dict[str, object]]] = {
        "upsert": lambda **facts: _upsert(table, wire, made, **facts),
        "clean": lambda: _done(table.maintenance.clean()),
        "compaction": lambda: _done(table.maintenance.compact(full=True)),
        "clustering": lambda: _done(table.maintenance.cluster(order_by="id", kind="sort")),
        "archive": lambda: _done(table.maintenance.archive()),
        "rebuild": lambda: _rebuild(table),
    }
    while True:
        try:
            told = wire.recv()
        except EOFError:
            return
        try:
            wire.send(orders[told.pop("order")](**told))
        except TableError as error:
            wire.send({"error": error})


def _upsert(
    table: Table, wire: Connection, made: Callable[..., object], **facts: object
) -> dict[str, object]:
    place, value, ids = facts["place"], facts["value"], facts["ids"]
    assert isinstance(ids, tuple)
    if facts["held"]:
        ports = replace(Ports(), observer=Gate(wire))
        table = Table(replace(table._handle, ports=ports))
    found = made(place, value, *ids)
    if table._handle.cache.known().table.spec.keyed:
        return {"version": table.upsert(found).version}
    where = f"place = '{place}' and id in ({', '.join(map(str, ids))})"
    return {"version": table.overwrite(found, where=where).version}


def _rebuild(table: Table) -> dict[str, object]:
    table.alter.set({"metadata.statistics": "on"})
    return _done(table.maintenance.rebuild_metadata())


def _done(_: object) -> dict[str, object]:
    return {}
