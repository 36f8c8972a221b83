"""What generated columns promise (RFC 0031)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pyarrow as pa
import pytest

from plait import (
    BadRecordError,
    ConflictError,
    ConstraintError,
    Insert,
    OptionError,
    PredicateError,
    SchemaError,
    SchemaMismatchError,
    Table,
    Update,
)
from plait.definition.features import GENERATED
from plait.expr.alter import parse_steps
from plait.kafka.records.row_check import RowCheck
from plait.model.steps import AddColumn, GenerateColumn
from tests.support.build import again
from tests.support.forge import decision_at
from tests.support.generated import DDL, content, make, require_generated, rows, wrong
from tests.support.memory import forget


def _streamed(table: Table, more: pa.Table) -> None:
    with table.stream("app").writer("upsert", after=None, end="1") as writer:
        writer.write(more)


def _in_a_block(table: Table, more: pa.Table) -> None:
    with table.transaction() as block:
        block.upsert(more)


WRITES: dict[str, Callable[[Table, pa.Table], object]] = {
    "append": lambda table, more: table.append(more),
    "insert": lambda table, more: table.insert(more),
    "upsert": lambda table, more: table.upsert(more),
    "upsert of some": lambda table, more: table.upsert(
        more.drop_columns(["amount"]), missing_columns="keep"
    ),
    "overwrite": lambda table, more: table.overwrite(more),
    "overwrite where": lambda table, more: table.overwrite(more, where="id > 1"),
    "merge": lambda table, more: table.merge(more, matched=[Update()], not_matched=[Insert()]),
    "stream": _streamed,
    "block": _in_a_block,
}


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("name", WRITES)
def test_every_operation_computes_what_rows_do_not_bring(uri: str, name: str, kind: str) -> None:
    table = make(uri, table_type=kind)
    table.append(rows([1, 2]))
    WRITES[name](table, rows([3, 4], price=5))
    found = content(table)
    assert found[4]["day"] == dt.date(2026, 2, 1)
    assert found[4]["total"] == (None if name == "upsert of some" else 20)
    require_generated(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("name", [name for name in WRITES if name != "upsert of some"])
def test_no_operation_makes_a_row_with_another_value(uri: str, name: str, kind: str) -> None:
    """INV-03: nothing of the write is visible, and the error says what is wrong."""
    table = make(uri, table_type=kind)
    table.append(rows([1, 2]))
    before = content(table)
    with pytest.raises(ConstraintError) as caught:
        WRITES[name](table, wrong([3, 4, 5]))
    facts = caught.value.facts
    assert (facts["constraint"], facts["column"]) == ("total GENERATED", "total")
    assert (facts["predicate"], facts["rows"]) == ("total = price * amount", 1)
    assert facts["sample"]["total"] == "77"
    assert content(table) == before
    require_generated(table)


def test_values_that_are_the_same_may_come_and_null_counts_as_none(uri: str) -> None:
    table = make(uri)
    given = rows([1, 2, 3]).append_column("total", pa.array([2, None, 6], pa.int64()))
    table.append(given.append_column("day", pa.nulls(3, pa.date32())))
    require_generated(table)
    assert content(table)[2]["total"] == 4


def test_every_wrong_row_in_memory_is_counted(uri: str) -> None:
    table = make(uri)
    with pytest.raises(ConstraintError) as caught:
        table.append(pa.concat_tables([wrong([1, 2]), wrong([3]), wrong([4, 5])]))
    assert caught.value.facts["rows"] == 3


def test_a_given_zero_with_other_bytes_is_stored_as_it_is_computed(uri: str) -> None:
    table = Table.create(uri, "x double, y double", generated={"y": "x * 0"})
    table.append(pa.table({"x": [-1.0], "y": [0.0]}))
    assert str(table.scan().to_arrow()["y"][0].as_py()) == "-0.0"


# --- updates and merges --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_an_update_of_a_source_computes_the_column_again(uri: str, kind: str) -> None:
    table = make(uri, table_type=kind)
    table.append(rows(range(6)))
    table.update({"price": "price + id", "at": "TIMESTAMP '2027-05-05 23:59:59Z'"}, where="id > 3")
    found = content(table)
    assert (found[5]["total"], found[5]["day"]) == (35, dt.date(2027, 5, 5))
    require_generated(table)
    table.update({"price": "3", "total": "amount * 3"}, where="id = 1")
    with pytest.raises(ConstraintError, match="total GENERATED"):
        table.update({"total": "total + 1"}, where="id = 1")
    require_generated(table)


def test_an_order_by_a_generated_column_ends_with_an_update_of_its_source(uri: str) -> None:
    table = make(uri, properties={"cluster.by": "total"})
    table.append(rows([3, 1, 2]))
    table.append(rows([6, 5, 4]))
    table.maintenance.cluster()
    ordered = set(table.inspect.files()["order"].to_pylist()) - {-1, 0}
    assert ordered
    table.update({"price": "-price"})
    assert not ordered & set(table.inspect.files()["order"].to_pylist())
    require_generated(table)


def test_a_transform_can_be_the_value_of_an_update(uri: str) -> None:
    table = Table.create(uri, "id bigint, at timestamp, day date, shard int", record_key="id")
    table.append(rows([1, 2]).select(["id", "at"]))
    table.update({"day": "day(at)", "shard": "bucket(4, id)"})
    table.alter.columns().generate("day", "day(at)").generate("shard", "bucket(4, id)").commit()
    source = rows([1], hours=50).select(["id", "at"])
    table.merge(source, matched=[Update({"at": "s.at", "day": "day(s.at)"})])
    assert content(table)[1]["day"] == dt.date(2026, 2, 1)
    for text in ("day(nothing)", "day(shard)", "bucket(x, id)", "day(at, id)"):
        with pytest.raises(PredicateError):
            table.update({"day": text})


# --- what is refused when it is made -------------------------------------------------------------


@pytest.mark.parametrize(
    ("generated", "how", "error"),
    [
        ({"nothing": "day(at)"}, {}, SchemaMismatchError),
        ({"day": "day(nothing)"}, {}, PredicateError),
        ({"day": "day(price)"}, {}, SchemaError),
        ({"day": "bucket(0, price)"}, {}, SchemaError),
        ({"day": "hour(at)"}, {}, SchemaError),
        ({"total": "bucket(4, price)"}, {}, SchemaError),
        ({"total": "price +"}, {}, PredicateError),
        ({"total": "random(price)"}, {}, PredicateError),
        ({"total": "price / amount"}, {}, SchemaError),
        ({"total": "length(price)"}, {}, PredicateError),
        ({"total": "length(lower(CAST(price AS string)))"}, {}, SchemaError),
        ({"total": "7"}, {}, SchemaError),
        ({"total": "total + 1"}, {}, SchemaError),
        (
            {"total": "price * 2", "day": "CASE WHEN total > 0 THEN DATE '2026-01-01' END"},
            {},
            SchemaError,
        ),
        ({"price": "amount * 2", "total": "price * 2"}, {}, SchemaError),
        ({"id": "CAST(price AS bigint)"}, {}, SchemaError),
        ({"total": "t.price * 2"}, {}, PredicateError),
        ({"total": "price * 2", "Total": "price * 3"}, {}, SchemaError),
        ({"total": 7}, {}, OptionError),
        ({"total": None}, {}, OptionError),
        (["total"], {}, OptionError),
        ({"total": "price * 2"}, {"partition_by": "total"}, OptionError),
        ({"day": "day(at)"}, {"partition_by": "month(day)"}, OptionError),
    ],
)
def test_what_cannot_be_generated_is_refused_before_a_table_is_made(
    uri: str, generated: object, how: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        make(uri, generated=generated, **how)
    assert make(uri).version == 0


def test_a_row_whose_value_cannot_be_computed_is_named(uri: str) -> None:
    table = Table.create(uri, "a int, b int, c int", generated={"c": "a + b"})
    most = (1 << 31) - 1
    rows = pa.table({"a": pa.array([1, 2, most, most], pa.int32()), "b": [0, 3, 5, 7]})
    with pytest.raises(BadRecordError, match=f"overflow; the first is a={most}, b=5") as caught:
        table.append(rows)
    assert caught.value.facts["column"] == "c"
    assert caught.value.facts["sample"] == {"a": str(most), "b": "5", "c": "null"}
    assert table.version == 0


def test_a_generated_column_may_be_required(uri: str) -> None:
    ddl = "id bigint, x double, y double not null"
    table = Table.create(uri, ddl, record_key="id", ordering="y", generated={"y": "x * 2"})
    table.upsert(pa.table({"id": [1], "x": [1.0]}))
    for bad in (None, float("nan")):
        with pytest.raises(BadRecordError) as caught:
            table.upsert(pa.table({"id": [1], "x": pa.array([bad], pa.float64())}))
        assert caught.value.facts["column"] == "y"
    table.upsert(pa.table({"id": [1, 2], "x": [0.5, 0.5]}))
    assert content(table)[1] == {"id": 1, "x": 1.0, "y": 2.0}


@pytest.mark.parametrize("given", [None, 2, 100])
def test_some_columns_of_rows_do_not_say_which_row_wins(uri: str, given: int | None) -> None:
    """A value that did not come would lose to every other, without a word."""
    ddl = "id bigint, x int, note string, y int"
    table = Table.create(uri, ddl, record_key="id", ordering="y", generated={"y": "x * 2"})
    table.upsert(pa.table({"id": [1], "x": pa.array([1], pa.int32()), "note": ["a"]}))
    some = pa.table({"id": [1], "x": pa.array([5], pa.int32())})
    for rows_in in (some, some.append_column("y", pa.array([given], pa.int32()))):
        with pytest.raises(OptionError, match="generated"):
            table.upsert(rows_in, missing_columns="keep")
    assert content(table)[1]["x"] == 1


# --- repush, compare, features, text -------------------------------------------------------------


def test_a_repush_may_divide_by_the_column(uri: str) -> None:
    table = make(uri)
    table.append(rows(range(6)))
    with pytest.raises(OptionError, match="generated as SQL"):
        table.layout.repush(partition_by="total")
    table.layout.repush(partition_by="day", buckets=1)
    assert table.inspect.describe()["partition_by"] == ["day(at)"]
    table.upsert(rows([1, 7]))
    assert table.scan(where="day = DATE '2026-01-31'").plan.pruned_by_partition > 0
    require_generated(table)


def test_a_repush_from_another_table_computes_the_column(uri: str) -> None:
    table = make(uri)
    table.append(rows([1]))
    other = Table.create(
        f"{uri}-source", "id bigint, at timestamp, price int, amount int", record_key="id"
    )
    other.append(rows([1, 2, 3], price=4))
    table.layout.repush(source=f"{uri}-source")
    assert content(table)[3]["total"] == 12
    require_generated(table)
    forget(f"{uri}-source")


def by_day(uri: str, **how: object) -> Table:
    ddl, rule = "id bigint, at timestamp, day date", {"day": "day(at)"}
    return Table.create(uri, ddl, partition_by="day", generated=rule, **how)  # type: ignore[arg-type]  # of two tests


def on(day: int, *ids: int) -> pa.Table:
    at = [dt.datetime(2026, 1, day, 5, tzinfo=dt.UTC)] * len(ids)
    return pa.table({"id": ids, "at": pa.array(at)})


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_writes_of_other_days_meet_no_predicate_on_the_day(uri: str, isolation: str) -> None:
    """INV-07: the partition alone decides it, as for the transform behind the column."""
    table = by_day(uri, record_key="id", isolation=isolation)
    table.append(pa.concat_tables([on(1, 1, 2), on(2, 3)]))
    with table.writer("overwrite", where="day = DATE '2026-01-01'") as writer:
        writer.write(on(1, 7))
        again(table).upsert(on(2, 3, 4))
    with table.transaction() as block:
        block.scan(where="day = DATE '2026-01-01'").to_arrow()
        block.append(on(3, 8))
        again(table).upsert(on(2, 5))
    assert sorted(content(table)) == [3, 4, 5, 7, 8]

    def meet() -> None:
        with table.writer("overwrite", where="day < '2026-01-02'") as writer:
            writer.write(on(1, 9))
            again(table).upsert(on(1, 6))

    with pytest.raises(ConflictError):
        meet()
    assert sorted(content(table)) == [3, 4, 5, 6, 7, 8]
    assert table.check.verify(data=True).clean


def test_without_a_key_rows_that_go_on_another_day_were_not_read(uri: str) -> None:
    """INV-07: nobody can tell which rows went, so only the day tells that none of them was read."""
    table = by_day(uri, isolation="serializable")
    table.append(pa.concat_tables([on(1, 1), on(2, 2)]))
    with table.transaction() as block:
        block.scan(where="day = DATE '2026-01-01'").to_arrow()
        block.append(on(3, 3))
        again(table).delete(where="id = 2")
    assert sorted(content(table)) == [1, 3]


def test_older_writers_refuse_the_table_and_older_readers_read_it(uri: str) -> None:
    table = make(uri)
    table.append(rows([1]))
    decision = decision_at(table._handle.store, 1)
    assert GENERATED in decision.writer_features
    assert GENERATED not in decision.features
    plain = Table.create(f"{uri}-plain", DDL)
    assert GENERATED not in decision_at(plain._handle.store, 0).writer_features
    forget(f"{uri}-plain")


def test_sinks_get_the_computed_values_and_none_gets_a_wrong_one(uri: str) -> None:
    """RFC 0022: a sink has what the table has, before the table has it."""
    sink = Table.create(f"{uri}-sink", DDL, record_key="id")
    table = make(uri, replicas=[f"near={uri}-sink"])
    table.upsert(rows([1, 2]))
    with pytest.raises(ConstraintError):
        table.upsert(wrong([3, 4]))
    assert content(sink) == content(table)
    assert content(sink).keys() == {1, 2}
    require_generated(sink)
    forget(f"{uri}-sink")


def test_the_kafka_sink_asks_no_record_for_a_generated_value(uri: str) -> None:
    """Records without it would be dead letters."""
    ddl = "id bigint not null, v bigint not null, y bigint not null"
    table = Table.create(uri, ddl, record_key="id", generated={"y": "v * 2"})
    check = RowCheck.of(table._handle.cache.known().table.spec)
    kinds = pa.schema([(field.name, field.type) for field in table.schema])
    records = pa.Table.from_pylist([{"id": 1, "v": 2, "y": None}, {"id": 2, "v": None}], kinds)
    assert {each.at for each in check.refused(records)} == {1}
    table.append(records.slice(0, 1))
    assert content(table)[1]["y"] == 4


def test_rows_may_bring_further_columns_beside(uri: str) -> None:
    table = make(uri)
    table.upsert(rows([1]).append_column("note", pa.array(["x"])), evolve="add")
    assert content(table)[1]["note"] == "x"
    require_generated(table)


def test_sql_says_what_is_generated_and_makes_it(uri: str) -> None:
    added = "ADD COLUMN `the day` date GENERATED ALWAYS AS (day(at))"
    column, rule = parse_steps(added)
    assert isinstance(column, AddColumn)
    assert rule == GenerateColumn("`the day`", "day(at)")
    assert parse_steps("alter column d set expression as ((a + b) * 2)") == (
        GenerateColumn("d", "(a + b) * 2"),
    )
    assert parse_steps("ALTER COLUMN d DROP EXPRESSION") == (GenerateColumn("d", None),)
    table = make(uri, generated={})
    table.alter.columns().sql(added).commit()
    table.append(rows([1]))
    assert content(table)[1]["the day"] == dt.date(2026, 1, 31)
