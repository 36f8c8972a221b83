"""Each cell of the matrix of column changes and work in flight (RFC 0027)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack

import pyarrow as pa
import pytest

from plait import RetryableConflictError, Table, Update
from plait.errors import BadRecordError
from plait.model.clauses import Clauses
from plait.services.alter import Alteration
from plait.txn.beside import BESIDE, Change, Outcome, Work
from plait.write.request import merge_request
from plait.write.writer import Writer

_NAMES = itertools.count()
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.int32()),
        pa.field("w", pa.int32(), nullable=False),
        pa.field("o", pa.string()),
    ]
)

ALTERS: dict[Change, Callable[[Alteration], Alteration]] = {
    Change.ADD: lambda change: change.add("n", "int", default=9, after=""),
    Change.DROP: lambda change: change.drop("w"),
    Change.RENAME: lambda change: change.rename("w", "x"),
    Change.RENAME_KEY: lambda change: change.rename("id", "key"),
    Change.MOVE: lambda change: change.move("w", after=""),
    Change.WIDEN: lambda change: change.widen("v", "bigint"),
    Change.RELAX: lambda change: change.allow_null("w"),
    Change.REQUIRE: lambda change: change.require("v"),
    Change.CHECK: lambda change: change.add_check("small", "v IS NOT NULL AND v < 100"),
    Change.NOTE: lambda change: change.default("v", 3).comment("w", "a word"),
}


def rows(*ids: int, v: int | None = 0) -> pa.Table:
    data = {"id": ids, "v": [v] * len(ids), "w": [1] * len(ids), "o": ["o"] * len(ids)}
    return pa.table(data, schema=SCHEMA)


def make(kind: str) -> Table:
    uri = f"memory://beside-{next(_NAMES)}"
    table = Table.create(uri, SCHEMA, record_key="id", buckets=2, table_type=kind)
    table.append(rows(1, 2, 3))
    return table


def again(table: Table) -> Table:
    return Table.open(str(table.describe()["uri"]))


def begun(table: Table, work: Work, stack: ExitStack, *, v: int | None) -> None:
    """Begin some work, which puts a row with ``v`` under the key 4 or 1, or removes key 1."""
    client, fresh, number = again(table), rows(4, v=v), "NULL" if v is None else str(v)
    writers: dict[Work, Callable[[], Writer]] = {
        Work.APPEND: lambda: client.writer("append"),
        Work.INSERT: lambda: client.writer("insert"),
        Work.UPSERT: lambda: client.writer("upsert"),
        Work.PARTIAL: lambda: client.writer("upsert", missing_columns="keep"),
        Work.EVOLVE: lambda: client.writer("upsert", evolve="add"),
        Work.OVERWRITE: lambda: client.writer("overwrite", on_conflict="retry"),
        Work.OVERWRITE_WHERE: lambda: client.writer(
            "overwrite", where="id > 3", on_conflict="retry"
        ),
        Work.DELETE: lambda: client.writer("delete"),
        Work.STREAM: lambda: client.stream("app").writer("upsert", after=None, end="1"),
        Work.COMPUTED: lambda: client.writer("upsert", read_from=client.scan()),
    }
    given = {
        Work.PARTIAL: rows(1, v=v).select(["id", "v", "w"]),
        Work.EVOLVE: fresh.append_column("own", pa.array(["mine"])),
        Work.DELETE: rows(1).select(["id"]),
    }
    if work in writers:
        stack.enter_context(writers[work]()).write(given.get(work, fresh))
        return
    if work is Work.MERGE:
        clauses = Clauses.of(Update({"v": f"coalesce(s.v, {number})"}), (), ())
        merging = merge_request(clauses, None, table.handle.cache.known().table.spec)
        stack.enter_context(Writer(client.handle, merging)).write(rows(1, v=v))
        return
    block = stack.enter_context(client.transaction(on_conflict="retry"))
    if work is Work.BLOCK:
        block.upsert(fresh)
    elif work is Work.UPDATE:
        block.update({"v": f"CAST({number} AS INT)"}, where="id = 1")
    else:
        block.delete(where="id = 1")


def change_it(table: Table, change: Change) -> None:
    if change is Change.BROUGHT:
        more = rows(9).append_column("b", pa.array(["theirs"]))
        again(table).append(more, evolve="add")
    else:
        assert ALTERS[change](again(table).alter()).commit()


def keys(table: Table) -> dict[int, object]:
    """Return ``v`` by key, whatever the key is called; 9 came with the change."""
    found = again(table).scan().to_arrow()
    name = "key" if "key" in found.column_names else "id"
    pairs = zip(found[name].to_pylist(), found["v"].to_pylist(), strict=True)
    return {number: v for number, v in pairs if number != 9}


BEFORE = {1: 0, 2: 0, 3: 0}
AFTER: dict[Work, dict[int, object]] = {
    **{work: {**BEFORE, 4: 7} for work in Work},
    **{work: {**BEFORE, 1: 7} for work in (Work.PARTIAL, Work.UPDATE, Work.MERGE)},
    **{work: {2: 0, 3: 0} for work in (Work.DELETE, Work.DELETE_WHERE)},
    Work.OVERWRITE: {4: 7},
}
OTHERS = (Work.ALTER, Work.COMPACT, Work.READ)
WRITES = [cell for cell in BESIDE if cell[1] not in OTHERS]


def name_of(value: object) -> str:
    return value.name.lower() if isinstance(value, (Change, Work)) else str(value)


@pytest.mark.parametrize(("change", "work"), WRITES, ids=name_of)
def test_a_write_comes_to_what_the_matrix_says(change: Change, work: Work) -> None:
    """INV-05, INV-07: everything or nothing, and what is there is under the new columns."""
    kind = ("cow", "mor")[(list(Work).index(work) + list(Change).index(change)) % 2]
    table, stack, outcome = make(kind), ExitStack(), BESIDE[change, work]
    begun(table, work, stack, v=7)
    change_it(table, change)
    if outcome is Outcome.AGAIN:
        with pytest.raises(RetryableConflictError):
            stack.close()
        assert keys(table) == BEFORE
    else:
        stack.close()
        assert keys(table) == AFTER[work]
    if outcome is Outcome.JUDGED:
        table, stack = make(kind), ExitStack()
        begun(table, work, stack, v=None)
        change_it(table, change)
        with pytest.raises(BadRecordError):
            stack.close()
        assert keys(table) == BEFORE
    if change in (Change.ADD, Change.BROUGHT, Change.RENAME_KEY):  # the others differ in no file
        assert not table.verify(data=True).problems


@pytest.mark.parametrize("change", Change, ids=name_of)
def test_another_change_counts_too(change: Change) -> None:
    """Both are taken from the newest columns, and no id is given out twice."""
    table, other = make("cow"), ExitStack()
    client = again(table)
    client.handle.cache.refresh()
    change_it(table, change)
    assert BESIDE[change, Work.ALTER] is Outcome.BOTH
    assert client.alter().add("late", "int", default=1).commit()
    schema = again(table).handle.cache.refresh().table.spec.schema
    assert schema.names[-1] == "late"
    assert len({schema.field_id(name) for name in schema.names}) == len(schema.names)
    other.close()


@pytest.mark.parametrize("change", Change, ids=name_of)
def test_a_compaction_and_a_reader_go_on_under_the_columns_that_they_began_with(
    change: Change,
) -> None:
    """INV-04, INV-15."""
    table = make("mor")
    table.upsert(rows(1, 2, v=5))
    scan = again(table).scan()
    plan = again(table).plan_compact(full=True)
    change_it(table, change)
    again(table).compact(plan)
    found = scan.to_arrow()
    assert found.schema.names == SCHEMA.names
    assert sorted(found["v"].to_pylist()) == [0, 5, 5]
    assert keys(table) == {1: 5, 2: 5, 3: 0}
    assert BESIDE[change, Work.READ] is BESIDE[change, Work.COMPACT] is Outcome.UNTOUCHED
    assert not table.verify(data=True).problems
