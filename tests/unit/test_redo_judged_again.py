"""What is done again after a conflict is judged again; what comes late is refused or harmless."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import (
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
from tests.support.keyed import TYPES, content, make, rows


def by_bucket(table: Table) -> list[list[int]]:
    """Give keys by the bucket that they fall into."""
    batch = rows(*((n, 0, "") for n in range(40))).to_batches()[0]
    numbers = bucket_of(
        key_hashes(batch, ["id"]), table._handle.cache.known().table.spec.layout.buckets.count
    )
    found: dict[int, list[int]] = {}
    for key, number in enumerate(numbers.tolist()):
        found.setdefault(number, []).append(key)
    return [found[number] for number in sorted(found)]


def problems(table: Table) -> list[str]:
    return [str(p) for p in table.check.verify().problems]


@pytest.mark.parametrize("table_type", TYPES)
def test_a_transaction_block_is_entered_once(table_type: str) -> None:
    table = make(table_type)
    tx = table.transaction()
    with tx:
        tx.upsert(rows((1, 0, "a")))
    with pytest.raises(TransactionClosedError), tx:
        tx.upsert(rows((2, 0, "b")))
    assert not problems(table)
    assert content(table) == {1: "a"}


@pytest.mark.parametrize("table_type", TYPES)
def test_a_redo_that_reaches_more_keys_is_judged_again(table_type: str) -> None:
    table = make(table_type, buckets=2)
    one, two, *_ = by_bucket(table)
    a, c, b, d = one[0], one[1], two[0], two[1]
    table.upsert(rows((a, 0, "old"), (d, 0, "old")))
    with table.writer("delete") as writer:
        writer.write(pa.table({"id": [a, b]}))
        table.upsert(rows((c, 0, "theirs"), (b, 0, "theirs")))
    assert not problems(table)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_redo_that_deletes_what_came_after_the_read_is_refused(table_type: str) -> None:
    table = make(table_type, buckets=2)
    one, two, *_ = by_bucket(table)
    a, c, b, d = one[0], one[1], two[0], two[1]
    table.upsert(rows((a, 0, "old"), (d, 0, "old")))
    writer = table.writer("delete", read_from=table.version).__enter__()
    writer.write(pa.table({"id": [a, b]}))
    table.upsert(rows((c, 0, "theirs"), (b, 0, "theirs")))
    with pytest.raises(RetryableConflictError):
        writer.__exit__(None, None, None)
    assert b in content(table)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_redo_that_inserts_what_it_had_skipped_is_judged_again(table_type: str) -> None:
    table = make(table_type, buckets=2)
    one, two, *_ = by_bucket(table)
    a, c, b, d = one[0], one[1], two[0], two[1]
    table.upsert(rows((b, 0, "old"), (d, 0, "old")))
    with table.writer("insert", on_duplicate="skip") as writer:
        writer.write(rows((a, 0, "ours"), (b, 0, "ours")))
        with table.transaction() as tx:
            tx.upsert(rows((c, 0, "theirs")))
            tx.delete(keys=pa.table({"id": [b]}))
    assert not problems(table)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_redo_in_which_a_loser_wins_is_judged_again(table_type: str) -> None:
    table = make(table_type, buckets=2, ordering="ts")
    one, two, *_ = by_bucket(table)
    a, c, b, d = one[0], one[1], two[0], two[1]
    table.upsert(rows((b, 9, "old"), (d, 0, "old")))
    with table.writer("upsert") as writer:
        writer.write(rows((a, 0, "ours"), (b, 5, "ours")))
        with table.transaction() as tx:
            tx.upsert(rows((c, 0, "theirs")))
            tx.delete(keys=pa.table({"id": [b]}))
    assert not problems(table)


@pytest.mark.parametrize("policy", ["key", "merge"])
@pytest.mark.parametrize("table_type", TYPES)
def test_a_row_that_loses_by_its_ordering_field_is_a_lost_update(
    table_type: str, policy: str
) -> None:
    table = make(table_type, ordering="ts", policy=policy)
    table.upsert(rows((1, 0, "10")))
    read = table.version
    table.upsert(rows((1, 9, "11 theirs")))
    with pytest.raises(RetryableConflictError), table.writer("upsert", read_from=read) as writer:
        writer.write(rows((1, 5, "11 ours")))


@pytest.mark.parametrize("table_type", TYPES)
def test_a_skipped_row_is_a_lost_update_if_it_was_computed_from_a_read(table_type: str) -> None:
    table = make(table_type)
    table.upsert(rows((2, 0, "10")))
    read = table.version
    table.upsert(rows((1, 9, "theirs")))
    with (
        pytest.raises(RetryableConflictError),
        table.writer("insert", on_duplicate="skip", read_from=read) as writer,
    ):
        writer.write(rows((1, 5, "ours")))


@pytest.mark.parametrize("table_type", TYPES)
def test_a_delete_of_a_key_that_went_since_the_read_conflicts(table_type: str) -> None:
    table = make(table_type)
    table.upsert(rows((1, 0, "10"), (2, 0, "x")))
    read = table.version
    table.delete(keys=pa.table({"id": [1]}))
    with pytest.raises(RetryableConflictError), table.writer("delete", read_from=read) as writer:
        writer.write(pa.table({"id": [1]}))


def test_two_changes_of_the_contract_cannot_lead_to_one_that_cannot_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is allowed by what it saw; together they are multi_writer with eager."""
    table = make("cow")
    table.alter.contract(concurrency="single_writer")
    uri = table._handle.store.address.uri
    others = ["multi_writer"]

    def second(
        handle: TableHandle, make: Callable[[TableState], Decision | None]
    ) -> Decision | None:
        if others:
            Table.open(uri).alter.contract(concurrency=others.pop())
        return publish_service(handle, make)

    monkeypatch.setattr(table_decisions, "publish_service", second)
    with pytest.raises(OptionError):
        table.alter.contract(failed_writes="eager")
    Table.open(uri)._handle.cache.known().table.contract.check()


