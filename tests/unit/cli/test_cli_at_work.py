"""tablectl writers and tablectl readers: who is at work on a table, and who died."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pytest

from plait import Table
from plait.storage import open_store
from plait.timeline import paths
from tests.support import build


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(str(tmp_path / "t"), "id bigint", record_key=["id"])


def uri_of(table: Table) -> str:
    return build.uri_of(table)


def age(table: Table, folder: str, seconds: float) -> None:
    """Let the files in a folder of the metadata be as old as this."""
    store = open_store(uri_of(table))
    for info in store.list(folder):
        then = store.now_ms() / 1000 - seconds
        os.utime(os.path.join(uri_of(table), info.path), (then, then))


def listed(tablectl, command: str, table: Table) -> list[dict[str, object]]:
    return json.loads(tablectl(command, uri_of(table), "--json").out)["data"][command]


def test_writers_are_listed_until_they_end(tablectl, table):
    with table.writer("upsert") as first, table.writer("upsert") as second:
        found = listed(tablectl, "writers", table)
        oldest_first = sorted([str(first.instant), str(second.instant)])  # maybe of one ms
        assert [entry["instant"] for entry in found] == oldest_first
        assert {(entry["pid"], entry["alive"]) for entry in found} == {(os.getpid(), True)}
        assert re.search(r"upsert .* alive", tablectl("writers", uri_of(table)).out, re.MULTILINE)
    assert table.inspect.writers() == ()
    assert listed(tablectl, "writers", table) == []


def test_readers_are_listed_with_the_version_that_they_keep(tablectl, table):
    old = table.scan(version=0)
    table.upsert(pa.table({"id": [1]}))
    new = table.scan()
    found = listed(tablectl, "readers", table)
    assert [entry["version"] for entry in found] == sorted([old.version, new.version])
    assert {(entry["pid"], entry["alive"]) for entry in found} == {(os.getpid(), True)}
    del old, new
    assert table.inspect.readers() == ()
    assert listed(tablectl, "readers", table) == []


def test_a_reader_that_was_silent_for_too_long_is_dead(tablectl, table):
    """INV-06: a clean respects it no more, and says the same."""
    scan = table.scan()
    age(table, paths.LEASES, 3_600)
    (entry,) = table.inspect.readers()
    assert not entry.alive
    assert entry.silent_ms is not None
    assert entry.silent_ms >= 3_500_000
    assert re.search(r" dead\?", tablectl("readers", uri_of(table)).out, re.MULTILINE)
    assert scan.version == 0


def test_a_pin_that_cannot_be_read_keeps_every_version_of_somebody_unknown(tablectl, table):
    """INV-06."""
    store = open_store(uri_of(table))
    store.put(f"{paths.LEASES}/{7:020d}-{'a' * 16}", b"rubbish")
    (entry,) = table.inspect.readers()
    assert (entry.version, entry.host, entry.pid, entry.alive) == (0, "", 0, True)
