"""What wrote no file before it was refused, or changed nothing, leaves no trace in the history."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pytest

from plait import (
    ConflictError,
    DuplicateKeyError,
    Insert,
    SchemaMismatchError,
    Table,
    Update,
)
from plait.model.changes import WriteStatus
from plait.model.contract import Contract
from plait.model.decision import SCOPE_BUCKETS, ReadSet, Scope
from plait.model.instant import Operation
from plait.model.request import WriteRequest
from plait.storage.port import Store
from plait.testing.wrapper import WrappedStore
from plait.timeline import paths
from plait.txn.rollback import find_outcome
from plait.txn.transaction import OptimisticTransaction, pending_record, request_instant
from plait.write.group_commit import Gathered, decide
from plait.write.request import write_request
from tests.support import build
from tests.support.build import again, rows
from tests.support.protocol import client, create, memory

KINDS = pytest.mark.parametrize("kind", ["cow", "mor"])
Write = Callable[[Table], object]


def make(kind: str = "cow", *, isolation: str = "snapshot") -> Table:
    return build.make(
        "id bigint, rev bigint",
        ordering="rev",
        buckets=1,
        table_type=kind,
        isolation=isolation,
        upsert=rows([1, 2], rev=5),
    )


def pending(table: Table) -> list[str]:
    return [info.path for info in table._handle.store.list(paths.PENDING)]


def files(table: Table) -> int:
    return sum(1 for info in table._handle.store.list("") if ".meta/" not in info.path)


def test_write_that_was_refused_or_raised_before_it_wrote_leaves_no_version() -> None:
    """Three refused inserts made the versions 3 to 6."""
    table = make()
    before = files(table)
    for _ in range(3):
        with pytest.raises(DuplicateKeyError):
            table.insert(rows([2], rev=1))
    with pytest.raises(ZeroDivisionError), table.writer("upsert"):
        _ = 1 // 0
    with pytest.raises(SchemaMismatchError), table.writer("upsert") as writer:
        writer.write(pa.table({"nothing": [1]}))
    with pytest.raises(SchemaMismatchError), table.transaction() as tx:
        tx.upsert(pa.table({"nothing": [1]}))
    with table.transaction():
        pass
    assert table.version == 1
    assert (pending(table), files(table)) == ([], before)
    assert table.check.verify().clean


UNCHANGED: dict[str, Write] = {
    "no rows": lambda t: t.upsert(rows([], rev=9).cast(t.schema.remove_metadata())),
    "absent keys": lambda t: t.delete(keys=pa.table({"id": [7]})),
    "no match": lambda t: t.delete(where="id = 7"),
    "no update": lambda t: t.update({"rev": "0"}, where="id = 7"),
    "no clause": lambda t: t.merge(rows([1], rev=1), matched=[Update(when="s.rev > t.rev")]),
    "nothing to insert": lambda t: t.merge(rows([1], rev=1), not_matched=[Insert()]),
    "partial": lambda t: t.upsert(rows([1], rev=1), missing_columns="keep"),
}


@KINDS
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("name", UNCHANGED)
def test_operation_that_changed_nothing_makes_no_version(
    kind: str, isolation: str, name: str
) -> None:
    table = make(kind, isolation=isolation)
    before = files(table)
    result = UNCHANGED[name](table)
    assert result.version == 1, "its base"  # type: ignore[attr-defined]
    assert (result.attempts, result.rebased) == (0, 0)  # type: ignore[attr-defined]
    assert table.version == 1
    assert (pending(table), files(table)) == ([], before)
    assert table.check.verify().clean


def test_upsert_whose_rows_all_lose_makes_no_version() -> None:
    """On a copy-on-write table: on the other its log files are condemned by a decision."""
    table = make()
    before = files(table)
    assert table.upsert(rows([1, 2], rev=4)).version == 1
    assert table.insert(rows([1, 2], rev=9), on_duplicate="skip").version == 1
    assert (table.version, files(table)) == (1, before)


def test_upsert_that_changes_the_last_row_of_many_loses_none() -> None:
    """Rounds of a merge in which nothing changed are read again, not left out."""
    table = make()
    table.alter.set({"write.buffer.size": "256KiB"})
    count = 40_000
    table.upsert(pa.table({"id": range(count), "rev": [6] * count}))
    before = table.version
    revs = [1] * (count - 1) + [7]
    table.upsert(pa.table({"id": range(count), "rev": revs}))
    assert table.version == before + 1
    found = table.scan().to_arrow().sort_by("id")
    assert found.num_rows == count
    assert found["rev"].to_pylist() == [6] * (count - 1) + [7]


@KINDS
def test_commit_id_of_what_changed_nothing_is_recorded(kind: str) -> None:
    table = make(kind)
    first = table.delete(where="id = 7", commit_id="once")
    assert first.version == 2
    table.upsert(rows([7], rev=1))
    assert table.delete(where="id = 7", commit_id="once").version == 2
    assert table.scan().count() == 3, "the first result, for ever"


def test_token_of_what_changed_nothing_is_recorded() -> None:
    table = make()
    stream = table.stream("s")
    with stream.writer("upsert", after=None, end="1") as epoch:
        epoch.write(rows([1], rev=1))
    assert stream.position is not None
    assert table.version == 2


def test_what_rests_on_an_older_read_is_judged_although_it_changed_nothing() -> None:
    """INV-07: an insert that was skipped for a row that came since the read must hear of it."""
    table = make()
    seen = table.version
    table.upsert(rows([3], rev=1))
    with pytest.raises(ConflictError):
        table.insert(rows([3], rev=2), on_duplicate="skip", read_from=seen)


def test_recoverer_that_ended_us_meanwhile_does_no_harm() -> None:
    table = make()
    writer = table.writer("upsert").__enter__()
    other = again(table)
    other.maintenance.rollback(writer.instant)
    writer.__exit__(ValueError, ValueError("mine"), None)
    assert pending(table) == []
    assert table.inspect.history(1)[0].operation == Operation.ROLLBACK
    assert table.check.verify().clean


def test_job_of_several_tasks_or_processes_that_changed_nothing_is_decided() -> None:
    """INV-06: what still runs would leave a file of an instant that nobody knows of."""
    table = make()
    txn = OptimisticTransaction.begin(table._handle, WriteRequest(Operation.UPSERT))
    txn.distributed = True
    assert txn.end_unchanged(WriteStatus()) is None
    result = txn.commit(WriteStatus(), Scope(SCOPE_BUCKETS), None)
    assert table.version == result.version == 2
    assert find_outcome(table._handle, table._handle.cache.refresh(), txn.instant, 0) is not None
    known = table._handle.cache.known()
    request = write_request("upsert", known.table.spec)
    record = pending_record(table._handle, request, known)
    request_instant(table._handle.store, record, Contract(), lambda: table._handle)
    gathered = Gathered(known.table.spec)
    assert decide(table._handle, request, record.instant, gathered).version == 3
    assert table.inspect.history(1)[0].instant.nonce == record.instant.nonce
    assert pending(table) == []


def test_what_rests_on_an_older_read_that_was_found_late_is_decided() -> None:
    """INV-07: Spark tells what was read only when the rows are staged."""
    table = make()
    txn = OptimisticTransaction.begin(table._handle, WriteRequest(Operation.UPSERT))
    older = ReadSet(txn.base.version - 1, (None,))
    assert txn.end_unchanged(WriteStatus(), older) is None
    assert txn.end_unchanged(WriteStatus()) is not None, "of the base alone"


class Slow(WrappedStore):
    """Holds a task's inflight records back until the pending record is gone, or half a second."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.arrived, self.gone = threading.Event(), threading.Event()

    def put(self, path: str, body: bytes) -> None:
        if ".inflight" in path:
            self.arrived.set()
            self.gone.wait(0.5)
        super().put(path, body)

    def delete(self, paths: Iterable[str]) -> None:
        super().delete(paths)
        self.gone.set()


