"""Columns and their members keep their values through all changes of them, in every reader."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from plait.read.changed import INSERT, POST
from plait.spark.values import spark_schema
from tests.property import nested
from tests.property.nested import Book, Part, Row, expected, found, played, under
from tests.support.effort import MORE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIVES = range(300 if MORE else 4)
LIVES_IN_SPARK = range(60) if MORE else (1,)


@pytest.mark.long(2)
@pytest.mark.slow
@pytest.mark.parametrize("life", LIVES)
def test_readers_tell_columns_apart_by_their_ids_at_every_version(
    tmp_path: Path, life: int
) -> None:
    """INV-04: also members; compared with a table that never looks at names."""
    book = played(str(tmp_path / "t"), life)
    for version, state in book.versions.items():
        scan = book.table.scan(version=version)
        assert found(scan.to_arrow()) == expected(state), (version, book.steps)
        assert found(scan.to_duckdb().to_arrow_table()) == expected(state), version
        polars = scan.to_polars().to_arrow().cast(pa.schema(scan.schema))
        assert found(polars) == expected(state), version
    require_changes(book, book.table.changes(since=book.restored).to_arrow())


@pytest.mark.long(0)
@pytest.mark.spark
@pytest.mark.parametrize("life", LIVES_IN_SPARK)
def test_spark_tells_members_apart_by_their_ids_at_every_version(
    spark: SparkSession, tmp_path: Path, life: int
) -> None:
    """INV-04: its own Parquet reader, the data source, changes, streams, and what it writes."""
    book = played(str(tmp_path / "t"), life, changes=8 if MORE else 5)
    source = spark.read.format("plait")
    first, *between, last = book.versions
    looked_at = between if MORE else between[len(between) // 2 :][:1]
    for version in (first, *looked_at, last):
        rows = book.table.scan(version=version).to_spark(spark)
        assert found(rows.toArrow()) == expected(book.versions[version]), (version, book.steps)
    newest = expected(book.versions[last])
    assert found(source.load(str(tmp_path / "t")).toArrow()) == newest
    oldest = source.option("version", first).load(str(tmp_path / "t"))
    assert found(oldest.toArrow()) == expected(book.versions[first])
    require_changes(book, book.table.changes(since=book.restored).to_spark(spark).toArrow())
    require_predicates(spark, book, newest)
    book.table.upsert(rows.where("id % 2 = 0"))  # read, compute, write
    assert found(book.table.scan().to_arrow()) == newest
    with book.table.writer("upsert") as writer:
        writer.write(spark.createDataFrame(book.data(book.rows), spark_schema(book.table.schema)))
        book.change(
            nested.rename, nested.move, nested.swap_names
        )  # while rows of before are on their way
    assert found(book.table.scan().to_arrow()) == expected((book.root, book.rows))
    assert found(streamed(spark, tmp_path)) == expected((book.root, book.rows))
    assert not book.table.check.verify(data=True).problems


def require_changes(book: Book, changes: pa.Table) -> None:
    """Compare what became of rows, in the columns of now, with the book's rows of then."""
    root = book.versions[max(book.versions)][0]
    seen = 0
    for row in changes.to_pylist():
        kind, version = row.pop("_change_type"), row.pop("_commit_version")
        del row["_commit_timestamp"]
        if kind in (INSERT, POST) and version in book.versions:
            then = book.versions[version][1]
            assert [row] == expected((root, {row["id"]: then[row["id"]]})), version
            seen += 1
    assert seen or book.restored


def require_predicates(spark: SparkSession, book: Book, newest: list[Row]) -> None:
    """Look for a value of each column and member, by the name that it has now."""
    for path, part in leaves("", book.root)[: None if MORE else 4]:
        values = {repr(v): v for v in (at(row, path) for row in newest) if v is not None}
        for value in list(values.values())[:1]:
            text = f"'{value}'".replace("it's", r"it\'s") if part.kind == "string" else str(value)
            if text == "inf":
                text = "CAST('inf' AS DOUBLE)"
            wanted = [row["id"] for row in newest if at(row, path) == value]
            scan = book.table.scan(["id"], where=f"{path} = {text}")
            assert sorted(scan.to_arrow()["id"].to_pylist()) == wanted, (path, text)
            rows = scan.to_spark(spark).collect()
            assert sorted(row["id"] for row in rows) == wanted, (path, text)


def leaves(path: str, part: Part) -> list[tuple[str, Part]]:
    if part.kind != "struct":
        return [] if part.item is not None else [(path, part)]
    return [leaf for n, each in part.members.items() for leaf in leaves(under(path, n), each)]


def at(row: Row, path: str) -> object:
    value: object = row
    for name in path.split("."):
        value = value[name] if isinstance(value, dict) else None
    return value


def streamed(spark: SparkSession, place: Path) -> pa.Table:
    """Give what a stream of the table delivers first."""
    rows = spark.readStream.format("plait").option("path", str(place / "t")).load()
    query = (
        rows.writeStream.format("memory")
        .queryName("nested_rows")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return spark.table("nested_rows").toArrow()
