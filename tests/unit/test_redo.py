"""What is done again after a conflict rests on one snapshot, whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest

from plait import Table
from plait.errors import CommitRetriesExhaustedError, RetryableConflictError
from tests.support import build
from tests.support.build import again
from tests.support.protocol import Phases

SCHEMA = "id bigint, place string, value bigint"
rows = partial(build.tuples, "id place value")


def make(name: str, table_type: str, properties: Mapping[str, object] | None = None) -> Table:
    return build.make(
        SCHEMA, partition_by=["place"], table_type=table_type, properties=properties or {}
    )


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_redo_asks_again_where_nothing_was_done_before(table_type: str) -> None:
    """INV-07: a bucket that the base left alone is in no window; the redo looks at it anew."""
    table = make("idle", table_type)
    table.upsert(rows((2, "b", 0)))
    with table.writer("delete", where="value >= 0", on_conflict="retry"):
        table.insert(rows((50, "z", 1)))
        table.upsert(rows((2, "b", 1)))
    assert table.inspect.history()[0].base == 3
    assert table.scan().count() == 0


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_overwrites_of_one_predicate_conflict_also_in_empty_partitions(table_type: str) -> None:
    """INV-07: no serial order would leave the rows of both."""
    table = make("predicate", table_type)
    where = "place >= 'a'"
    second = table.writer("overwrite", where=where).__enter__()
    second.write(rows((2, "b", 0)))
    table.overwrite(rows((1, "a", 0)), where=where)
    with pytest.raises(RetryableConflictError):
        second.__exit__(None, None, None)
    assert table.scan().to_arrow()["id"].to_pylist() == [1]
    with table.writer("overwrite", where=where, on_conflict="retry") as third:
        third.write(rows((3, "c", 0)))
        table.overwrite(rows((4, "d", 0)), where=where)
    assert table.scan().to_arrow()["id"].to_pylist() == [3]


class Rival(Phases):
    """Upserts a key of its own whenever the other is about to do its buckets again."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table, self._keys = table, itertools.count(100)

    def phase(self, name: str, **facts: object) -> None:
        super().phase(name, **facts)
        if name == "redo":
            self._table.upsert(rows((next(self._keys), "a", 1)))


def one_writer(table: Table, meet: Callable[[], object]) -> None:
    with table.writer("upsert") as writer:
        writer.write(rows((1, "a", 1), (2, "b", 1), (3, "c", 1)))
        meet()


def one_transaction(table: Table, meet: Callable[[], object]) -> None:
    with table.transaction() as tx:
        tx.upsert(rows((1, "a", 1)))
        tx.upsert(rows((1, "a", 2), (3, "c", 2)))
        tx.delete(where="id = 2")
        meet()


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("work", [one_writer, one_transaction])
def test_a_refused_commit_leaves_no_file_of_any_round(
    table_type: str, work: Callable[[Table, Callable[[], object]], None]
) -> None:
    """INV-06: it deletes by name what it staged, so it must know every name."""
    table = make(work.__name__, table_type, {"commit.retries": "2"})
    table.upsert(rows((1, "a", 0), (2, "b", 0)))
    ours, rival = again(table), Rival(table)
    ours._opened.handle = replace(ours._handle, ports=replace(ours._handle.ports, observer=rival))
    with pytest.raises(CommitRetriesExhaustedError):
        work(ours, lambda: table.upsert(rows((4, "a", 1))))
    assert rival.heard.count("redo") == 2
    report = table.check.verify()
    assert (report.problems, report.notes) == ((), ())
