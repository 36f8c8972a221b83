"""Keys that move between partitions while others read, write and lay them out (RFC 0030)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest

from plait import RetryableConflictError, Table
from plait.arrow.output import Output
from plait.model.changes import KEYS_ALL
from plait.txn.conflict_checker import ConflictChecker
from tests.support import build
from tests.support.build import make

each_type = pytest.mark.parametrize("kind", ["cow", "mor"])
rows = partial(build.tuples, "id place n")


def made(kind: str) -> Table:
    return make(
        "id bigint, place string, n bigint", partition_by=["place"], table_type=kind, unique="table"
    )


@each_type
@pytest.mark.parametrize("layout", [[], ["bucket(2, id)"]], ids=["none", "by the key"])
def test_a_move_stays_one_update_once_the_table_has_no_such_partitions(
    kind: str, layout: list[str]
) -> None:
    """INV-08: a delete after an insert would take the row away from who applies the changes."""
    table = made(kind)
    table.upsert(rows((1, "b", 1), (2, "b", 1)))
    table.upsert(rows((1, "a", 2)))
    table.layout.repush(partition_by=layout)
    table.upsert(rows((1, "c", 3)))
    feed = table.changes(since=1).to_arrow().to_pylist()
    assert [(row["_change_type"], row["id"], row["place"]) for row in feed] == [
        ("update_preimage", 1, "b"),
        ("update_postimage", 1, "a"),
        ("update_preimage", 1, "a"),
        ("update_postimage", 1, "c"),
    ]


GONE: dict[str, Callable[[Table], object]] = {
    "delete by key": lambda t: t.delete(keys=pa.table({"id": pa.array([2])})),
    "delete by predicate": lambda t: t.delete(where="n = 2"),
    "overwrite": lambda t: t.overwrite(rows((1, "x", 9)), where="place = 'x'"),
}


@each_type
@pytest.mark.parametrize("operation", ["upsert", "insert", "overwrite"])
@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
@pytest.mark.parametrize("keys", ["each", "any"])
def test_a_row_that_was_read_and_is_gone_since_comes_into_no_other_partition(
    kind: str,
    operation: str,
    gone: Callable[[Table], object],
    keys: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-07: the row was computed from one that somebody deleted, with few keys or too many."""
    table = made(kind)
    table.upsert(rows((1, "x", 1), (2, "x", 2)))
    scan = table.scan()
    if keys == "any":
        monkeypatch.setattr(Output, "keys_max", 0)
    gone(table)
    (decision,) = table._handle.cache.decisions(scan.version, limit=1)
    assert (KEYS_ALL in decision.changes.touched["keys"].to_pylist()) is (keys == "any")
    version, given = table.version, {"partitions": "dynamic"} if operation == "overwrite" else {}
    with (
        pytest.raises(RetryableConflictError),
        table.writer(operation, read_from=scan, **given) as writer,
    ):
        writer.write(rows((2, "y", 3)))
    assert table.version == version or not table.check.verify().problems
    assert table.scan(where="id = 2").to_arrow().num_rows == 0


@each_type
def test_another_row_that_is_gone_since_the_read_is_no_conflict(kind: str) -> None:
    table = made(kind)
    table.upsert(rows((1, "x", 1), (2, "x", 2)))
    scan = table.scan()
    table.delete(keys=pa.table({"id": pa.array([1])}))
    with table.writer("upsert", read_from=scan) as writer:
        writer.write(rows((3, "y", 3)))
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == [2, 3]


@each_type
def test_verify_finds_a_row_that_was_read_and_came_back_into_another_partition(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-07: the commit of a client that did not look back."""
    table = made(kind)
    table.upsert(rows((1, "x", 1), (2, "x", 2)))
    scan = table.scan()
    table.delete(keys=pa.table({"id": pa.array([2])}))
    monkeypatch.setattr(ConflictChecker, "earlier", lambda *_, **__: [])
    with table.writer("upsert", read_from=scan) as writer:
        writer.write(rows((2, "y", 3)))
    (problem,) = table.check.verify().problems
    assert problem.invariant == "INV-07"
    assert "lost the update of version 2" in problem.message
