"""Our locks under the kit that is shipped to users."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plait.locks import open_lock
from plait.locks.port import LockProvider
from plait.ports import Ports
from plait.storage import open_store
from plait.storage.port import Store
from plait.testing import LockKit, SharedLockKit


class TestFileLock(LockKit):
    @pytest.fixture
    def providers(self, tmp_path: Path) -> Callable[[], LockProvider]:
        return lambda: open_lock("file", open_store(str(tmp_path)), Ports())


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
        return open_store(str(tmp_path / "table"))
