"""A table on a store that cannot create a name atomically, with slots from real ZooKeeper."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from plait.errors import CommitOutcomeUnknownError, OptionError
from plait.locks.address import Address
from plait.model.consent import ENVIRONMENT
from plait.storage import open_store
from plait.table import Table
from plait.testing.lock_kit import until
from tests.integration.zookeeper.sessions import beside
from tests.services.zookeeper import ZooKeeper
from tests.support.build import ids, rows

pytestmark = pytest.mark.zookeeper


@pytest.fixture(autouse=True)
def allowed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every client here, in other processes too, ask the servers of the tests (RFC 0037)."""
    if "zookeeper" in request.fixturenames:
        server: ZooKeeper = request.getfixturevalue("zookeeper")
        monkeypatch.setenv(ENVIRONMENT, f"{server.lock('x').rpartition('/')[0]}/*")


COHERENT = {"plait.declare": "coherent"}
WRITER = """
import sys
import pyarrow as pa
from plait.table import Table
uri, first = sys.argv[1], int(sys.argv[2])
table = Table.open(uri, storage_options={"plait.declare": "coherent"})
print("ready", flush=True)
sys.stdin.readline()
for number in range(first, first + 10):
    table.append(pa.table({"id": pa.array([number], pa.int64())}))
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A local directory through fsspec, which looks whether a name is free and then writes."""
    return f"local://{tmp_path}/table"


def start(uri: str, first: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, uri, str(first)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": "src"},
    )


def say(writer: subprocess.Popen[str]) -> None:
    assert writer.stdin is not None
    writer.stdin.write("\n")
    writer.stdin.flush()


def hear(writer: subprocess.Popen[str]) -> str:
    assert writer.stdout is not None
    return writer.stdout.readline().strip()


def end(writers: list[subprocess.Popen[str]]) -> None:
    for writer in writers:
        writer.kill()
        writer.wait()
        for stream in (writer.stdin, writer.stdout):
            if stream is not None:
                stream.close()


def test_many_processes_write_and_none_loses_a_row(zookeeper: ZooKeeper, uri: str) -> None:
    """INV-02, INV-07; one is killed on its way."""
    Table.create(uri, "id bigint", lock=zookeeper.lock("lent"), storage_options=COHERENT)
    writers = [start(uri, 100 * number) for number in range(1, 4)]
    doomed = start(uri, 900)
    try:
        assert {hear(writer) for writer in [*writers, doomed]} == {"ready"}
        for writer in [*writers, doomed]:
            say(writer)
        table = Table.open(uri, storage_options=COHERENT)
        assert until(lambda: any(number >= 900 for number in ids(table)))
        doomed.send_signal(signal.SIGKILL)
        assert {hear(writer) for writer in writers} == {"done"}
    finally:
        end([*writers, doomed])
    table.append(rows(1))
    found = ids(table)
    assert len(found) == len(set(found))
    mine = [number for number in found if number < 900]
    assert mine == [1, *(100 * n + k for n in range(1, 4) for k in range(10))]
    table.maintenance.rollback()
    assert table.check.verify().problems == ()
    assert ids(Table.open(uri)) == found, "a reader that declares nothing sees the same"


def test_the_contract_says_that_slots_are_lent(zookeeper: ZooKeeper, uri: str) -> None:
    """INV-12: no client can think otherwise."""
    lock = zookeeper.lock("contract")
    with pytest.raises(OptionError):
        Table.create(uri, "id bigint", lock=lock)
    table = Table.create(uri, "id bigint", lock=lock, storage_options=COHERENT)
    assert table.inspect.describe()["contract"]["lock"] == f"{lock}&slots=lent"
    bold = {"plait.declare": "coherent atomic-create"}
    Table.open(uri, storage_options=bold).append(rows(1))
    with beside(lock) as client:
        identity = next(name for name in client.get_children("/contract") if name[:3] == "id-")
        slots = client.get_children(f"/contract/{identity}/slots")
    assert sorted(int(name) for name in slots) == [0, 1]


def test_a_table_is_read_while_the_service_is_away_and_written_when_it_is_back(
    tmp_path: Path, uri: str
) -> None:
    """INV-10, INV-11."""
    with ZooKeeper(tmp_path / "own") as own:
        lock = own.lock("away", session="2s")
        table = Table.create(uri, "id bigint", lock=lock, storage_options=COHERENT)
        table.append(rows(1))
        own.servers[0].kill()
        assert ids(Table.open(uri, storage_options=COHERENT, allow=lock)) == [1]
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            table.append(rows(2))
        assert caught.value.version == 2
        own.servers[0].start()
        own.servers[0].wait_ready()
        assert until(lambda: writes(table, 3))
        assert ids(table) == [1, 3]
        table.maintenance.rollback()
        assert table.check.verify().problems == ()
    assert Address.parse(lock).session_s == 2


def writes(table: Table, number: int) -> bool:
    try:
        table.append(rows(number))
    except CommitOutcomeUnknownError:
        return False
    return True


def test_a_local_disk_can_have_its_slots_lent_too(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    place = str(tmp_path / "disk")
    Table.create(place, "id bigint", lock=zookeeper.lock("disk") + "&slots=lent").append(rows(1))
    assert ids(Table.open(place)) == [1]
    assert list(open_store(place).list(".meta/locks")) == []
