"""Many processes, one table on a local disk: nothing lost, nothing twice, no zombie commits."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait import Table
from tests.processes.fleet import Worker, fleet
from tests.processes.worker import ROWS, order_of

SCHEMA = "id bigint, place string, value bigint"
PROCESSES, UPSERTS, ROUNDS = 8, 25, 4
KILLS = int(os.environ.get("PLAIT_KILLS", "30"))
"""Over both table types; `make soak` takes 100 of each."""
BEAT = {"heartbeat.interval": "0.1s", "heartbeat.timeout": "0.5s"}


def create(
    path: Path,
    table_type: str,
    *,
    buckets: int = 1,
    policy: str = "file_group",
    properties: dict[str, object] | None = None,
) -> Table:
    return Table.create(
        str(path / "t"),
        SCHEMA,
        record_key=["id"],
        partition_by=["place"],
        table_type=table_type,
        buckets=buckets,
        policy=policy,
        ordering="value" if policy == "merge" else None,
        properties=properties or {},
    )


def contents(table: Table) -> dict[tuple[str, int], int]:
    rows = table.scan().to_arrow().to_pylist()
    found = {(row["place"], row["id"]): row["value"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


@pytest.mark.long(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_processes_in_their_own_partitions_all_commit(tmp_path: Path, table_type: str) -> None:
    """INV-02, INV-07: 8 processes x 25 upserts, 200 commits, no error, every row there."""
    table = create(tmp_path, table_type)
    with fleet(PROCESSES, str(tmp_path / "t"), UPSERTS, "own") as workers:
        reports = [worker.hear_all() for worker in workers]
    assert [r for report in reports for r in report if r["event"] != "committed"] == []
    versions = sorted(r["version"] for report in reports for r in report)
    assert versions == list(range(1, PROCESSES * UPSERTS + 1))
    expected = {
        (str(place), number * ROWS // 2 + row): number
        for place in range(PROCESSES)
        for number in range(UPSERTS)
        for row in range(ROWS)
    }
    assert contents(table) == expected
    assert table.check.verify().problems == ()


@pytest.mark.long(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_disjoint_keys_of_one_bucket_raise_no_conflict(tmp_path: Path, table_type: str) -> None:
    """INV-07, INV-08: policy ``key``, 8 processes, one bucket; each has keys of its own."""
    table = create(tmp_path, table_type, policy="key")
    with fleet(PROCESSES, str(tmp_path / "t"), ROUNDS, "shared") as workers:
        reports = [report for worker in workers for report in worker.hear_all()]
    assert [report for report in reports if report["event"] != "committed"] == []
    assert len(reports) == PROCESSES * ROUNDS
    assert contents(table) == {
        ("shared", place * 1_000_000 + number * ROWS + row): number
        for place in range(PROCESSES)
        for number in range(ROUNDS)
        for row in range(ROWS)
    }
    assert table.check.verify(history=True).problems == ()


@pytest.mark.long(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_the_same_keys_raise_no_conflict_under_merge(tmp_path: Path, table_type: str) -> None:
    """INV-08: the ordering field decides, in whatever order 8 processes arrive."""
    table = create(tmp_path, table_type, policy="merge")
    with fleet(PROCESSES, str(tmp_path / "t"), ROUNDS, "same") as workers:
        reports = [report for worker in workers for report in worker.hear_all()]
    assert [report for report in reports if report["event"] != "committed"] == []
    assert len(reports) == PROCESSES * ROUNDS
    newest = max(order_of(place, n) for place in range(PROCESSES) for n in range(ROUNDS))
    assert contents(table) == {("shared", row): newest for row in range(ROWS)}
    assert table.check.verify(history=True).problems == ()


@pytest.mark.long(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_refused_commits_name_their_winner_and_leave_nothing(
    tmp_path: Path, table_type: str
) -> None:
    """INV-07, INV-10: overlapping buckets; exactly what was reported committed is there."""
    table = create(tmp_path, table_type, buckets=4)
    with fleet(PROCESSES, str(tmp_path / "t"), UPSERTS, "shared") as workers:
        reports = [r for worker in workers for r in worker.hear_all()]
    assert {r["event"] for r in reports} <= {"committed", "refused"}
    committed = [r for r in reports if r["event"] == "committed"]
    refused = [r for r in reports if r["event"] == "refused"]
    assert refused, "the processes never met"
    assert len(committed) + len(refused) == PROCESSES * UPSERTS
    decided = {entry.version: entry for entry in table.inspect.history()}
    for report in refused:
        facts = report["facts"]
        assert isinstance(facts, dict)
        winner = decided[facts["version"]]
        assert str(winner.instant) == facts["theirs"]
        assert winner.operation == "upsert"
        assert facts["file_groups"]
    expected = {
        ("shared", int(str(r["first"])) + row): r["number"]
        for r in committed
        for row in range(ROWS)
    }
    assert contents(table) == expected
    assert table.check.verify().problems == ()


@pytest.mark.long(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_stopped_writer_that_was_rolled_back_cannot_commit(
    tmp_path: Path, table_type: str
) -> None:
    """INV-03: stopped beyond its heartbeat, rolled back by another process, then continued."""
    table = create(tmp_path, table_type, properties=BEAT)
    with Worker("hold", str(tmp_path / "t"), "a") as worker:
        staged = worker.hear()
        worker.send(signal.SIGSTOP)
        report = wait_for_death(table)
        assert [str(entry.instant) for entry in report] == [staged["instant"]]
        worker.send(signal.SIGCONT)
        worker.go()
        refused = worker.hear()
    assert refused["event"] == "refused"
    assert refused["type"] == "RolledBackError"
    assert contents(table) == {}
    assert table.check.verify().problems == ()
    table.upsert(rows := pa.table({"id": [1], "place": ["a"], "value": [7]}))
    assert contents(table) == {("a", 1): 7}
    assert rows.num_rows == 1


def wait_for_death(table: Table) -> tuple[object, ...]:
    """Roll back what is dead, until something was."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        ended = table.maintenance.rollback().ended
        if ended:
            return ended
        time.sleep(0.1)
    pytest.fail("the stopped writer never seemed dead")


