"""Commit ids and epochs that are undone and let through again while their writer is at work."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait import IncompatibleConflictError, Table, UndoneError
from plait.model.stream import Position
from plait.write.writer import Writer
from tests.support.protocol import beside

ROWS = pa.table({"id": [1, 2], "v": [5, 5]})


def make(name: str) -> Table:
    table = Table.create(f"memory://let-through-{name}", "id bigint, v bigint", record_key="id")
    table.upsert(pa.table({"id": [2], "v": [1]}))
    return table


def by_id(table: Table) -> None:
    table.upsert(ROWS, commit_id="one")


def by_epoch(table: Table) -> None:
    after: Position | None = None
    with table.stream("s").writer("upsert", after=after, end="1", on_conflict="raise") as writer:
        assert isinstance(writer, Writer)
        writer.write(ROWS)


@pytest.mark.parametrize("write", [by_id, by_epoch])
def test_what_was_let_through_while_it_was_written_says_so_and_is_applied_when_sent_again(
    write: object,
) -> None:
    """INV-16: somebody sent the same, and a restore undid it and let it be applied again."""
    assert callable(write)
    table = make(write.__name__)

    def meanwhile() -> None:
        write(table)
        table.versions.undo(replay=True)

    with pytest.raises(UndoneError) as caught:
        write(beside(table, "publish", meanwhile))
    assert "send it again" in caught.value.hint
    assert table.scan().count() == 1
    write(table)
    assert table.scan().count() == 2


@pytest.mark.parametrize("write", [by_id, by_epoch])
def test_what_was_undone_while_it_was_written_needs_a_replay(write: object) -> None:
    """INV-16."""
    assert callable(write)
    table = make(f"not-{write.__name__}")

    def meanwhile() -> None:
        write(table)
        table.versions.undo()

    with pytest.raises(UndoneError) as caught:
        write(beside(table, "publish", meanwhile))
    assert "Table.replay" in caught.value.hint
    with pytest.raises(UndoneError):
        write(table)
    table.versions.replay()
    write(table)
    assert table.scan().count() == 2


def dated(*ids: int) -> pa.Table:
    times = pa.array([0] * len(ids), pa.timestamp("us", "UTC"))
    return pa.table({"id": ids, "at": times, "v": [1] * len(ids)})


def by_predicate(table: Table) -> None:
    table.overwrite(dated(9), where="id = 9", on_conflict="retry")


def by_update(table: Table) -> None:
    table.update({"v": "v + 1"}, where="id < 5", on_conflict="retry")


def by_reads(table: Table) -> None:
    with table.transaction() as block:
        block.scan(where="id < 5").to_arrow()
        block.upsert(dated(9))


@pytest.mark.parametrize("write", [by_predicate, by_update, by_reads])
def test_a_writer_that_meets_a_restore_to_another_layout_and_later_rows_is_refused_by_name(
    write: object,
) -> None:
    """INV-07: what came after the restore is not judged by the partitions of before it."""
    assert callable(write)
    table = Table.create(
        f"memory://other-layout-{write.__name__}",
        "id bigint, at timestamp, v bigint",
        record_key="id",
        partition_by="month(at)",
        unique="partition",
        isolation="serializable",
    )
    table.upsert(dated(1, 2))
    version = table.version
    table.layout.repush(partition_by="truncate(4, id)")
    assert version is not None

    def meanwhile() -> None:
        table.versions.restore(version=version)
        table.upsert(dated(3))

    with pytest.raises(IncompatibleConflictError, match="restore"):
        write(beside(table, "publish", meanwhile))
    assert table.scan().to_arrow().num_rows == 3
