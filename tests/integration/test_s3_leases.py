"""Leases on S3, whose client runs an event loop in a thread of its own."""

from __future__ import annotations

import gc

import fsspec.asyn
import pyarrow as pa
import pytest

from plait import Table
from plait.testing.lock_kit import until
from plait.timeline import paths
from tests.services.s3 import S3Server

pytestmark = pytest.mark.s3


def test_a_scan_that_is_dropped_in_the_thread_of_the_client_gives_its_lease_back(
    s3_server: S3Server,
) -> None:
    """INV-05 costs nobody a wait: that thread cannot serve the release that it would wait for."""
    table = Table.create(s3_server.uri("dropped"), "id bigint", storage_options=s3_server.options)
    table.append(pa.table({"id": [1]}))
    scans = [table.scan()]
    leases = lambda: list(table._handle.store.list(paths.LEASES))  # noqa: E731 - asked again and again
    assert len(leases()) == 1

    async def drop() -> None:
        scans.clear()
        gc.collect()

    fsspec.asyn.sync(fsspec.asyn.get_loop(), drop)
    assert until(lambda: not leases())
