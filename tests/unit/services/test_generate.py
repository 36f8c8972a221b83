"""Columns that become generated, or are generated from others, as columns change (RFC 0031)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import ExitStack

import pyarrow as pa
import pytest

from plait import (
    ConstraintError,
    SchemaError,
)
from plait.definition.features import GENERATED
from tests.support.forge import decision_at
from tests.support.generated import again, content, make, require_generated, rows, wrong


def test_the_expression_follows_new_names(uri: str) -> None:
    table = make(uri, partition_by="day")
    table.append(rows([1, 2]))
    change = (
        table.alter.columns()
        .rename("at", "the moment")
        .rename("price", "each")
        .rename("total", "sum")
    )
    change.commit()
    more = rows([3]).rename_columns(["id", "the moment", "each", "amount"])
    table.append(more)
    found = content(table)
    assert (found[3]["sum"], found[3]["day"]) == (6, dt.date(2026, 2, 1))
    assert table.inspect.describe()["partition_by"] == ["day(`the moment`)"]
    assert content(table, "day = DATE '2026-02-01'").keys() == {3}
    assert table.scan(version=1, where="day = DATE '2026-01-31'").count() == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda change: change.drop("price"), "'total' is generated"),
        (lambda change: change.drop("at"), "generated"),
        (lambda change: change.widen("price", "bigint"), "keeps its type"),
        (lambda change: change.default("total", 3), "default"),
        (lambda change: change.generate("total", "total + 1"), "cannot be generated from"),
        (lambda change: change.generate("price", "amount"), "'total' is generated"),
        (lambda change: change.generate("id", "price"), "record key"),
        (lambda change: change.generate("price", None), "not generated"),
        (lambda change: change.generate("no", "price"), "no column"),
        (lambda change: change.add("n", "int", default=1).generate("n", "price"), "default"),
    ],
)
def test_what_a_column_is_generated_from_stays(
    uri: str, change: Callable[..., object], why: str
) -> None:
    table = make(uri)
    table.append(rows([1, 2]))
    with pytest.raises(SchemaError, match=why):
        change(table.alter.columns()).commit()  # type: ignore[attr-defined]  # of an alteration
    require_generated(again(table))
    assert table.version == 1


def test_a_column_of_the_partitions_cannot_become_generated_but_after_a_repush(uri: str) -> None:
    table = make(uri, generated={}, partition_by="day")
    table.append(rows([1]).append_column("day", pa.array([dt.date(2026, 1, 31)])))
    with pytest.raises(SchemaError, match="partition"):
        table.alter.columns().generate("day", "day(at)").commit()
    table.layout.repush(partition_by="day(at)")
    table.alter.columns().generate("day", "day(at)").commit()
    table.upsert(rows([1, 2]).append_column("total", pa.nulls(2, pa.int64())))
    assert {row["day"] for row in content(table).values()} == {dt.date(2026, 1, 31)}


def test_only_rows_that_have_the_value_let_a_column_become_generated(uri: str) -> None:
    table = make(uri, generated={})
    table.append(rows([1, 2, 3]))
    change = table.alter.columns().generate("total", "price * amount")
    with pytest.raises(ConstraintError) as caught:
        change.commit()
    assert (caught.value.facts["rows"], caught.value.facts["column"]) == (3, "total,price,amount")
    with pytest.raises(ConstraintError):
        change.commit(dry_run=True)
    table.update({"total": "price * amount"}, where="id < 3")
    table.delete(where="id = 3")
    assert change.commit()
    assert change.commit() is None
    with pytest.raises(ConstraintError):
        table.alter.columns().generate("total", "price + amount").commit()
    table.alter.columns().generate("day", "day(at)").generate("day", None).commit()
    table.append(rows([4]))
    assert content(table)[4]["total"] == 8


@pytest.mark.parametrize(
    "change",
    [
        lambda change: (
            change.generate("c", None).generate("e", None).drop("a").add("a", "int")
        ).generate("c", "a - b"),
        lambda change: (
            change.generate("c", None).rename("a", "x").rename("b", "a").rename("x", "b")
        ).generate("c", "a - b"),
        lambda change: (
            change.rename("a", "x").rename("b", "a").rename("x", "b").generate("c", "a - b")
        ),
        lambda change: (
            change.generate("e", None).generate("c", None).widen("a", "bigint")
        ).generate("e", "bucket(1000, a)"),
        lambda change: (
            change.generate("d", None).drop("s.m").add("s.m", "int").generate("d", "s.m")
        ),
    ],
)
def test_the_same_text_over_other_columns_is_another_expression(
    uri: str, change: Callable[..., object]
) -> None:
    """INV-03: rows that are there are looked at again."""
    ddl = "id bigint, a int, b int, s struct<m:int,n:int>, c int, d int, e int"
    rules = {"c": "a - b", "d": "s.m", "e": "bucket(1000, a)"}
    table = make(uri, ddl=ddl, generated=rules)
    numbers = pa.array([5], pa.int32())
    members = pa.array([{"m": 1, "n": 2}], pa.struct([("m", pa.int32()), ("n", pa.int32())]))
    table.append(pa.table({"id": [1], "a": numbers, "b": pa.array([3], pa.int32()), "s": members}))
    with pytest.raises(ConstraintError):
        change(table.alter.columns()).commit()  # type: ignore[attr-defined]  # of an alteration
    assert table.version == 1


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_writer_that_is_at_work_computes_the_column_in_its_commit(uri: str, kind: str) -> None:
    """INV-07: it stages its rows again."""
    table = make(uri, generated={}, table_type=kind)
    work = ExitStack()
    work.enter_context(again(table).writer("upsert")).write(
        rows([1, 2])
        .append_column("day", pa.nulls(2, pa.date32()))
        .append_column("total", pa.nulls(2, pa.int64()))
    )
    bad = ExitStack()
    other = wrong([3]).append_column("day", pa.nulls(1, pa.date32()))
    bad.enter_context(again(table).writer("upsert")).write(other)
    change = table.alter.columns().generate("total", "price * amount").generate("day", "day(at)")
    change.add("half", "int").generate("half", "CAST(price / 2 AS int)").commit()
    work.close()
    with pytest.raises(ConstraintError):
        bad.close()
    assert {row["half"] for row in content(table).values()} == {1}
    require_generated(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda change: change.generate("total", "price + amount"), {1: 3, 2: 4}),
        (lambda change: change.rename("price", "each"), {1: 2, 2: 4}),
        (
            lambda change: (
                change.generate("total", None).drop("price").generate("total", "amount + 5")
            ),
            {1: 6, 2: 7},
        ),
        (lambda change: change.generate("total", None), {1: 2, 2: 4}),
    ],
)
def test_what_a_writer_at_work_computed_is_computed_again(
    uri: str, kind: str, change: Callable[..., object], expected: dict[int, int]
) -> None:
    """It did not bring the values that another expression does not give."""
    table = make(uri, table_type=kind)
    with again(table).writer("upsert") as writer:
        writer.write(rows([1, 2]))
        change(table.alter.columns()).commit()  # type: ignore[attr-defined]  # of an alteration
    assert {row["id"]: row["total"] for row in content(table).values()} == expected


def test_a_restore_brings_back_what_was_generated_then(uri: str) -> None:
    """And a source is free again without its column."""
    table = make(uri)
    table.append(rows([1]))
    table.alter.columns().generate("total", None).commit()
    table.append(wrong([2, 3]))
    with pytest.raises(ConstraintError):
        table.alter.columns().generate("total", "price * amount").commit()
    table.versions.restore(version=1)
    table.append(rows([4]))
    require_generated(table)
    assert content(table).keys() == {1, 4}
    with pytest.raises(ConstraintError):
        table.append(wrong([5]))
    change = table.alter.columns().drop("total").widen("price", "bigint").generate("day", None)
    change.drop("at").commit()
    table.append(pa.table({"id": [9], "price": [1 << 40], "amount": pa.array([1], pa.int32())}))
    assert content(table)[9]["day"] is None
    # An older schema has it, by which older versions are read.
    assert GENERATED in decision_at(table._handle.store, table.version).writer_features