def upsert_in_block(table: Table, rows: pa.RecordBatchReader) -> None:
    with table.transaction() as tx:
        tx.upsert(rows)


@pytest.mark.slow
@pytest.mark.parametrize("upsert", [Table.upsert, upsert_in_block])
def test_flush_that_is_under_way_when_the_writer_gives_up_leaves_no_file(
    upsert: Callable[[Table, pa.RecordBatchReader], object],
) -> None:
    """INV-06: the flush named its file after the records of its instant were gone."""
    store = memory()
    create(store, table_type="mor", partition_by=("p",), properties={"write.buffer.size": "4MiB"})
    slow = Slow(store)
    table = Table(client(slow))
    count = 50_000
    many = pa.table({"id": range(count), "value": ["some text"] * count, "p": ["a"] * count})

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(40):
            for batch in many.to_batches(max_chunksize=5_000):
                if slow.arrived.is_set():
                    raise ZeroDivisionError
                yield batch

    rows = pa.RecordBatchReader.from_batches(many.schema, batches())
    with pytest.raises(ZeroDivisionError):
        upsert(table, rows)
    assert slow.arrived.is_set()
    assert (pending(table), files(table)) == ([], 0)
    assert table.inspect.history(1)[0].operation == Operation.ROLLBACK
    assert table.check.verify().clean
