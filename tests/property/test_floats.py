"""Zeros, NaN and infinities in predicates select the same rows in every reader and writer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import Table, Update
from plait.spark import scan
from tests.property.predicates import both, holds, inverse
from tests.support.effort import MORE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = "id bigint, x double, y float, s struct<x: double, n: struct<y: float>>, name string"
COLUMNS = ("x", "y", "s.x", "s.n.y")
NAN, INF = math.nan, math.inf
VALUES = (0.0, -0.0, NAN, -NAN, INF, -INF, 1.5, -1.5, None)
ASKED = {"0": 0.0, "CAST('-0.0' AS DOUBLE)": -0.0, "CAST('NaN' AS DOUBLE)": NAN, "1.5": 1.5}
ASKED |= {"CAST('Infinity' AS DOUBLE)": INF, "CAST('-Infinity' AS DOUBLE)": -INF}
MANY = ", ".join(str(number) for number in range(20, 40))
Flag = Callable[[float | None], "bool | None"]


def compared(op: str, asked: float) -> Flag:
    """Return what a comparison says: both zeros are one, and NaN is the greatest."""
    if op == "<=>":
        return lambda value: bool(holds("=", value, asked))
    return lambda value: holds(op, value, asked)


def negated(flag: Flag) -> Flag:
    return lambda value: inverse(flag(value))


def conditions(column: str) -> Iterator[tuple[str, Flag]]:
    """Give conditions on a column, and what they say of its value."""
    for (text, asked), op in itertools.product(
        ASKED.items(), ("=", "!=", "<", "<=", ">", ">=", "<=>")
    ):
        flag = compared(op, asked)
        yield f"{column} {op} {text}", flag
        yield f"NOT ({column} {op} {text})", negated(flag)
    for some in ((), (MANY,)):  # a long list is looked up by hash
        for pair in itertools.combinations(ASKED.items(), 2):
            listed = ", ".join([*(text for text, _ in pair), *some])
            flags = [compared("=", asked) for _, asked in pair]

            def among(value: float | None, flags: Sequence[Flag] = flags) -> bool | None:
                return None if value is None else any(flag(value) for flag in flags)

            yield f"{column} IN ({listed})", among
            yield f"{column} NOT IN ({listed})", negated(among)
    for (low, least), (high, most) in itertools.permutations(ASKED.items(), 2):

        def inside(value: float | None, ends: tuple[float, float] = (least, most)) -> bool | None:
            return both(holds(">=", value, ends[0]), holds("<=", value, ends[1]))

        yield f"{column} BETWEEN {low} AND {high}", inside
        yield f"{column} NOT BETWEEN {low} AND {high}", negated(inside)


def rows(value: float | None, first: int, count: int) -> pa.Table:
    """Give rows of one value, so that a dictionary has nothing else, and bounds are narrow."""
    listed = [
        {"id": at, "x": value, "y": value, "s": {"x": value, "n": {"y": value}}, "name": "n"}
        for at in range(first, first + count)
    ]
    types = {"x": pa.float64(), "y": pa.float32()}
    inner = pa.struct([("y", pa.float32())])
    nested = pa.struct([("x", pa.float64()), ("n", inner)])
    fields = [("id", pa.int64()), *types.items(), ("s", nested), ("name", pa.string())]
    return pa.Table.from_pylist(listed, schema=pa.schema(fields))


def filled(place: Path, table_type: str = "cow") -> tuple[Table, dict[int, float | None]]:
    """Make a table with a file of each value, and one of all values; give the value of each id."""
    keyed = {"record_key": ["id"], "buckets": 1} if table_type == "mor" else {}
    table = Table.create(str(place), DDL, table_type=table_type, **keyed)
    book: dict[int, float | None] = {}
    for number, value in enumerate(VALUES):
        table.append(rows(value, 10 * number, 3))
        book.update(dict.fromkeys(range(10 * number, 10 * number + 3), value))
    mixed = [rows(value, 1000 + number, 1) for number, value in enumerate(VALUES)]
    table.append(pa.concat_tables(mixed))
    book.update({1000 + number: value for number, value in enumerate(VALUES)})
    return table, book


def wanted(book: dict[int, float | None], flag: Flag) -> list[int]:
    return sorted(key for key, value in book.items() if flag(value) is True)


def ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


@pytest.mark.long(2)
@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_arrow_selects_by_the_order_of_spark(tmp_path: Path, table_type: str, column: str) -> None:
    """INV-04: also where bounds, key lookups and row groups prune; polars and DuckDB alike."""
    table, book = filled(tmp_path / "t", table_type)
    for text, flag in conditions(column):
        scan = table.scan(["id"], where=text)
        assert ids(scan.to_arrow()) == wanted(book, flag), text
    assert ids(scan.to_polars().to_arrow()) == ids(scan.to_duckdb().to_arrow_table())
    assert ids(scan.to_polars().to_arrow()) == wanted(book, flag)


AT_ONCE = 40
SAMPLED = 1 if MORE else 29
"""One in so many conditions is asked of Spark."""


def in_spark(frames: Sequence[DataFrame]) -> list[list[int]]:
    """Run many small queries as one job; each has its own scan, and its own filters."""
    whole = None
    for number, frame in enumerate(frames):
        part = frame.selectExpr(f"{number} AS number", "id")
        whole = part if whole is None else whole.unionAll(part)
    assert whole is not None
    found: list[list[int]] = [[] for _ in frames]
    for row in whole.collect():
        found[row["number"]].append(row["id"])
    return list(map(sorted, found))


def rewritten(spark: SparkSession, table: Table, place: Path) -> None:
    """Put files in the place of the table's that have all by which Parquet's reader judges.

    Dictionary, bounds of row groups and of pages, and a bloom filter: as files may have that others
    wrote, or an older version.
    """
    for number, path in enumerate(table.inspect.files()["path"].to_pylist()):
        made = place.parent / f"made-{number}"
        writer = spark.read.parquet(str(place / path)).coalesce(1).write
        for column in COLUMNS:
            writer = writer.option(f"parquet.bloom.filter.enabled#{column}", "true")
            writer = writer.option(f"parquet.bloom.filter.expected.ndv#{column}", "10")
        writer.parquet(str(made))
        (file,) = made.glob("part-*.parquet")
        (place / path).write_bytes(file.read_bytes())
    footer = pq.ParquetFile(place / path).metadata.row_group(0).column(1)
    assert footer.has_dictionary_page
    assert footer.statistics is not None


@pytest.mark.long(0)
@pytest.mark.spark
def test_spark_selects_by_its_own_order_whatever_parquets_reader_knows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-04: filters of ours and of callers, on files of ours and of others."""
    table, book = filled(tmp_path / "t")
    require_agreement(spark, table, book)
    rewritten(spark, table, tmp_path / "t")
    monkeypatch.setattr(scan, "_COMPARED_MAX", 0)  # these are not the files of the metadata
    require_agreement(spark, table, book)


