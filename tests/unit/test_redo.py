"""What is done again after a conflict rests on one snapshot, whole, and is judged again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import pytest

from plait import Table
from plait.errors import (
    CommitRetriesExhaustedError,
    OptionError,
    RetryableConflictError,
    RolledBackError,
    TransactionClosedError,
)
from plait.files.hash import bucket_of, key_hashes
from plait.model.decision import Decision, Reserved
from plait.state.state import TableState
from plait.txn import table_decisions
from plait.txn.reservation import publish_reservation
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle
from plait.write.request import write_request
from plait.write.writer import Writer
from tests.support import build, keyed
from tests.support.build import again, keys, listed, uri_of
from tests.support.keyed import TYPES, content, rows
from tests.support.protocol import Phases

SCHEMA = "id bigint, place string, value bigint"
placed = partial(build.tuples, "id place value")
each_type = pytest.mark.parametrize("table_type", TYPES)


def make(table_type: str, **definition: object) -> Table:
    return build.make(SCHEMA, partition_by=["place"], table_type=table_type, **definition)


# --- what a redo reaches -------------------------------------------------------------------------


@each_type
def test_a_redo_asks_again_where_nothing_was_done_before(table_type: str) -> None:
    """INV-07: a bucket that the base left alone is in no window; the redo looks at it anew."""
    table = make(table_type)
    table.upsert(placed((2, "b", 0)))
    with table.writer("delete", where="value >= 0", on_conflict="retry"):
        table.insert(placed((50, "z", 1)))
        table.upsert(placed((2, "b", 1)))
    assert table.inspect.history()[0].base == 3
    assert table.scan().count() == 0


@each_type
def test_overwrites_of_one_predicate_conflict_also_in_empty_partitions(table_type: str) -> None:
    """INV-07: no serial order would leave the rows of both."""
    table = make(table_type)
    where = "place >= 'a'"
    second = table.writer("overwrite", where=where).__enter__()
    second.write(placed((2, "b", 0)))
    table.overwrite(placed((1, "a", 0)), where=where)
    with pytest.raises(RetryableConflictError):
        second.__exit__(None, None, None)
    assert listed(table, "id") == [(1,)]
    with table.writer("overwrite", where=where, on_conflict="retry") as third:
        third.write(placed((3, "c", 0)))
        table.overwrite(placed((4, "d", 0)), where=where)
    assert listed(table, "id") == [(3,)]


def of_two_buckets(table_type: str) -> tuple[Table, list[int], list[int]]:
    """Return a table and the keys that fall into each of its buckets."""
    numbers = bucket_of(key_hashes(keys(range(40)), ["id"]), 2).tolist()
    one, other = ([key for key in range(40) if numbers[key] == bucket] for bucket in (0, 1))
    return keyed.make(table_type, buckets=2, ordering="ts"), one, other


@each_type
@pytest.mark.parametrize("read", [None, 1], ids=["blind", "computed from a read"])
def test_a_redo_of_a_delete_that_reaches_more_keys_is_judged_again(
    read: int | None, table_type: str
) -> None:
    """INV-07."""
    table, (a, c, *_), (b, d, *_) = of_two_buckets(table_type)
    table.upsert(rows((a, 0, "old"), (d, 0, "old")))
    refused = nullcontext() if read is None else pytest.raises(RetryableConflictError)
    with refused, table.writer("delete", read_from=read) as writer:
        writer.write(keys(a, b))
        table.upsert(rows((c, 0, "theirs"), (b, 0, "theirs")))
    assert (b in content(table)) is (read is not None)
    assert not table.check.verify().problems


@each_type
@pytest.mark.parametrize(("operation", "skip"), [("insert", "skip"), ("upsert", "raise")])
def test_a_redo_in_which_a_row_wins_that_was_left_out_is_judged_again(
    operation: str, skip: str, table_type: str
) -> None:
    """INV-07: an insert had skipped it, or it had lost by its rank."""
    table, (a, c, *_), (b, d, *_) = of_two_buckets(table_type)
    table.upsert(rows((b, 9, "old"), (d, 0, "old")))
    with table.writer(operation, on_duplicate=skip) as writer:
        writer.write(rows((a, 0, "ours"), (b, 5, "ours")))
        with table.transaction() as tx:
            tx.upsert(rows((c, 0, "theirs")))
            tx.delete(keys=keys(b))
    assert not table.check.verify().problems


@each_type
@pytest.mark.parametrize("policy", ["key", "merge"])
@pytest.mark.parametrize("operation", ["insert", "upsert", "delete"])
def test_a_row_that_changes_nothing_is_a_lost_update_if_it_was_computed_from_a_read(
    operation: str, policy: str, table_type: str
) -> None:
    """INV-07: it is skipped, loses by its rank, or is gone already."""
    table = keyed.make(table_type, ordering="ts", policy=policy)
    table.upsert(rows((1, 0, "old"), (2, 0, "old")))
    read = table.version
    table.upsert(rows((1, 9, "theirs"), (3, 9, "theirs")))
    if operation == "delete":
        table.delete(keys=keys(1))
    how = {"on_duplicate": "skip"} if operation == "insert" else {}
    ours = rows((3 if operation == "insert" else 1, 5, "ours"))
    with (
        pytest.raises(RetryableConflictError),
        table.writer(operation, read_from=read, **how) as writer,  # type: ignore[arg-type]  # by name
    ):
        writer.write(keys(1) if operation == "delete" else ours)


@each_type
def test_rows_that_lost_and_were_computed_from_a_read_are_in_the_write_set(table_type: str) -> None:
    table = keyed.make(table_type, ordering="ts")
    table.upsert(rows((1, 9, "old"), (2, 0, "old")))
    with table.writer("upsert", read_from=table.version) as writer:
        writer.write(rows((1, 5, "ours")))
    assert table.scan().to_arrow().num_rows == 2
    with table.writer("delete", read_from=table.version) as writer:
        writer.write(keys(7))
    assert not table.check.verify().problems


class Rival(Phases):
    """Upserts a key of its own whenever the other is about to do its buckets again."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table, self._keys = table, itertools.count(100)

    def phase(self, name: str, **facts: object) -> None:
        super().phase(name, **facts)
        if name == "redo":
            self._table.upsert(placed((next(self._keys), "a", 1)))


