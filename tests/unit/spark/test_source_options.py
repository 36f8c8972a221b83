"""What a data source is asked for and cannot do is refused by name, before Spark runs a job.

Spark calls these methods as they are called here, and passes on what they raise.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from plait import Catalog, OptionError, Table, TableError, TableNotFoundError
from plait.spark import foreach_batch
from plait.spark.options import WRITING, SourceOptions
from plait.spark.values import spark_schema
from pyspark_plait import DefaultSource
from tests.integration.spark.tables import arrow_rows, assert_sound, make
from tests.support.build import uri_of


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """What is refused leaves it as it is."""
    table = make(tmp_path_factory.mktemp("refusing") / "t")
    table.append(arrow_rows(0, 3, 1))
    table.append(arrow_rows(3, 6, 1))
    return table


def source_of(table: Table, **options: str) -> DefaultSource:
    return DefaultSource({"path": uri_of(table), **options})


def rows_of(table: Table) -> StructType:
    return spark_schema(table.schema)


@pytest.mark.parametrize(
    ("overwrite", "options", "words"),
    [
        (False, {"operatoin": "upsert"}, "did you mean 'operation'"),
        (False, {"operation": "delete"}, "does not work with this mode"),
        (False, {"where": "id < 3"}, "does not take where or partitions"),
        (False, {"evolve": "yes"}, "evolve='yes' is unknown"),
        (False, {"evolve": "none", "mergeSchema": "true"}, "contradicts evolve=none"),
        (False, {"evolve": "add", "mergeSchema": "false"}, "contradicts evolve=add"),
        (True, {"operation": "upsert"}, "does not work with this mode"),
        (True, {"partitions": "dynamic"}, "needs a partitioned table"),
        (False, {"readFrom": "newest"}, "is not a version"),
        (False, {"readFrom": "-1"}, "is not a version"),
        (False, {"readFrom": "1.5"}, "is not a version"),
        (False, {"readFrom": "99"}, "99"),
    ],
)
def test_writes(table: Table, overwrite: bool, options: dict[str, str], words: str) -> None:
    with pytest.raises(TableError, match=words):
        source_of(table, **options).writer(rows_of(table), overwrite)
    assert table.version == 2
    assert_sound(table)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"until": "2"}, "until needs since"),
        ({"since": "1", "version": "2"}, "version cannot be used with since"),
        ({"since": "2", "until": "1"}, "until=1 is before since=2"),
        ({"since": "9"}, "there is no version 9"),
        ({"since": "yesterday"}, "neither a version nor a time"),
    ],
)
def test_reads(table: Table, options: dict[str, str], words: str) -> None:
    with pytest.raises(TableError, match=words):
        source_of(table, **options).schema()


def test_batch_reads_with_options_of_streams_and_writes_of_other_columns(table: Table) -> None:
    source = source_of(table, start="1")
    with pytest.raises(OptionError, match="is an option for streaming reads alone"):
        source.reader(source.schema())
    columns = StructType([StructField("id", LongType()), StructField("naem", StringType())])
    with pytest.raises(TableError, match="did you mean 'name'"):
        source_of(table).writer(columns, False)
    assert_sound(table)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"aplication": "x"}, "did you mean 'application'"),
        ({"operation": "upsert", "application": "x"}, "needs a record key"),
        ({}, "this stream has no name"),
        ({"application": "x", "readFrom": "1"}, "do not depend on one version"),
    ],
)
def test_streaming_writes(tmp_path: Path, options: dict[str, str], words: str) -> None:
    table = make(tmp_path / "t", keyed=False)
    with pytest.raises(OptionError, match=words):
        source_of(table, **options).streamWriter(rows_of(table), False)
    assert_sound(table)


@pytest.mark.parametrize("asked", [{"application": ""}, {"application": "x", "operation": "merge"}])
def test_foreach_batch(table: Table, asked: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        foreach_batch(table, **asked)


@pytest.mark.parametrize(
    "options",
    [{"evolve": "add"}, {"mergeSchema": "true"}, {"evolve": "add", "merge_schema": "true"}],
    ids=["ours", "Spark's", "both"],
)
def test_both_names_of_a_change_of_columns_say_the_same(options: dict[str, str]) -> None:
    assert SourceOptions.of({"path": "t", **options}, WRITING).evolve == "add"


def test_a_name_of_a_catalog_stands_in_place_of_the_path(tmp_path: Path) -> None:
    catalog = Catalog.create(str(tmp_path))
    catalog.create_namespace("sales")
    catalog.create_table("sales.trips", "id bigint")
    named = {"catalog": str(tmp_path), "path": "sales.trips"}
    assert DefaultSource(named).schema().fieldNames() == ["id"]
    assert SourceOptions.of(named, WRITING).table().schema.names == ["id"]
    for path, error in (("sales.none", TableNotFoundError), ("../x", OptionError)):
        with pytest.raises(error):
            DefaultSource({**named, "path": path}).schema()
