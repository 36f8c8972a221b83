"""Tables that are divided by a generated column (RFC 0031)."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from plait import (
    BadRecordError,
    OptionError,
    SchemaMismatchError,
    Table,
)
from plait.testing import CountingStore, open_wrapped
from tests.support.generated import again, content, make, require_generated, rows
from tests.support.memory import forget


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize(
    ("where", "partitions"),
    [
        ("at >= TIMESTAMP '2026-02-02 00:00:00Z'", 1),
        ("at = TIMESTAMP '2026-01-30 20:00:00Z'", 1),
        ("at < TIMESTAMP '2026-02-01 00:00:00Z'", 2),
        ("day = DATE '2026-01-31'", 1),
        ("day > DATE '2026-01-31' AND price = 2", 2),
        ("day IN (DATE '2026-01-31', DATE '2030-01-01')", 1),
        ("day IS NULL", 0),
        ("price = 2", 4),
    ],
)
def test_predicates_on_the_source_and_on_the_column_skip_partitions(
    uri: str, kind: str, where: str, partitions: int
) -> None:
    """INV-04: nothing that matches is skipped, and nothing else is opened."""
    table = make(uri, partition_by="day", buckets=1, table_type=kind)
    table.append(rows(range(6)))
    plain = make(f"{uri}-plain", buckets=1)
    plain.append(rows(range(6)))
    stranger, store = open_wrapped(uri, CountingStore)
    store.reset()
    scan = stranger.scan(where=where)
    scan.to_arrow()
    opened = {call.path for call in store.calls if call.operation == "open_input"}
    assert len([path for path in opened if path.endswith(".parquet")]) == partitions
    assert scan.plan.pruned_by_partition == 4 - partitions
    assert content(table, where) == content(plain, where)
    forget(f"{uri}-plain")


def test_a_predicate_on_the_column_is_decided_without_a_file(uri: str) -> None:
    """What the partition says of a column needs no bounds and no row."""
    table = make(uri, partition_by="day", buckets=1, properties={"metadata.statistics": "off"})
    table.append(rows(range(6)))
    plan = again(table).scan(where="day = DATE '2026-01-31'").plan
    assert (plan.files.num_rows, plan.condition) == (1, None)
    assert again(table).scan(where="day = DATE '2026-01-31'").count() == 2


def test_a_bucket_as_a_column_divides_the_table_and_is_found_by_its_source(uri: str) -> None:
    ddl = "id bigint, user string, shard int"
    table = Table.create(
        uri, ddl, record_key="id", partition_by="SHARD", generated={"shard": "bucket(8, user)"}
    )
    users = [f"user {n}" for n in range(40)]
    table.append(pa.table({"id": range(40), "user": users}))
    assert table.inspect.describe()["partition_by"] == ["bucket(8, user)"]
    plan = table.scan(where="user = 'user 7'").plan
    assert plan.files.num_rows == 1
    (row,) = table.scan(where="user = 'user 7'").to_arrow().to_pylist()
    assert table.scan(where=f"shard = {row['shard']}").plan.files.num_rows == 1
    assert table.scan(where=f"shard = {row['shard']}").count() == sum(
        each["shard"] == row["shard"] for each in content(table).values()
    )


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_rows_keep_their_place_in_a_table_that_a_generated_column_divides(
    uri: str, kind: str
) -> None:
    """INV-08: no update moves a row out of the partition in which others look for it."""
    table = make(uri, partition_by=["day"], table_type=kind)
    table.append(rows(range(6)))
    with pytest.raises(OptionError, match="part of the partition"):
        table.update({"at": "TIMESTAMP '2030-01-01 00:00:00Z'"})
    table.upsert(rows([1, 2], price=9))
    some = rows([3], price=8).select(["id", "at", "price"])
    table.upsert(some, missing_columns="keep")
    keys = rows([0, 1]).select(["id", "at"])
    table.delete(keys=keys)
    table.overwrite(rows([4, 5], price=1), partitions="dynamic")
    table.overwrite(rows([3], price=1), where="day = DATE '2026-02-01'")
    with pytest.raises(BadRecordError, match="predicate of the overwrite"):
        table.overwrite(rows([0]), where="day = DATE '2026-02-01'")
    assert content(table).keys() == {2, 3, 5}
    require_generated(table)


def test_keys_that_name_the_column_alone_are_refused(uri: str) -> None:
    """They would be removed in every partition, and seem to say in which."""
    table = make(uri, partition_by="day")
    twice = rows([0, 0]).set_column(1, "at", rows([0, 5])["at"])
    table.append(twice)
    keys = pa.table({"id": [0], "day": [dt.date(2026, 1, 30)]})
    with pytest.raises(SchemaMismatchError, match="lack at"):
        table.delete(keys=keys)
    assert table.scan().count() == 2
    table.delete(keys=twice.slice(0, 1).select(["id", "at"]))
    assert table.scan().count() == 1
    table.delete(keys=keys.select(["id"]))
    assert table.scan().count() == 0


def test_rows_from_before_are_found_among_the_changes(uri: str) -> None:
    """INV-04: a change read shows what was there before the column was generated."""
    table = make(uri, generated={}, partition_by="day(at)", buckets=1)
    table.append(rows([1, 2]))
    table.update({"day": "day(at)"})
    table.alter.columns().generate("day", "day(at)").commit()
    table.append(rows([3]))
    changes = table.changes(since=0, where="day IS NULL").to_arrow()
    assert sorted(changes["_change_type"].to_pylist()) == ["insert"] * 2 + ["update_preimage"] * 2
    assert table.scan(where="day IS NULL").plan.files.num_rows == 0
    assert table.scan(version=1, where="day IS NULL").count() == 2


def test_a_time_to_live_by_the_column_removes_whole_partitions(uri: str) -> None:
    table = make(uri, partition_by="day", ttl="day 30d partition", table_type="mor")
    table.append(rows([0, 2], hours=-24 * 365))
    table.append(rows([5], hours=24 * 36_500))
    assert table.maintenance.expire().files_removed == 2
    assert content(table).keys() == {5}
