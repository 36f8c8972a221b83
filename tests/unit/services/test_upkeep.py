"""A table whose writers compact stays in shape, whoever writes and however often."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import OptionError
from plait.services.maintenance import upkeep
from plait.services.maintenance.upkeep import finish_upkeep
from tests.support import build
from tests.support.build import by_id

rows = partial(build.rows, schema=pa.schema([("id", pa.int64()), ("value", pa.int64())]), value=0)


def make(mode: str, **properties: object) -> Table:
    return build.make(
        "id bigint, value bigint",
        table_type="mor",
        buckets=2,
        properties={"compact": mode, **properties},
        upsert=rows(*range(400)),
    )


def files(table: Table) -> list[int]:
    found = table._handle.cache.snapshot().files
    return [found["bucket"].to_pylist().count(number) for number in (0, 1)]


@pytest.mark.parametrize("mode", ["off", "inline", "async"])
def test_a_look_up_opens_two_files_at_most_after_any_number_of_upserts(mode: str) -> None:
    """INV-08, INV-14: a base and one log a bucket, and the rows of the last upsert of each key."""
    table = make(mode)
    held = dict.fromkeys(range(400), 0)
    for value in range(1, 4 if mode == "off" else 16):
        if value == 8:  # it goes on
            table.alter.contract(failed_writes="eager", concurrency="single_writer")
        table.upsert(rows(*range(value, value + 12), value=value))
        held |= dict.fromkeys(range(value, value + 12), value)
        finish_upkeep()
        assert mode == "off" or max(files(table)) <= 2
    assert by_id(table) == held
    assert not table.check.verify().problems
    compacted = any(entry.operation == "compact" for entry in table.inspect.history())
    assert compacted is (mode != "off")
    with pytest.raises(OptionError, match="off, inline, async"):
        make("sometimes")


def test_commits_without_rows_leave_nothing_to_the_thread(monkeypatch) -> None:
    """Many may come while it works; what fell due before is done all the same."""
    table = make("async")
    begun, go = threading.Event(), threading.Event()
    compact = upkeep.compact

    def slowly(*args: object) -> object:
        begun.set()
        go.wait(30)
        return compact(*args)

    monkeypatch.setattr(upkeep, "compact", slowly)
    table.upsert(rows(*range(200), value=1))
    assert begun.wait(30)
    for name in ("one", "two"):
        with table.writer("upsert", commit_id=name) as writer:
            writer.write(rows())
    go.set()
    finish_upkeep()
    assert max(files(table)) <= 2


def test_a_compaction_that_fails_leaves_the_commit_as_it_is(monkeypatch, caplog) -> None:
    """INV-10: it is not reported as failed."""
    table = make("inline")

    def broken(*_: object) -> None:
        message = "a compaction that fails"
        raise RuntimeError(message)

    monkeypatch.setattr(upkeep, "compact", broken)
    for value in range(3):
        result = table.upsert(rows(*range(40 * value, 40 * value + 40), value=value))
        assert result.version == table.version
    assert "the compaction after a commit failed" in caplog.text


AT_EXIT = """
import atexit
import pyarrow as pa
from plait import Table

t = Table.create("memory://exit", "id bigint", record_key="id", properties={"compact": "async"})
atexit.register(lambda: print(t.upsert(pa.table({"id": [1]})).version))
"""


def test_a_commit_stands_where_no_thread_can_be_had_any_more() -> None:
    """INV-10: the interpreter starts no thread while it ends, and may still write a last batch."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", AT_EXIT], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["1"], done.stderr


def test_upkeep_goes_on_after_no_thread_could_be_had(monkeypatch, caplog) -> None:
    table = make("async")

    def none(*_: object) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    with monkeypatch.context() as patched:
        patched.setattr(ThreadPoolExecutor, "submit", none)
        table.upsert(rows(*range(200), value=1))
    assert "upkeep after this commit is left" in caplog.text
    for value in (2, 3):
        table.upsert(rows(*range(200), value=value))
        finish_upkeep()
    assert max(files(table)) <= 2
