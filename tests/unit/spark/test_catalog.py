"""What Spark hands a data source for a name in SQL (as observed of 4.2), and what comes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from plait import OptionError, SchemaMismatchError, Table
from pyspark_plait import DefaultSource
from tests.support.build import uri_of


@pytest.fixture
def table(tmp_path: Path) -> Table:
    found = Table.create(str(tmp_path / "t"), "id bigint, name string", record_key=["id"])
    for number in (1, 2, 3):
        found.insert(pa.table({"id": [number], "name": ["n"]}))
    return found


def properties(table: Table, **options: str) -> dict[str, str]:
    """Give the one map of a table's creation: options twice, properties once."""
    place = f"file:{table.inspect.describe()['uri']}"
    own = {"owner": "root", "provider": "plait", "comment": "trips", "a.b": "c"}
    prefixed = {f"option.{key}": value for key, value in options.items()}
    return {**own, "path": place, "location": place, **options, **prefixed}


def stored(schema: StructType) -> StructType:
    """Give a schema as a catalog gives it back."""
    return StructType.fromJson(json.loads(schema.json()))


def ids(schema: StructType, **options: str) -> list[int]:
    reader = DefaultSource(options).reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(value for batch in batches for value in batch["id"].to_pylist())


def test_a_name_knows_its_table_from_the_schema_alone(table: Table) -> None:
    schema = stored(DefaultSource(properties(table)).schema())
    assert ids(schema) == [1, 2, 3]
    table.insert(pa.table({"id": [4], "name": ["n"]}))
    assert ids(schema) == [1, 2, 3, 4], "the newest version at each read"
    assert ids(schema, VERSION="1") == [1], "what a query says goes first"
    assert ids(stored(DefaultSource(properties(table, version="2")).schema())) == [1, 2]


def test_a_path_of_its_own_goes_before_that_of_the_schema(table: Table, tmp_path: Path) -> None:
    schema = stored(DefaultSource(properties(table)).schema())
    other = Table.create(str(tmp_path / "other"), "id bigint, name string", record_key=["id"])
    other.insert(pa.table({"id": [9], "name": ["n"]}))
    assert ids(schema, path=str(tmp_path / "other")) == [9]
    plain = DefaultSource({"path": str(tmp_path / "other")}).schema()
    assert all(not field.metadata for field in plain.fields), "only a catalog's columns keep it"


def test_a_writer_is_never_sent_where_a_schema_points(table: Table) -> None:
    schema = stored(DefaultSource(properties(table)).schema())
    with pytest.raises(OptionError) as caught:
        DefaultSource({"operation": "insert"}).writer(schema, overwrite=False)
    assert caught.value.key == "path"
    assert f"path = '{table.inspect.describe()['uri']}'" in caught.value.hint


def test_options_of_a_creation_are_checked(table: Table) -> None:
    with pytest.raises(OptionError) as unknown:
        DefaultSource(properties(table, versions="1")).schema()
    assert unknown.value.key == "versions"
    secret = {"option.storage.key": "k", "storage.key": "k"}
    with pytest.raises(OptionError) as kept:
        DefaultSource({**properties(table), **secret}).schema()
    assert kept.value.key == "storage.key"
    with pytest.raises(OptionError) as nowhere:
        DefaultSource({"owner": "root", "provider": "plait"}).schema()
    assert nowhere.value.key == "path"


def test_a_view_may_have_options_for_writing_but_for_a_commit_id(table: Table) -> None:
    """A commit id would make the second insert the first one again."""
    path = uri_of(table)
    view = {"path": path, "Operation": "upsert", "on_conflict": "retry"}
    assert DefaultSource(view).schema().names == ["id", "name"]
    assert ids(DefaultSource(view).schema(), **view) == [1, 2, 3]
    with pytest.raises(OptionError) as caught:
        DefaultSource({"path": path, "commit_id": "one"}).schema()
    assert caught.value.key == "commit_id"


def test_a_column_that_the_table_lost_is_told(table: Table) -> None:
    schema = stored(DefaultSource(properties(table)).schema())
    schema.fields[1].name = "gone"
    with pytest.raises(SchemaMismatchError) as caught:
        ids(StructType(schema.fields))
    assert caught.value.column == "gone"
