"""Our stores under the kit that is shipped to users."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.model.store_address import StoreAddress
from plait.storage import open_store
from plait.storage.fsspec_store import FsspecStore
from plait.storage.local import LocalStore
from plait.storage.port import Store
from plait.testing import CountingStore, FaultStore, SharedStoreKit, StoreKit
from tests.services.s3 import S3Server
from tests.support.memory import forget


class TestLocalStore(StoreKit):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(str(tmp_path / "deep" / "table"), create=True)


class TestLocalStoreByUri(StoreKit):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(f"file://{tmp_path}/a table, 100%", create=True)


class TestLocalStoreWithoutNamelessFiles(StoreKit):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(str(tmp_path / "table"), nameless=False)

    def reopen(self, store: Store) -> Store:
        return LocalStore(store.address.uri, nameless=False)


@pytest.mark.processes
class TestLocalStoreAmongProcesses(SharedStoreKit):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(str(tmp_path / "table"), create=True)


class TestMemoryStore(StoreKit):
    @pytest.fixture
    def store(self, request: pytest.FixtureRequest) -> Store:
        uri = f"memory://{request.node.name}"
        forget(uri)
        return open_store(uri)


class TestCountingStore(StoreKit):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return CountingStore(open_store(str(tmp_path / "table"), create=True))


class TestFaultStoreWithoutFaults(StoreKit):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return FaultStore(open_store(str(tmp_path / "table"), create=True))


class TestFsspecStore(StoreKit):
    """A local directory through fsspec: readable; not for writers (see the unit tests)."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return FsspecStore(StoreAddress(f"local://{tmp_path}/table"))

    def reopen(self, store: Store) -> Store:
        return FsspecStore(store.address, fresh=True)


@pytest.mark.s3
class TestS3Store(StoreKit):
    rounds = 6

    @pytest.fixture
    def store(self, s3_server: S3Server, request: pytest.FixtureRequest) -> Store:
        return open_store(s3_server.uri(f"kit/{request.node.name}"), s3_server.options)


@pytest.mark.s3
class TestS3StoreAmongProcesses(SharedStoreKit):
    rounds = 6

    @pytest.fixture
    def store(self, s3_server: S3Server) -> Store:
        return open_store(s3_server.uri("kit/processes"), s3_server.options)
