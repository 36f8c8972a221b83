"""Processes that write a table and a database are killed at random: nothing stays unknown."""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path

from plait import Table
from plait.replicate import repair, status
from plait.txn.recovery import roll_back_failed
from tests.processes.dual_writer import sink_of, work
from tests.services.forked import Forked
from tests.support.effort import MORE

ROUNDS, ROUNDS_MAX = (6 if MORE else 3), 20
WRITERS = 3
COMMITS = 2


def held(database: str) -> list[tuple[int, int]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT id, v FROM t ORDER BY id").fetchall()


def content(table: Table) -> list[tuple[int, int]]:
    found = table.scan().to_arrow().sort_by("id")
    return list(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_a_killed_writer_leaves_a_database_that_is_equal_or_known_to_be_ahead(
    tmp_path: Path,
) -> None:
    """Three writers of keys of their own; all are killed in the middle of their work."""
    uri, database = str(tmp_path / "t"), str(tmp_path / "sink.db")
    table = Table.create(uri, "id bigint, v bigint", record_key="id", buckets=2)
    found_ahead = 0
    for number in range(ROUNDS_MAX):
        if number >= ROUNDS and found_ahead:
            break
        with ExitStack() as stack:
            writers = [
                stack.enter_context(Forked(work, uri, database, number, WRITERS))
                for number in range(WRITERS)
            ]
            for writer in writers:
                assert all("version" in writer.hear() for _ in range(COMMITS))
            time.sleep(random.uniform(0, 0.3))
            for writer in writers:
                writer.send(signal.SIGKILL)
        roll_back_failed(table._handle, reason="killed", everything=True)
        (found,) = status(table)
        assert (found.behind, found.pending) == ((), ())
        found_ahead += bool(found.ahead)
        if found.in_step:
            assert held(database) == content(table)
        repaired = repair(table, sink_of(database))
        assert repaired.equal or found.ahead
        assert held(database) == content(table)
        assert [each.in_step for each in status(table)] == [True]
    assert table.check.verify().problems == ()
    assert found_ahead  # else nobody was killed in the middle