def one_writer(table: Table, meet: Callable[[], object]) -> None:
    with table.writer("upsert") as writer:
        writer.write(placed((1, "a", 1), (2, "b", 1), (3, "c", 1)))
        meet()


def one_transaction(table: Table, meet: Callable[[], object]) -> None:
    with table.transaction() as tx:
        tx.upsert(placed((1, "a", 1)))
        tx.upsert(placed((1, "a", 2), (3, "c", 2)))
        tx.delete(where="id = 2")
        meet()


@each_type
@pytest.mark.parametrize("work", [one_writer, one_transaction])
def test_a_refused_commit_leaves_no_file_of_any_round(
    table_type: str, work: Callable[[Table, Callable[[], object]], None]
) -> None:
    """INV-06: it deletes by name what it staged, so it must know every name."""
    table = make(table_type, properties={"commit.retries": "2"})
    table.upsert(placed((1, "a", 0), (2, "b", 0)))
    ours, rival = again(table), Rival(table)
    ours._opened.handle = replace(ours._handle, ports=replace(ours._handle.ports, observer=rival))
    with pytest.raises(CommitRetriesExhaustedError):
        work(ours, lambda: table.upsert(placed((4, "a", 1))))
    assert rival.heard.count("redo") == 2
    report = table.check.verify()
    assert (report.problems, report.notes) == ((), ())


# --- what comes late -----------------------------------------------------------------------------


def test_a_transaction_block_is_entered_once_and_knows_what_to_do_on_a_conflict() -> None:
    table = keyed.make("mor")
    tx = table.transaction()
    with tx:
        tx.upsert(rows((1, 0, "a")))
    with pytest.raises(TransactionClosedError), tx:
        tx.upsert(rows((2, 0, "b")))
    with pytest.raises(OptionError), table.transaction(on_conflict="rety") as wrong:
        wrong.upsert(rows((1, 0, "x")))
    assert not table.inspect.timeline().pending
    assert not table.check.verify().problems
    assert content(table) == {1: "a"}


def test_two_changes_of_the_contract_cannot_lead_to_one_that_cannot_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is allowed by what it saw; together they are multi_writer with eager."""
    table = keyed.make("cow")
    table.alter.contract(concurrency="single_writer")
    others = ["multi_writer"]

    def second(
        handle: TableHandle, make: Callable[[TableState], Decision | None]
    ) -> Decision | None:
        if others:
            again(table).alter.contract(concurrency=others.pop())
        return publish_service(handle, make)

    monkeypatch.setattr(table_decisions, "publish_service", second)
    with pytest.raises(OptionError):
        table.alter.contract(failed_writes="eager")
    Table.open(uri_of(table))._handle.cache.known().table.contract.check()


def test_an_instant_that_was_rolled_back_gets_no_reservation() -> None:
    """Nobody would end it. The client may know of the end already: its threads share that."""
    table = keyed.make("cow")
    writer = table.writer("upsert").__enter__()
    writer.write(rows((1, 0, "x")))
    head = table._handle.cache.known()
    table.maintenance.rollback(writer.instant)
    reserved = Reserved(writer.instant, buckets=(((), 0),))
    publish_reservation(table._handle, reserved, since=head.version)
    with pytest.raises(RolledBackError):
        writer.__exit__(None, None, None)
    assert not table._handle.cache.refresh().reservations


def test_a_lock_that_cannot_be_released_fails_no_commit() -> None:
    """INV-10: the decision is published by then."""

    class Stuck:
        @contextmanager
        def acquire(self, **_: object) -> Iterator[None]:
            yield None
            message = "cannot be released"
            raise OSError(message)

    table = keyed.make("cow")
    handle = replace(table._handle, lock=Stuck())  # type: ignore[arg-type]  # the part that is used
    order = write_request("upsert", handle.cache.known().table.spec)
    writer = Writer(handle, order)
    with writer:
        writer.write(rows((1, 0, "ours")))
        table.upsert(rows((2, 0, "theirs")))
    assert writer.result.rebased == 1
