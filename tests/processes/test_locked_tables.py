"""Tables whose writers queue on a lock between processes: they all get through."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from plait.model.consent import ENVIRONMENT
from plait.table import Table
from tests.processes.fleet import Worker
from tests.processes.worker import keys_of
from tests.services.zookeeper import ZooKeeper

WRITERS = 4


@pytest.fixture(autouse=True)
def allowed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every client here, in other processes too, ask the servers of the tests (RFC 0037)."""
    if "zookeeper" in request.fixturenames:
        server: ZooKeeper = request.getfixturevalue("zookeeper")
        monkeypatch.setenv(ENVIRONMENT, f"{server.lock('x').rpartition('/')[0]}/*")


def run_writers(uri: str, *allow: str) -> None:
    with ExitStack() as living:
        writers = [
            living.enter_context(Worker("queue", uri, str(number), *allow))
            for number in range(WRITERS)
        ]
        for writer in writers:
            assert writer.hear()["event"] == "ready"
        for writer in writers:
            writer.go()
        for number, writer in enumerate(writers):
            reports = [report["event"] for report in writer.hear_all()]
            assert reports == ["committed"] * len(keys_of(number))
            assert writer.wait() == 0


def check(uri: str, lock: str) -> None:
    """Let every writer change the one bucket: each loses now and then, and none gives up."""
    table = Table.create(uri, "id bigint", record_key=["id"], buckets=1, lock=lock)
    run_writers(uri, *([lock] if "://" in lock else []))
    expected = [key for number in range(WRITERS) for key in keys_of(number)]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == expected
    assert table.check.verify().problems == ()
    # Who lost often enough keeps a place, and that is a decision too.
    writes = [each for each in table.inspect.history() if each.operation == "upsert"]
    assert len(writes) == len(expected)
    assert table.inspect.locks().holder is None


@pytest.mark.zookeeper
def test_writers_of_one_bucket_get_through_in_zookeeper(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """INV-07, INV-08."""
    check(str(tmp_path / "table"), zookeeper.lock("tables"))


@pytest.mark.zookeeper
def test_writers_of_one_bucket_get_through_with_lent_slots(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """INV-07, INV-08."""
    lock = zookeeper.lock("lent-tables") + "&slots=lent"
    check(str(tmp_path / "table"), lock)
    assert Table.open(str(tmp_path / "table")).inspect.locks().slots == "lent"