def test_an_instant_that_was_rolled_back_gets_no_reservation() -> None:
    """Nobody would end it. The client may know of the end already: its threads share that."""
    table = make("cow")
    writer = table.writer("upsert").__enter__()
    writer.write(rows((1, 0, "x")))
    head = table._handle.cache.known()
    table.maintenance.rollback(writer.instant)
    reserved = Reserved(writer.instant, buckets=(((), 0),))
    publish_reservation(table._handle, reserved, since=head.version)
    with pytest.raises(RolledBackError):
        writer.__exit__(None, None, None)
    assert not table._handle.cache.refresh().reservations


def test_a_transaction_checks_what_to_do_on_a_conflict() -> None:
    table = make("cow")
    with pytest.raises(OptionError), table.transaction(on_conflict="rety") as tx:
        tx.upsert(rows((1, 0, "x")))
    assert not table.inspect.timeline().pending


def test_verify_allows_a_delete_that_was_done_again() -> None:
    table = make("cow", isolation="serializable", buckets=8)
    table.upsert(rows((1, 0, "bad")))
    with table.writer("delete", where="value = 'bad'"):
        table.upsert(rows((2, 0, "bad")))
    assert not content(table)
    assert not problems(table)


@pytest.mark.parametrize("table_type", TYPES)
def test_rows_that_lost_and_were_computed_from_a_read_are_in_the_write_set(table_type: str) -> None:
    table = make(table_type, ordering="ts")
    table.upsert(rows((1, 9, "old"), (2, 0, "old")))
    with table.writer("upsert", read_from=table.version) as writer:
        writer.write(rows((1, 5, "ours")))
    assert table.scan().to_arrow().num_rows == 2
    with table.writer("delete", read_from=table.version) as writer:
        writer.write(pa.table({"id": [7]}))
    assert not problems(table)


def test_rows_cannot_rest_on_a_snapshot_of_another_table() -> None:
    table, other = make("cow"), make("cow")
    with pytest.raises(OptionError, match="another table"):
        table.writer("upsert", read_from=other.snapshot())


def test_a_lock_that_cannot_be_released_fails_no_commit() -> None:
    """INV-10: the decision is published by then."""

    class Stuck:
        @contextmanager
        def acquire(self, **_: object) -> Iterator[None]:
            yield None
            message = "cannot be released"
            raise OSError(message)

    table = make("cow")
    handle = replace(table._handle, lock=Stuck())  # type: ignore[arg-type]  # the part that is used
    order = write_request("upsert", handle.cache.known().table.spec)
    writer = Writer(handle, order)
    with writer:
        writer.write(rows((1, 0, "ours")))
        table.upsert(rows((2, 0, "theirs")))
    assert writer.result.rebased == 1
