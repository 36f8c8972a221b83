"""An upsert never sets a column that its rows do not have to null without being told to."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait import (
    BadRecordError,
    Insert,
    OptionError,
    RetryableConflictError,
    SchemaMismatchError,
    Table,
)
from tests.support import build

DDL = "id bigint, p string, a double, b double, rev int"
TYPES = pytest.mark.parametrize("kind", ["cow", "mor"])


def make(kind: str, *, ordering: str | None = None) -> Table:
    return build.make(
        DDL,
        buckets=1,
        table_type=kind,
        ordering=ordering,
        upsert=rows(id=[1, 2], p=["x", "y"], a=[1.0, 2.0], b=[1.0, 2.0], rev=[5, 5]),
    )


def rows(**columns: list[object]) -> pa.Table:
    return pa.table(columns)


def shown(table: Table, *names: str) -> list[tuple[object, ...]]:
    found = table.scan(columns=["id", *names]).to_arrow().sort_by("id").to_pylist()
    return [tuple(row.values()) for row in found]


@TYPES
def test_upsert_that_lacks_columns_is_refused_and_names_them(kind: str) -> None:
    table = make(kind)
    with pytest.raises(SchemaMismatchError, match=r"columns 'a', 'b'.*would set them to null") as e:
        table.upsert(rows(id=[1], p=["x"], rev=[6]))
    assert "missing_columns='keep'" in e.value.hint
    assert e.value.facts["missing"] == ["a", "b"]
    with pytest.raises(SchemaMismatchError, match="lack"), table.transaction() as tx:
        tx.upsert(rows(id=[1], a=[7.0]))
    assert table.version == 1
    assert shown(table, "a", "b") == [(1, 1.0, 1.0), (2, 2.0, 2.0)]


def test_upsert_that_lacks_a_field_of_a_struct_is_refused_and_names_it() -> None:
    table = Table.create(
        "memory://lacks-field", "id bigint, s struct<x: int, y: int>", record_key=["id"]
    )
    table.upsert(rows(id=[1], s=[{"x": 1, "y": 1}]))
    with pytest.raises(SchemaMismatchError, match=r"'s\.y'"):
        table.upsert(rows(id=[1], s=[{"x": 2}]))
    with pytest.raises(SchemaMismatchError, match=r"'s\.y'"):
        table.upsert(rows(id=[1], s=[{"x": 2}]), missing_columns="keep")
    assert table.scan().to_arrow()["s"].to_pylist() == [{"x": 1, "y": 1}]


@TYPES
def test_insert_without_columns_leaves_them_null_since_no_row_has_a_value_to_lose(
    kind: str,
) -> None:
    table = make(kind)
    table.insert(rows(id=[3], a=[3.0]))
    assert shown(table, "a", "b") == [(1, 1.0, 1.0), (2, 2.0, 2.0), (3, 3.0, None)]


@TYPES
def test_partial_upsert_keeps_the_values_of_columns_that_its_rows_lack(kind: str) -> None:
    table = make(kind)
    stats = table.upsert(rows(id=[2, 3], a=[9.0, 3.0]), missing_columns="keep").stats
    assert shown(table, "p", "a", "b", "rev") == [
        (1, "x", 1.0, 1.0, 5),
        (2, "y", 9.0, 2.0, 5),
        (3, None, 3.0, None, None),
    ]
    assert (stats.rows_inserted, stats.rows_updated) == (1, 1)
    assert table.inspect.history(1)[0].operation == "upsert"


@TYPES
def test_partial_upsert_with_every_column_is_an_upsert(kind: str) -> None:
    table = make(kind)
    whole = rows(id=[2], p=["z"], a=[9.0], b=[None], rev=[1])
    table.upsert(whole.cast(table.schema.remove_metadata()), missing_columns="keep")
    assert shown(table, "p", "a", "b", "rev")[1] == (2, "z", 9.0, None, 1)


@TYPES
def test_partial_upsert_obeys_the_ordering_column_and_is_refused_without_it(kind: str) -> None:
    table = make(kind, ordering="rev")
    with pytest.raises(SchemaMismatchError, match="'rev'"):
        table.upsert(rows(id=[1], a=[8.0]), missing_columns="keep")
    table.upsert(rows(id=[1, 2], a=[8.0, 9.0], rev=[4, 6]), missing_columns="keep")
    assert shown(table, "a", "b", "rev") == [(1, 1.0, 1.0, 5), (2, 9.0, 2.0, 6)]
    table.upsert(rows(id=[2], a=[10.0], rev=[6]), missing_columns="keep")
    assert shown(table, "a", "b", "rev")[1] == (2, 10.0, 2.0, 6)
    no_rev = pa.array([None], pa.int32())
    table.upsert(pa.table({"id": [2], "a": [11.0], "rev": no_rev}), missing_columns="keep")
    assert shown(table, "a")[1] == (2, 10.0), "null is less than every value"


@TYPES
@pytest.mark.parametrize("ordering", [None, "rev"])
def test_of_rows_of_one_key_the_same_wins_in_a_partial_upsert_as_in_an_upsert(
    kind: str, ordering: str | None
) -> None:
    batches = [
        rows(id=[1, 1], a=[6.0, 7.0], rev=[9, 8]),
        rows(id=[1, 1], a=[8.0, 9.0], rev=[7, 6]),
    ]
    table = make(kind, ordering=ordering)
    with table.writer("upsert", missing_columns="keep") as writer:
        for batch in batches:
            writer.write(batch)
    wins = (6.0, 1.0, 9) if ordering else (9.0, 1.0, 6)
    assert shown(table, "a", "b", "rev")[0] == (1, *wins)


def test_rows_of_one_key_in_spilled_runs_of_a_partial_upsert_are_one_row() -> None:
    table = make("cow")
    table.alter.set({"write.buffer.size": "256KiB", "write.bucket.size": "64KiB"})
    count = 12_000
    with table.writer("upsert", missing_columns="keep") as writer:
        for turn in range(4):
            writer.write(pa.table({"id": range(count), "a": [float(turn)] * count}))
    found = table.scan(columns=["id", "a"]).to_arrow()
    assert found.num_rows == count
    assert found["a"].unique().to_pylist() == [3.0]


@TYPES
def test_partial_upserts_of_other_columns_of_one_row_both_stand(kind: str) -> None:
    table = make(kind)
    with table.writer("upsert", missing_columns="keep", on_conflict="retry") as writer:
        writer.write(rows(id=[1], a=[8.0]))
        table.upsert(rows(id=[1], b=[9.0]), missing_columns="keep")
    assert shown(table, "a", "b")[0] == (1, 8.0, 9.0)


@TYPES
def test_partial_upsert_of_one_row_from_one_version_is_a_conflict(kind: str) -> None:
    table = make(kind)
    writer = table.writer("upsert", missing_columns="keep").__enter__()
    writer.write(rows(id=[1], a=[8.0]))
    table.upsert(rows(id=[1], a=[9.0]), missing_columns="keep")
    with pytest.raises(RetryableConflictError):
        writer.__exit__(None, None, None)


@TYPES
def test_partial_upsert_in_a_transaction_or_of_a_stream_builds_on_what_was_before_it(
    kind: str,
) -> None:
    table = make(kind)
    with table.transaction() as tx:
        tx.update({"b": "100"}, where="id = 1")
        tx.upsert(rows(id=[1], a=[8.0]), missing_columns="keep")
    assert shown(table, "a", "b")[0] == (1, 8.0, 100.0)
    stream = table.stream("loader")
    with stream.writer("upsert", after=None, end="1", missing_columns="keep") as epoch:
        epoch.write(rows(id=[1], a=[9.0]))
    assert shown(table, "a", "b")[0] == (1, 9.0, 100.0)


def test_rows_of_one_partial_upsert_have_the_same_columns() -> None:
    table = make("cow")
    writer = table.writer("upsert", missing_columns="keep")
    with writer:
        writer.write(rows(id=[1], a=[8.0]))
        with pytest.raises(SchemaMismatchError, match="'a' is in some"):
            writer.write(rows(id=[2], b=[8.0]))
    assert shown(table, "a", "b") == [(1, 8.0, 1.0), (2, 2.0, 2.0)]


def test_partial_upsert_checks_rows_as_an_upsert_does() -> None:
    table = make("cow")
    with pytest.raises(SchemaMismatchError, match="no column 'aa'"):
        table.upsert(rows(id=[1], aa=[8.0]), missing_columns="keep")
    with pytest.raises(SchemaMismatchError, match="'id'"):
        table.upsert(rows(a=[8.0]), missing_columns="keep")
    with pytest.raises(BadRecordError, match="cannot be kept"):
        table.upsert(rows(id=[1], rev=[1 << 40]), missing_columns="keep")
    with pytest.raises(SchemaMismatchError, match="is double"):
        table.upsert(rows(id=[1], a=["x"]), missing_columns="keep")


def test_partial_rows_that_could_not_be_inserted_are_refused() -> None:
    table = Table.create("memory://not-null", "id bigint, a int not null, b int", record_key=["id"])
    with pytest.raises(SchemaMismatchError, match="'a'"):
        table.upsert(rows(id=[1], b=[1]), missing_columns="keep")


@pytest.mark.parametrize("operation", ["append", "insert", "delete", "overwrite"])
def test_missing_columns_go_with_upserts_alone(operation: str) -> None:
    table = make("cow")
    with pytest.raises(OptionError, match="missing_columns"):
        table.writer(operation, missing_columns="keep")
    with pytest.raises(OptionError, match="missing_columns='null'"):
        table.writer("upsert", missing_columns="null")


def test_new_rows_of_partial_upserts_and_merges_get_defaults() -> None:
    table = Table.create("memory://partial-defaults", "id bigint, v bigint", record_key="id")
    table.alter.columns().add("w", "bigint", default=7).commit()
    few = [pa.table({"id": [number], "v": [1]}) for number in (1, 2, 3)]
    table.upsert(few[0], missing_columns="keep")
    table.merge(few[1], not_matched=Insert())
    table.merge(few[2], not_matched=Insert({"v": "s.v + 1"}))
    found = table.scan().to_arrow().sort_by("id")
    assert found.to_pydict() == {"id": [1, 2, 3], "v": [1, 1, 2], "w": [7, 7, 7]}
