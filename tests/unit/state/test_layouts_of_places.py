"""Partition values are read by the layout that wrote them, however large the table is (INV-04)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from plait import CorruptMetadataError, Table
from plait.definition.table_def import TableDef, laid_out_with
from plait.model.changes import Changes
from plait.model.decision import Decision
from plait.state import part_file, selected
from tests.support.forge import forge
from tests.support.memory import forget

SCHEMA = "id bigint, p string, n int, v bigint"
LAYOUTS: dict[str, tuple[str, ...]] = {
    "unpartitioned": (),
    "text": ("p",),
    "number": ("n",),
    "hash": ("bucket(2, id)",),
    "cut": ("truncate(1, p)",),
    "two": ("p", "n"),
    "swapped": ("n", "p"),
}
WHERES = ("id = 3", "p = 'ya'", "n = 1", "n > 0 AND p = '2'", "id < 2 OR p = '1'", "p <> 'ya'")
QUESTIONS: dict[str, Callable[[Table], object]] = {
    **{where: lambda t, w=where: ids(t, w) for where in WHERES},
    "get": lambda t: t.get([3]).num_rows,
    "upsert": lambda t: (t.upsert(rows(3)), ids(t, "v >= 0"))[1],
    "delete where": lambda t: (t.delete(where="n = 1"), ids(t, "v >= 0"))[1],
    "update": lambda t: (t.update({"v": "v + 1"}, where="p = '2'"), ids(t, "v > 0"))[1],
    "compact": lambda t: (t.maintenance.compact(full=True), ids(t, "p = '2'"))[1],
}


def rows(*numbers: int) -> pa.Table:
    """Return rows whose texts may be numbers: they are values of a partition in either type."""
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "p": [("1", "2", "ya")[number % 3] for number in numbers],
            "n": pa.array([number % 2 + 1 for number in numbers], pa.int32()),
            "v": pa.array([0] * len(numbers), pa.int64()),
        }
    )


def ids(table: Table, where: str, version: int | None = None) -> list[int]:
    found: list[int] = table.scan(where=where, version=version).to_arrow()["id"].to_pylist()
    return sorted(found)


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load only what is asked for, however small the table is."""
    monkeypatch.setattr(selected, "WHOLE_ROWS_MAX", 0)


def laid_out(name: str, first: str, *then: str, table_type: str = "cow") -> Table:
    """Return a table that had these layouts, with rows of each and a checkpoint after each step."""
    uri = f"memory://places-{name}"
    forget(uri)
    table = Table.create(
        uri,
        SCHEMA,
        record_key="id",
        partition_by=LAYOUTS[first],
        table_type=table_type,
        buckets=1,
        properties={"checkpoint.interval": 1},
    )
    table.upsert(rows(*range(6)))
    for number, layout in enumerate(then):
        table.layout.repush(partition_by=LAYOUTS[layout])
        table.upsert(rows(10 + number))
    table.upsert(rows(20))
    return Table.open(uri)


@pytest.mark.long(4)
@pytest.mark.slow
@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("small", [False, True], ids=["pieces", "whole files"])
def test_a_repushed_table_answers_every_predicate_as_its_rows_do_at_every_version(
    first: str, monkeypatch: pytest.MonkeyPatch, *, small: bool
) -> None:
    """Two repushes, so that each layout is followed by two others."""
    if not small:
        monkeypatch.setattr(part_file, "WHOLE_BYTES_MAX", 0)
        monkeypatch.setattr(part_file, "GROUP_ROWS", 1)
    names = list(LAYOUTS)
    at = names.index(first)
    table = laid_out("pairs", first, names[at - 1], names[at - 3])
    every_version_answers(table)


def every_version_answers(table: Table) -> None:
    for version in range(1, table.version + 1):
        whole = table.scan(version=version).to_arrow()
        for where in WHERES:
            assert ids(table, where, version) == expected(whole, where), (version, where)


