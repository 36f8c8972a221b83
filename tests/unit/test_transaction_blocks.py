"""Several operations, one decision: ``Table.transaction()``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import (
    CommitError,
    DuplicateKeyError,
    RetryableConflictError,
    StorageError,
    TransactionClosedError,
)
from plait.state.state import TableState
from plait.storage.port import Store
from plait.write.transaction import Transaction
from tests.support import build
from tests.support.build import make

SCHEMA = "id bigint, place string, value string"
rows = partial(build.tuples, "id place value")


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    made = make(SCHEMA, partition_by=["place"], buckets=2, table_type=request.param)
    made.upsert(rows((1, "a", "old"), (2, "a", "old"), (3, "b", "old")))
    yield made
    report = made.check.verify()
    assert not report.problems


def content(table: Table | Transaction) -> dict[int, str]:
    found = table.scan().to_arrow().to_pylist()
    assert len({(row["place"], row["id"]) for row in found}) == len(found), "INV-08"
    return {row["id"]: row["value"] for row in found}


def test_everything_is_decided_at_once(table: Table) -> None:
    """INV-02: one version, and nobody sees a part of it."""
    with table.transaction() as tx:
        tx.upsert(rows((1, "a", "new"), (4, "b", "new")))
        tx.delete(where="id = 3")
        tx.insert(rows((5, "c", "new")))
        assert content(table) == {1: "old", 2: "old", 3: "old"}
    assert tx.result.version == table.version == 2
    assert content(table) == {1: "new", 2: "old", 4: "new", 5: "new"}
    assert table.inspect.history()[0].operation == "transaction"


def test_each_operation_sees_what_those_before_it_did(table: Table) -> None:
    with table.transaction() as tx:
        tx.upsert(rows((1, "a", "first"), (9, "z", "first")))
        assert content(tx) == {1: "first", 2: "old", 3: "old", 9: "first"}
        tx.upsert(rows((1, "a", "second")))
        tx.delete(keys=pa.table({"id": [9], "place": ["z"]}))
        tx.delete(where="value = 'old' and place = 'a'")
        tx.insert(rows((2, "a", "again")))
        expected = {1: "second", 2: "again", 3: "old"}
        assert content(tx) == expected
    assert content(table) == expected


def test_an_overwrite_replaces_what_came_before_it(table: Table) -> None:
    with table.transaction() as tx:
        tx.upsert(rows((7, "a", "gone")))
        tx.overwrite(rows((8, "a", "kept")), partitions="dynamic")
        tx.upsert(rows((8, "a", "newer"), (9, "a", "new")))
    assert content(table) == {3: "old", 8: "newer", 9: "new"}
    with table.transaction() as tx:
        tx.delete(where="true")
        tx.insert(rows((1, "a", "only")))
    assert content(table) == {1: "only"}


def test_an_error_in_the_block_leaves_nothing_also_if_it_is_caught_inside(table: Table) -> None:
    tx = table.transaction()
    with pytest.raises(DuplicateKeyError), tx:  # noqa: PT012 - the block is what is tested
        tx.delete(where="id = 1")
        tx.insert(rows((2, "a", "twice")))
    tx = table.transaction().__enter__()
    tx.delete(where="id = 1")
    with pytest.raises(DuplicateKeyError):
        tx.insert(rows((2, "a", "twice")))
    with pytest.raises(CommitError, match="failed"):
        tx.__exit__(None, None, None)
    assert content(table) == {1: "old", 2: "old", 3: "old"}
    assert not table.inspect.timeline().pending


def test_a_conflict_redoes_every_operation_in_order(table: Table) -> None:
    """INV-07: on the new head, since a later one hangs on those before it."""
    with table.transaction() as tx:
        tx.upsert(rows((1, "a", "ours")))
        tx.upsert(rows((1, "a", "ours again")))
        table.upsert(rows((2, "a", "theirs"), (6, "a", "theirs")))
    assert content(table) == {1: "ours again", 2: "theirs", 3: "old", 6: "theirs"}
    assert tx.result.rebased


def test_the_first_commit_of_a_key_wins(table: Table) -> None:
    """INV-07."""
    tx = table.transaction().__enter__()
    tx.upsert(rows((1, "a", "ours")))
    tx.insert(rows((7, "c", "ours")))
    table.upsert(rows((1, "a", "theirs")))
    with pytest.raises(RetryableConflictError):
        tx.__exit__(None, None, None)
    assert content(table) == {1: "theirs", 2: "old", 3: "old"}
    assert not table.inspect.timeline().pending


def test_what_a_transaction_read_is_not_lost_to_others(table: Table) -> None:
    """INV-07: read, compute, write; a retry on its behalf would write stale rows."""
    tx = table.transaction(on_conflict="retry").__enter__()
    value = tx.scan(where="id = 1").to_arrow()["value"][0].as_py()
    tx.upsert(rows((1, "a", value + "+ours")))
    table.upsert(rows((1, "a", "old+theirs")))
    with pytest.raises(RetryableConflictError):
        tx.__exit__(None, None, None)
    assert content(table)[1] == "old+theirs"


def test_a_blind_transaction_may_be_run_again(table: Table) -> None:
    with table.transaction(on_conflict="retry") as tx:
        tx.delete(where="value = 'theirs'")
        tx.upsert(rows((1, "a", "ours")))
        table.upsert(rows((1, "a", "theirs"), (2, "a", "theirs")))
    assert content(table) == {1: "ours", 3: "old"}


def test_a_commit_id_is_applied_once(table: Table) -> None:
    """INV-09, for a whole transaction."""
    versions = set()
    for _ in range(2):
        with table.transaction(commit_id="batch-1") as tx:
            tx.delete(where="id = 1")
            tx.upsert(rows((1, "a", "new")))
        versions.add(tx.result.version)
    assert versions == {2}
    assert table.version == 2 or table.inspect.history()[0].action == "rollback"


def test_a_block_that_does_nothing_decides_nothing(table: Table) -> None:
    with table.transaction() as tx:
        tx.scan()
    with pytest.raises(TransactionClosedError):
        _ = tx.result
    with pytest.raises(TransactionClosedError):
        tx.append(rows((1, "a", "x")))
    assert not table.inspect.timeline().pending
    assert table.inspect.history()[0].action in ("rollback", "commit", "delta_commit")


def test_rows_without_keys_are_added_and_deleted_in_one_decision() -> None:
    table = make(SCHEMA, record_key=())
    table.append(rows((1, "a", "x"), (2, "a", "y")))
    with table.transaction() as tx:
        tx.delete(where="id = 1")
        tx.append(rows((3, "a", "z")))
        tx.delete(where="value = 'z'")
        tx.append(rows((4, "a", "w")))
    assert content(table) == {2: "y", 4: "w"}
    assert not table.check.verify().problems


def test_a_transaction_that_could_not_begin_is_not_open(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: TableState, store: Store, **asked: object) -> None:
        message = "no answer"
        raise StorageError(message, path="data")

    transaction = table.transaction()
    with monkeypatch.context() as patched:
        patched.setattr(TableState, "snapshot", fail)
        with pytest.raises(StorageError):
            transaction.__enter__()
    for use in (transaction.scan, lambda: transaction.delete(where="true")):
        with pytest.raises(TransactionClosedError):
            use()
    assert not table.inspect.writers()
