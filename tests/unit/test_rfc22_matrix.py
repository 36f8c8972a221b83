"""The test plan of Hudi's RFC-22, every cell by its name.

{COW, MOR} x {single writer, overlapping, disjoint} x {eager, lazy} x {clean inline, beside}. The
axis of the metadata index has one value so far: there is no index. It grows when there is one.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import OptionError, RetryableConflictError

TYPES = ("cow", "mor")
WRITERS = ("single", "overlapping", "disjoint")
ROLLBACKS = ("eager", "lazy")
INDEXES = ("index-off",)
CLEANS = ("clean-inline", "clean-beside")
CELLS = list(itertools.product(TYPES, WRITERS, ROLLBACKS, INDEXES, CLEANS))
HOLDS = [cell for cell in CELLS if cell[1] == "single" or cell[2] == "lazy"]
REFUSED = [cell for cell in CELLS if cell not in HOLDS]
ROUNDS = 4
_NAMES = itertools.count()


def name_of(cell: tuple[str, ...]) -> str:
    return "-".join(cell)


def make(cell: tuple[str, ...]) -> Table:
    table_type, writers, failed_writes, _, _ = cell
    return Table.create(
        f"memory://rfc22-{next(_NAMES)}",
        "id bigint, place string, value bigint",
        record_key=["id"],
        partition_by=["place"],
        table_type=table_type,
        policy="file_group",
        failed_writes=failed_writes,
        concurrency="single_writer" if writers == "single" else "multi_writer",
        properties={"clean.retain.time": "0s", "clean.retain.versions": 2},
    )


def rows(place: str, value: int, *ids: int) -> pa.Table:
    count = len(ids)
    return pa.table({"id": ids, "place": [place] * count, "value": [value] * count})


def content(table: Table) -> dict[tuple[str, int], int]:
    found = table.scan().to_arrow().to_pylist()
    return {(row["place"], row["id"]): row["value"] for row in found}


@contextmanager
def cleaning(table: Table, how: str) -> Iterator[None]:
    """Clean beside the block, again and again, or not at all."""
    if how == "clean-inline":
        yield
        return
    done, errors = threading.Event(), []

    def run() -> None:
        mine = Table.open(str(table.describe()["uri"]))
        while not done.is_set():
            try:
                mine.clean()
            except BaseException as error:  # noqa: BLE001 - shown below
                errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not errors


@pytest.mark.parametrize("cell", HOLDS, ids=name_of)
def test_rfc22(cell: tuple[str, ...]) -> None:
    """INV-04 to INV-08 in each cell of the matrix."""
    table = make(cell)
    with cleaning(table, cell[4]):
        expected = {"single": single, "overlapping": overlapping, "disjoint": disjoint}[cell[1]](
            table, inline=cell[4] == "clean-inline"
        )
    assert content(table) == expected
    assert not table.timeline.pending
    assert not table.verify().problems
    table.clean()
    assert content(table) == expected


def single(table: Table, *, inline: bool) -> dict[tuple[str, int], int]:
    """One writer, which fails once: eager rolls back at the next begin, lazy when asked to."""
    for value in range(ROUNDS):
        table.upsert(rows("a", value, 1, 2))
        clean(table, inline=inline)
    failed = Table.open(str(table.describe()["uri"])).writer("upsert").__enter__()
    failed.write(rows("a", 99, 1))
    if table.describe()["contract"]["failed_writes"] == "lazy":  # type: ignore[index]  # plain values
        table.rollback(failed.instant)
    table.upsert(rows("a", ROUNDS, 2, 3))
    return {("a", 1): ROUNDS - 1, ("a", 2): ROUNDS, ("a", 3): ROUNDS}


def overlapping(table: Table, *, inline: bool) -> dict[tuple[str, int], int]:
    """Two writers of one file group at once: the first commits, the other is refused."""
    for value in range(ROUNDS):
        first, second = (table.writer("upsert").__enter__() for _ in range(2))
        first.write(rows("a", value, 1, 2))
        second.write(rows("a", -1, 2, 3))
        first.__exit__(None, None, None)
        with pytest.raises(RetryableConflictError):
            second.__exit__(None, None, None)
        clean(table, inline=inline)
    return {("a", 1): ROUNDS - 1, ("a", 2): ROUNDS - 1}


def disjoint(table: Table, *, inline: bool) -> dict[tuple[str, int], int]:
    """Two writers of different file groups at once: both commit."""
    for value in range(ROUNDS):
        first, second = (table.writer("upsert").__enter__() for _ in range(2))
        first.write(rows("a", value, 1))
        second.write(rows("b", value, 1))
        second.__exit__(None, None, None)
        first.__exit__(None, None, None)
        clean(table, inline=inline)
    return {("a", 1): ROUNDS - 1, ("b", 1): ROUNDS - 1}


def clean(table: Table, *, inline: bool) -> None:
    if inline:
        table.clean()


@pytest.mark.parametrize("cell", REFUSED, ids=name_of)
def test_rfc22_refuses_eager_rollback_with_many_writers(cell: tuple[str, ...]) -> None:
    """It would take the work of the living for that of the dead."""
    with pytest.raises(OptionError, match="eager"):
        make(cell)