def expected(whole: pa.Table, where: str) -> list[int]:
    """Answer a predicate by the rows alone."""
    judged: dict[str, Callable[[dict[str, object]], bool]] = {
        "id = 3": lambda r: r["id"] == 3,
        "p = 'ya'": lambda r: r["p"] == "ya",
        "n = 1": lambda r: r["n"] == 1,
        "n > 0 AND p = '2'": lambda r: r["p"] == "2",
        "id < 2 OR p = '1'": lambda r: r["id"] in (0, 1) or r["p"] == "1",
        "p <> 'ya'": lambda r: r["p"] != "ya",
    }
    return sorted(row["id"] for row in whole.to_pylist() if judged[where](row))


@pytest.mark.slow
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_every_operation_finds_the_files_of_the_newest_of_three_layouts(
    table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = laid_out("a", "text", "number", "hash", table_type=table_type)
    found = {name: ask(large) for name, ask in QUESTIONS.items()}
    monkeypatch.setattr(selected, "WHOLE_ROWS_MAX", 1 << 20)
    plain = laid_out("b", "text", "number", "hash", table_type=table_type)
    assert found == {name: ask(plain) for name, ask in QUESTIONS.items()}


@pytest.mark.long(2)
@pytest.mark.slow
@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("undo", [False, True], ids=["restore", "undo and restore"])
def test_a_layout_that_came_back_is_read_by_itself_and_not_by_the_one_between(
    first: str, monkeypatch: pytest.MonkeyPatch, *, undo: bool
) -> None:
    """A value of the one may have no meaning in the other, or too many, or none."""
    monkeypatch.setattr(part_file, "WHOLE_BYTES_MAX", 0)
    monkeypatch.setattr(part_file, "GROUP_ROWS", 1)
    names = list(LAYOUTS)
    table = laid_out("undone", first, names[names.index(first) - 1])
    if undo:
        table.layout.undo()
    table.versions.restore(version=1)
    table.upsert(rows(30))
    every_version_answers(Table.open("memory://places-undone"))


def test_files_of_another_layout_are_not_loaded() -> None:
    """Else each query after a repush would load what is dead, and half of a large table is."""
    table = laid_out("few", "text", "number")
    known = table._handle.cache.refresh()
    ((first, last),) = laid_out_with(known.table, known.version)
    assert (first, last) > (known.table.former[-1].until, known.version)
    plan = table.scan(where="n = 1").plan
    assert plan.files.num_rows < plan.files_total


def test_a_place_that_its_own_layout_cannot_read_is_damage() -> None:
    """INV-11: it is not taken for one of another layout."""
    table = laid_out("damaged", "text", "number")

    def worsen(decision: Decision) -> Decision:
        row = {"path": "data/ya/new.base.parquet", "partition": '["ya"]'}
        rows = [each | row for each in decision.changes.added.to_pylist()]
        added = pa.Table.from_pylist(rows[:1], schema=decision.changes.added.schema)
        return replace(decision, changes=Changes(added=added))

    forge(table._handle.store, worsen, like=table.version)
    opened = Table.open("memory://places-damaged")
    with pytest.raises(CorruptMetadataError):
        opened.scan(where="n = 1").to_arrow()


def test_the_versions_of_a_layout_go_from_swap_to_swap_and_over_other_names() -> None:
    table = laid_out("spans", "text", "number")
    table.alter.columns().rename("v", "w").commit()
    known: TableDef = table._handle.cache.refresh().table
    swap = known.former[0].until + 1
    assert laid_out_with(known, 0) == laid_out_with(known, swap - 1) == ((0, swap - 1),)
    ((first, _),) = spans = laid_out_with(known, table.version)
    assert first == swap
    assert laid_out_with(known, swap) == spans
    table.versions.restore(version=1)
    known = table._handle.cache.refresh().table
    (before, after) = laid_out_with(known, 0)
    assert before == (0, swap - 1)
    assert after[0] == table.version
    assert laid_out_with(known, table.version) == (before, after)
    assert laid_out_with(known, swap) == ((swap, table.version - 1),)
