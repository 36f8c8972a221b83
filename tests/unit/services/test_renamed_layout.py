"""Columns of the key, the partitions and the ordering get other names (RFC 0027)."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import pyarrow as pa
import pytest

from plait import RetryableConflictError, SchemaError, SchemaMismatchError, Table
from tests.support import build
from tests.support.build import again, content

NEW = {"id": "key", "p": "place", "at": "moment", "v": "rank"}
SCHEMA = pa.schema(
    [("id", pa.int64()), ("p", pa.string()), ("at", pa.timestamp("us")), ("v", pa.int32())]
)
DAY = 86_400_000_000
rows = partial(
    build.rows,
    schema=SCHEMA,
    p=lambda key: "xy"[key % 2],
    at=lambda key: key % 3 * DAY,
    v=0,
)


def make(**how: object) -> Table:
    asked: dict[str, object] = {
        "record_key": ("id", "p"),
        "bucket_by": "id",
        "partition_by": ("p", "day(at)"),
        "ordering": "v",
        "buckets": 2,
        **how,
    }
    return build.make(SCHEMA, append=rows(range(1, 7)), **asked)


def renamed(table: Table) -> None:
    change = table.alter.columns()
    for old, new in NEW.items():
        change = change.rename(old, new)
    change.commit()


def called(given: pa.Table) -> pa.Table:
    return given.rename_columns([NEW[name] for name in given.column_names])


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_version_is_read_by_the_names_of_its_time(kind: str) -> None:
    """INV-04, INV-05."""
    table = make(table_type=kind)
    renamed(table)
    table.upsert(called(rows(1, 2, v=3)))
    table.delete(where="key = 3 AND place = 'y'")
    table.upsert(called(rows(4, v=-1)))  # the greater value in the ordering column stays
    assert content(table, 1) == rows(range(1, 7)).to_pylist()
    assert content(table, 2) == called(rows(range(1, 7))).to_pylist()
    newest = pa.concat_tables([rows(1, 2, v=3), rows(4, 5, 6)])
    assert content(table) == called(newest).to_pylist()
    assert again(table).scan(where="moment >= TIMESTAMP_NTZ '1970-01-03 00:00:00'").count() == 2
    assert table.scan(version=1, where="id = 1 AND p = 'y'").count() == 1
    table.maintenance.compact(full=True)
    assert content(table) == called(newest).to_pylist()
    described = table.inspect.describe()
    assert described["partition_by"] == ["place", "day(moment)"]
    assert described["ordering"] == "rank"
    assert not table.check.verify(data=True).problems


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize(
    "operation", ["append", "insert", "upsert", "overwrite", "delete", "block"]
)
def test_a_writer_that_staged_before_commits_under_the_new_names(operation: str, kind: str) -> None:
    """INV-07."""
    table, work = make(table_type=kind), ExitStack()
    given = rows(2, 8, v=4) if operation in ("upsert", "delete", "block") else rows(7, 8, v=4)
    client = again(table)
    if operation == "block":
        work.enter_context(client.transaction()).upsert(given)
    elif operation == "delete":
        keys = given.select(["id", "p", "at"])
        work.enter_context(client.writer(operation)).write(keys)
    else:
        how = {"partitions": "dynamic"} if operation == "overwrite" else {}
        work.enter_context(client.writer(operation, **how)).write(given)  # type: ignore[arg-type]  # by operation
    renamed(table)
    if operation == "delete":  # the column of a transform is not kept with keys
        with pytest.raises(RetryableConflictError):
            work.close()
        again(table).delete(keys=called(given))
    else:
        work.close()
    there = {row["id"]: row for row in rows(range(1, 7)).to_pylist()}
    if operation == "overwrite":  # 7 is where 1 is, 8 where 2 is
        del there[1], there[2]
    if operation == "delete":
        del there[2]
    else:
        there |= {row["id"]: row for row in given.to_pylist()}
    expected = [{NEW[n]: value for n, value in there[k].items()} for k in sorted(there)]
    assert content(table) == expected
    assert not table.check.verify(data=True).problems


def test_time_to_live_and_recorded_order_follow() -> None:
    table = make(properties={"cluster.by": "at, v"})
    table.alter.set_ttl("at 30d row")
    table.maintenance.cluster()
    renamed(table)
    described = table.inspect.describe()
    assert described["ttl"]["by"] == "moment"
    assert described["properties"]["cluster.by"] == "moment, rank"
    table.maintenance.cluster()
    for bad in ("written", "a, b"):
        with pytest.raises(SchemaError):
            table.alter.columns().rename("moment", bad).commit()
    table.versions.restore(version=1)
    assert table.inspect.describe()["properties"]["cluster.by"] == "at, v"
    assert table.inspect.describe()["ttl"]["by"] == "at"
    assert content(table) == rows(range(1, 7)).to_pylist()
    table.upsert(rows(1, v=9))
    table.maintenance.cluster()
    assert table.maintenance.expire().rows_deleted == 6


def test_a_restore_a_repush_and_a_second_rename_go_on_from_it() -> None:
    """Changes have the names of the last version, and no option names what a restore took away."""
    table = make(table_type="mor")
    for column in ("id", "p", "at", "v"):
        with pytest.raises(SchemaError):
            table.alter.columns().drop(column).commit()
        with pytest.raises(SchemaError):
            table.alter.columns().rename(column, "x").drop("x").commit()
    with pytest.raises(SchemaMismatchError):
        table.append(called(rows(9)))
    assert table.version == 1
    renamed(table)
    changes = again(table).changes(0).to_arrow()
    assert sorted(changes["key"].to_pylist()) == [1, 2, 3, 4, 5, 6]
    assert sorted(again(table).changes(0, 1).to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5, 6]
    table.layout.repush(buckets=3)
    table.alter.columns().rename("key", "id").commit()
    table.upsert(called(rows(1, v=3)).rename_columns(["id", "place", "moment", "rank"]))
    shown = [content(table, version) for version in range(1, table.version + 1)]
    assert shown[0] == rows(range(1, 7)).to_pylist()
    assert shown[1] == called(rows(range(1, 7))).to_pylist()
    assert [row["id"] for row in shown[-1]] == [1, 2, 3, 4, 5, 6]
    table.alter.columns().add("until", "date").commit()
    table.alter.set_ttl("until 30d row")
    table.alter.set({"cluster.by": "until"})
    table.versions.restore(version=1)
    described = again(table).inspect.describe()
    assert "ttl" not in described
    assert not described["properties"].get("cluster.by")
    table.upsert(rows(2, v=5))
    assert content(table)[1] == rows(2, v=5).to_pylist()[0]
    assert not table.check.verify(data=True).problems
