"""Spark SQL on tables: every statement of the page, with what it gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from plait import Table
from tests.integration.spark.tables import arrow_rows, assert_sound, frame, make, revisions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "use-sql.md"
BLOCK = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATEMENT = re.compile(r"(.+?);[ ]*(?:-- ([^\n]*))?$", re.MULTILINE | re.DOTALL)


def statements(path: str) -> list[tuple[str, str | None]]:
    """Give the statements of the page for a table at this path, with what stands behind them."""
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    found = [pair for block in blocks for pair in STATEMENT.findall(block)]
    return [(sql.replace("/data/trips", path), said or None) for sql, said in found]


@pytest.fixture
def catalog(spark: SparkSession) -> Iterator[None]:
    """Drop what statements left in the catalog of the session."""
    yield
    for table in spark.catalog.listTables():
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)
        else:
            spark.sql(f"DROP TABLE {table.name}")


@pytest.mark.usefixtures("catalog")
def test_the_page_says_what_each_statement_does(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "trips")
    ddl = "id bigint, city string, fare double"
    table = Table.create(path, ddl, record_key=["id"], buckets=1)
    cities = ["Bern", "Oslo", "Oslo"]
    table.insert(pa.table({"id": [1, 2, 3], "city": cities, "fare": [10.0, 20.0, 30.0]}))
    for sql, said in statements(path):
        if said is not None and said.startswith("error: "):
            expected = re.escape(said.removeprefix("error: ").replace("/data/trips", path))
            with pytest.raises(Exception, match=expected):
                spark.sql(sql).collect()
            continue
        rows = spark.sql(sql).collect()
        if said is not None:
            shown = ["NULL" if value is None else str(value) for row in rows for value in row]
            assert ", ".join(shown) == said, sql
    assert table.scan(["id"]).count() == 2, "names go, the table stays"
    assert [name.name for name in spark.catalog.listTables() if not name.isTemporary] == []
    assert_sound(table)


@pytest.mark.usefixtures("catalog")
def test_a_name_reads_what_is_newest_and_writes_what_spark_lays_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    """INV-04, INV-08: several tasks, a partitioned merge-on-read table, by name."""
    table = make(tmp_path / "t", "mor", partitioned=True)
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE named USING plait OPTIONS (path '{path}') COMMENT 'trips'")
    frame(spark, 0, 60, 1).createOrReplaceTempView("first_rows")
    frame(spark, 30, 90, 2).createOrReplaceTempView("later_rows")
    spark.sql(f"INSERT INTO named WITH (path = '{path}') SELECT * FROM first_rows")
    upsert = f"WITH (path = '{path}', operation = 'upsert', on_conflict = 'retry')"
    spark.sql(f"INSERT INTO named {upsert} SELECT * FROM later_rows")
    model = dict.fromkeys(range(30), 1) | dict.fromkeys(range(30, 90), 2)
    assert revisions(table) == model
    found = spark.sql("SELECT id, rev FROM named WHERE part = 'p1'").collect()
    assert {row.id: row.rev for row in found} == {k: v for k, v in model.items() if k % 3 == 1}
    old = spark.read.option("version", "1").table("named")
    assert old.selectExpr("count(*)", "max(rev)").first() == (60, 1)
    dynamic = f"WITH (path = '{path}', partitions = 'dynamic')"
    spark.sql(f"INSERT OVERWRITE named {dynamic} SELECT * FROM first_rows WHERE part = 'p2'")
    model = {k: v for k, v in model.items() if k % 3 != 2} | dict.fromkeys(range(2, 60, 3), 1)
    assert revisions(table) == model
    writer = frame(spark, 200, 210, 3).writeTo("named").option("path", path)
    writer.append()
    assert spark.table("named").count() == len(model) + 10
    assert_sound(table)


@pytest.mark.usefixtures("catalog")
def test_a_stream_follows_a_table_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(arrow_rows(0, 10, 1))
    table.upsert(arrow_rows(5, 12, 2))
    spark.sql(f"CREATE TABLE named USING plait OPTIONS (path '{tmp_path / 't'}')")

    def follow(**options: str) -> None:
        query = (
            spark.readStream.options(**options)
            .table("named")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "copy"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)

    follow(start="1", where="id >= 5")
    delivered = spark.read.parquet(str(tmp_path / "copy")).groupBy("rev").count().collect()
    assert {row.rev: row["count"] for row in delivered} == {1: 5, 2: 7}
    with pytest.raises(Exception, match="'as_of' is an option for reading alone"):
        follow(as_of="1")


@pytest.mark.usefixtures("catalog")
def test_rows_never_go_where_a_query_came_from(spark: SparkSession, tmp_path: Path) -> None:
    """A new name gets the columns of a query, and what stands beside them; not its table."""
    table = make(tmp_path / "t", keyed=False)
    table.append(arrow_rows(0, 10, 1))
    spark.sql(f"CREATE TABLE source USING plait LOCATION '{tmp_path / 't'}'")
    with pytest.raises(Exception, match="does not tell a data source"):
        spark.table("source").write.format("plait").saveAsTable("copy")
    with pytest.raises(Exception, match="does not tell a data source"):
        spark.table("source").write.format("plait").option("operation", "append").saveAsTable("b")
    with pytest.raises(Exception, match="does not tell a data source"):
        spark.table("source").write.insertInto("source")
    assert table.version == 1
