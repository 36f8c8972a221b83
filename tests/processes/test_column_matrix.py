"""Each cell of the matrix of column changes and work in flight, on a disk (RFC 0027).

The work is that of this process, and another process changes the columns meanwhile.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from plait import RetryableConflictError, Table, Update
from plait.errors import BadRecordError
from plait.model.clauses import Clauses
from plait.write.request import merge_request
from plait.write.writer import Writer
from scripts.column_matrix import BESIDE, ColumnChange, Upshot, WorkInFlight
from tests.processes.altering import SCHEMA, rows
from tests.support.build import again, uri_of

pytestmark = pytest.mark.processes
_NAMES = itertools.count()


class Alterer:
    """Another process, which changes columns when it is told."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.processes.altering"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.folder = folder

    def change(self, table: Table, change: ColumnChange) -> None:
        """Have it make a change, and wait until that is committed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"uri": uri_of(table), "change": change.value}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        assert int(self._process.stdout.readline()) > 0

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alterer]:
    process = Alterer(tmp_path_factory.mktemp("tables"))
    yield process
    process.close()


def make(other: Alterer, kind: str) -> Table:
    uri = str(other.folder / str(next(_NAMES)))
    table = Table.create(uri, SCHEMA, record_key="id", buckets=2, table_type=kind)
    table.append(rows(1, 2, 3))
    return table


def begun(table: Table, work: WorkInFlight, stack: ExitStack, *, v: int | None) -> None:
    """Begin some work, which puts a row with ``v`` under the key 4 or 1, or removes key 1."""
    client, fresh, number = again(table), rows(4, v=v), "NULL" if v is None else str(v)
    writers: dict[WorkInFlight, Callable[[], Writer]] = {
        WorkInFlight.APPEND: lambda: client.writer("append"),
        WorkInFlight.INSERT: lambda: client.writer("insert"),
        WorkInFlight.UPSERT: lambda: client.writer("upsert"),
        WorkInFlight.PARTIAL: lambda: client.writer("upsert", missing_columns="keep"),
        WorkInFlight.EVOLVE: lambda: client.writer("upsert", evolve="add"),
        WorkInFlight.OVERWRITE: lambda: client.writer("overwrite", on_conflict="retry"),
        WorkInFlight.OVERWRITE_WHERE: lambda: client.writer(
            "overwrite", where="id > 3", on_conflict="retry"
        ),
        WorkInFlight.DELETE: lambda: client.writer("delete"),
        WorkInFlight.STREAM: lambda: client.stream("app").writer("upsert", after=None, end="1"),
        WorkInFlight.COMPUTED: lambda: client.writer("upsert", read_from=client.scan()),
    }
    given = {
        WorkInFlight.PARTIAL: rows(1, v=v).select(["id", "v", "w"]),
        WorkInFlight.EVOLVE: fresh.append_column("own", pa.array(["mine"])),
        WorkInFlight.DELETE: rows(1).select(["id"]),
    }
    if work in writers:
        stack.enter_context(writers[work]()).write(given.get(work, fresh))
        return
    if work is WorkInFlight.MERGE:
        clauses = Clauses.of(Update({"v": f"coalesce(s.v, {number})"}), (), ())
        merging = merge_request(clauses, None, table._handle.cache.known().table.spec)
        stack.enter_context(Writer(client._handle, merging)).write(rows(1, v=v))
        return
    block = stack.enter_context(client.transaction(on_conflict="retry"))
    if work is WorkInFlight.BLOCK:
        block.upsert(fresh)
    elif work is WorkInFlight.UPDATE:
        block.update({"v": f"CAST({number} AS INT)"}, where="id = 1")
    else:
        block.delete(where="id = 1")


def keys(table: Table) -> dict[int, object]:
    """Return ``v`` by key, whatever the key is called; 9 came with the change."""
    found = again(table).scan().to_arrow()
    name = "key" if "key" in found.column_names else "id"
    pairs = zip(found[name].to_pylist(), found["v"].to_pylist(), strict=True)
    return {number: v for number, v in pairs if number != 9}


BEFORE = {1: 0, 2: 0, 3: 0}
AFTER: dict[WorkInFlight, dict[int, object]] = {
    **{work: {**BEFORE, 4: 7} for work in WorkInFlight},
    **{
        work: {**BEFORE, 1: 7}
        for work in (WorkInFlight.PARTIAL, WorkInFlight.UPDATE, WorkInFlight.MERGE)
    },
    **{work: {2: 0, 3: 0} for work in (WorkInFlight.DELETE, WorkInFlight.DELETE_WHERE)},
    WorkInFlight.OVERWRITE: {4: 7},
}
OTHERS = (WorkInFlight.ALTER, WorkInFlight.COMPACT, WorkInFlight.READ)
WRITES = [cell for cell in BESIDE if cell[1] not in OTHERS]


def name_of(value: object) -> str:
    return value.name.lower() if isinstance(value, (ColumnChange, WorkInFlight)) else str(value)


@pytest.mark.long(20)
@pytest.mark.parametrize(("change", "work"), WRITES, ids=name_of)
def test_a_write_comes_to_what_the_matrix_says(
    other: Alterer, change: ColumnChange, work: WorkInFlight
) -> None:
    """INV-05, INV-07: everything or nothing, and what is there is under the new columns."""
    kind = ("cow", "mor")[(list(WorkInFlight).index(work) + list(ColumnChange).index(change)) % 2]
    table, stack, outcome = make(other, kind), ExitStack(), BESIDE[change, work]
    begun(table, work, stack, v=7)
    other.change(table, change)
    if outcome is Upshot.AGAIN:
        with pytest.raises(RetryableConflictError):
            stack.close()
        assert keys(table) == BEFORE
    else:
        stack.close()
        assert keys(table) == AFTER[work]
    if outcome is Upshot.JUDGED:
        table, stack = make(other, kind), ExitStack()
        begun(table, work, stack, v=None)
        other.change(table, change)
        with pytest.raises(BadRecordError):
            stack.close()
        assert keys(table) == BEFORE
    if change in (
        ColumnChange.ADD,
        ColumnChange.BROUGHT,
        ColumnChange.RENAME_KEY,
    ):  # the others differ in no file
        assert not table.check.verify(data=True).problems


@pytest.mark.long(3)
@pytest.mark.parametrize("change", ColumnChange, ids=name_of)
def test_another_change_counts_too(other: Alterer, change: ColumnChange) -> None:
    """Both are taken from the newest columns, and no id is given out twice."""
    table = make(other, "cow")
    client = again(table)
    client._handle.cache.refresh()
    other.change(table, change)
    assert BESIDE[change, WorkInFlight.ALTER] is Upshot.BOTH
    assert client.alter.columns().add("late", "int", default=1).commit()
    schema = again(table)._handle.cache.refresh().table.spec.schema
    assert schema.names[-1] == "late"
    assert len({schema.ids[name] for name in schema.names}) == len(schema.names)


@pytest.mark.long(3)
@pytest.mark.parametrize("change", ColumnChange, ids=name_of)
def test_a_compaction_and_a_reader_go_on_under_the_columns_that_they_began_with(
    other: Alterer, change: ColumnChange
) -> None:
    """INV-04, INV-15."""
    table = make(other, "mor")
    table.upsert(rows(1, 2, v=5))
    scan = again(table).scan()
    plan = again(table).maintenance.compact(full=True, dry_run=True)
    other.change(table, change)
    again(table).maintenance.compact(plan)
    found = scan.to_arrow()
    assert found.schema.names == SCHEMA.names
    assert sorted(found["v"].to_pylist()) == [0, 5, 5]
    assert keys(table) == {1: 5, 2: 5, 3: 0}
    assert (
        BESIDE[change, WorkInFlight.READ]
        is BESIDE[change, WorkInFlight.COMPACT]
        is Upshot.UNTOUCHED
    )
    assert not table.check.verify(data=True).problems