@pytest.mark.long(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_writer_killed_at_any_moment_leaves_a_table_that_works(
    tmp_path: Path, table_type: str
) -> None:
    """INV-01 to INV-08, INV-10: SIGKILL at random moments; as many as PLAIT_KILLS says."""
    table = create(tmp_path, table_type, properties={**BEAT, "checkpoint.interval": "7"})
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    value = -1
    for kill in range(KILLS // 2):
        with Worker("forever", str(tmp_path / "t"), "a") as worker:
            assert worker.hear()["event"] == "ready"
            time.sleep(chance.uniform(0.0, 0.12))
            worker.send(signal.SIGKILL)
            reports = worker.hear_all()
        said = max((int(str(r["number"])) for r in reports), default=None)
        check_after_kill(table, said, seed=(seed, kill))
        table.upsert(pa.table({"id": [kill], "place": ["b"], "value": [kill]}))
        value = kill
    assert value == KILLS // 2 - 1
    table.maintenance.rollback()
    assert table.check.verify().problems == ()


def check_after_kill(table: Table, said: int | None, *, seed: object) -> None:
    """What was reported is there; what is there is one whole commit."""
    opened = Table.open(table.inspect.describe()["uri"])
    assert opened.check.verify(data=False).problems == (), seed
    values = opened.scan(where="place = 'a'").to_arrow()["value"]
    distinct = pc.unique(values).to_pylist()
    assert len(distinct) <= 1, seed
    if said is not None:
        assert len(values) == ROWS, seed
        assert distinct[0] in (said, said + 1), seed
