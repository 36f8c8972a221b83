"""Lent slots without a service: a store that lacks what it must, and keys in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from plait.definition.create import define_table
from plait.errors import CapabilityMissingError, LockUnavailableError
from plait.locks.process import NoLock
from plait.ports import Ports
from plait.state.cache import StateCache
from plait.storage.port import Capabilities, Store
from plait.table import Table
from plait.testing import SimulatedCrashError
from plait.testing.wrapper import WrappedStore
from plait.timeline.external_commits import ExternalCommitStore
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import TableHandle

T = TypeVar("T")


class PlainStore(WrappedStore):
    """A store whose reads are fresh, and that has no atomic put-if-absent."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(put_if_absent=False, coherent=True)

    def put_if_absent(self, path: str, body: bytes) -> bool:
        del body
        message = f"put_if_absent of {path}: this store has no such thing"
        raise CapabilityMissingError(message)


class Keys:
    """What the service keeps: shared by all its clients."""

    def __init__(self) -> None:
        self.bound: dict[str, bytes] = {}
        self.mutex = threading.Lock()


class Client:
    """One client of the service, with its misfortunes."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.away = self.dead = False
        self.calls = 0
        self.fault: Callable[[str, bool], None] = lambda _operation, _after: None
        """Called before and after each call; may raise."""

    def claim(self, key: str, pointer: bytes) -> bytes:
        return self._call("claim", lambda: self._keys.bound.setdefault(key, pointer))

    def find(self, key: str) -> bytes | None:
        return self._call("find", lambda: self._keys.bound.get(key))

    def remove(self, key: str) -> None:
        try:
            self._call("remove", lambda: self._keys.bound.pop(key, None))
        except LockUnavailableError:
            return

    def _call(self, operation: str, run: Callable[[], T]) -> T:
        if self.dead:
            raise SimulatedCrashError
        self.calls += 1
        if self.away:
            message = "the service is away"
            raise LockUnavailableError(message)
        self.fault(operation, False)
        with self._keys.mutex:
            result = run()
        self.fault(operation, True)
        return result


def lent_table(store: Store, client: Client, ports: Ports) -> Table:
    """Open a table whose slots are lent."""
    lent = ExternalCommitStore(store, client)
    return Table(TableHandle(lent, ports, StateCache(lent, ports), NoLock()))


def create_lent(store: Store, client: Client, ports: Ports, schema: str) -> Table:
    """Create one; the contract in it says nothing of that, so that anyone can look."""
    table = define_table(schema, lock="none")
    create_table(ExternalCommitStore(store, client), ports, table)
    return lent_table(store, client, ports)


def versions_in(store: Store) -> Iterator[int]:
    """Give the versions whose slots are on the store."""
    for info in store.list(".meta/timeline"):
        yield int(info.path.rsplit("/", 1)[1].removesuffix(".json"))
