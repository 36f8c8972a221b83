"""Our locks under the kit that is shipped to users."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plait.locks import open_lock
from plait.locks.port import LockProvider
from plait.model.consent import Consent
from plait.ports import Ports
from plait.storage import open_store
from plait.storage.port import Store
from plait.testing import ExpiringLockKit, LockKit, LosableLockKit, SharedLockKit
from tests.integration.zookeeper.sessions import expire
from tests.services.zookeeper import ZooKeeper


def table_at(place: Path) -> Store:
    """Return the store of a table's directory: a lock makes its own room, never the table's."""
    (place / ".meta").mkdir(parents=True, exist_ok=True)
    return open_store(str(place))


class TestFileLock(LockKit, LosableLockKit):
    @pytest.fixture
    def providers(self, tmp_path: Path) -> Callable[[], LockProvider]:
        return lambda: open_lock("file", table_at(tmp_path), Ports())

    @pytest.fixture
    def lose(self, tmp_path: Path) -> Callable[[], None]:
        return (tmp_path / ".meta/locks/commit").unlink


class TestProcessLock(LockKit):
    @pytest.fixture
    def providers(self, tmp_path: Path) -> Callable[[], LockProvider]:
        return lambda: open_lock("process", open_store(f"memory://{tmp_path.name}"), Ports())


@pytest.mark.processes
class TestFileLockAmongProcesses(SharedLockKit):
    @pytest.fixture
    def lock(self) -> str:
        return "file"

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return table_at(tmp_path / "table")


@pytest.mark.zookeeper
class TestZooKeeperLock(LockKit, LosableLockKit):
    @pytest.fixture
    def providers(self, zookeeper: ZooKeeper, tmp_path: Path) -> Callable[[], LockProvider]:
        lock, store = zookeeper.lock("kit"), table_at(tmp_path)
        return lambda: open_lock(lock, store, Ports(), Consent().also(lock))

    @pytest.fixture
    def lose(self, zookeeper: ZooKeeper) -> Callable[[], None]:
        return lambda: expire(zookeeper.lock("kit"))


@pytest.mark.zookeeper
class TestZooKeeperLockAmongProcesses(ExpiringLockKit):
    @pytest.fixture
    def lock(self, zookeeper: ZooKeeper) -> str:
        return zookeeper.lock("kit")

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return table_at(tmp_path / "table")