def require_agreement(spark: SparkSession, table: Table, book: dict[int, float | None]) -> None:
    """Ask in the scan, where pruning of ours comes first, and of the DataFrame."""
    every = [pair for column in COLUMNS for pair in conditions(column)]
    asked = [(text, wanted(book, flag)) for text, flag in every[::SAMPLED]]
    # Of a long list Spark itself looks up zeros by their bits, whatever it reads.
    own = [pair for pair in asked if MANY not in pair[0]]
    print(f"{len(asked) + len(own)} conditions on floats")  # noqa: T201 - of a long run
    for start in range(0, len(asked), AT_ONCE):
        some = asked[start : start + AT_ONCE]
        frames = [table.scan(["id"], where=text).to_spark(spark) for text, _ in some]
        assert list(zip((text for text, _ in some), in_spark(frames), strict=True)) == some
    rows = table.scan().to_spark(spark)
    for start in range(0, len(own), AT_ONCE):
        some = own[start : start + AT_ONCE]
        frames = [rows.where(text) for text, _ in some]
        assert list(zip((text for text, _ in some), in_spark(frames), strict=True)) == some


@pytest.mark.spark
def test_only_filters_on_floats_are_kept_from_parquets_reader(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, _ = filled(tmp_path / "t")
    table.alter.columns().add("s.c", "int").commit()
    rows_ = table.scan(where="id >= 5 AND x >= 0 AND s.c = 1 OR s.n.y = 0").to_spark(spark)
    table.scan(where="id >= 5 AND x >= 0").to_spark(spark).where("name = 'n'").explain()
    shown = capsys.readouterr().out
    assert "GreaterThanOrEqual(id,5)" in shown
    assert "EqualTo(name,n)" in shown
    assert "(x," not in shown.partition("PushedFilters")[2]
    rows_.explain()
    assert "y," not in capsys.readouterr().out.partition("PushedFilters")[2]


@pytest.mark.spark
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_changes_by_a_condition_take_both_zeros_and_nan(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    """INV-04: delete, update and merge, in this process and on executors."""
    for number, session in enumerate((None, spark)):
        table, book = filled(tmp_path / f"{number}", table_type)
        keyed = {"spark": session} if session else {}
        table.update({"name": "'zero'"}, where="s.n.y = 0", **keyed)
        zeros = wanted(book, compared("=", 0.0))
        assert ids(table.scan(where="name = 'zero'").to_arrow()) == zeros
        table.delete(where="x = CAST('NaN' AS DOUBLE) OR s.x > 1.5", **keyed)
        kept = wanted(book, lambda value: not holds(">", value, 1.5))
        assert ids(table.scan().to_arrow()) == kept
        source = pa.table({"id": pa.array(kept, pa.int64())})
        data = source if session is None else session.createDataFrame(source)
        if table_type == "mor":
            table.merge(data, matched=[Update({"name": "'m'"}, when="t.x >= 0 AND t.y <= 0")])
            assert ids(table.scan(where="name = 'm'").to_arrow()) == zeros
