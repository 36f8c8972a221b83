"""Buckets by a part of the record key (RFC 0024)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from plait import OptionError, SchemaMismatchError, Table
from plait.definition.features import BUCKET_BY
from plait.files.hash import bucket_of, key_hashes
from plait.read.plan import plan_scan

SCHEMA = "user bigint, n bigint, v string"
COUNT = 7


def table_of(uri: str, by: str | Sequence[str] = "user", table_type: str = "cow") -> Table:
    key = ["user", "n"]
    return Table.create(
        uri, SCHEMA, record_key=key, buckets=COUNT, bucket_by=by, table_type=table_type
    )


def rows_of(users: int, each: int, v: str = "new") -> pa.Table:
    numbers = np.arange(users * each)
    return pa.table({"user": numbers // each, "n": numbers % each, "v": [v] * len(numbers)})


def shown(table: Table, where: str | None = None) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.scan(where=where).to_arrow().to_pylist())


def buckets_read(table: Table, where: str) -> set[int]:
    snapshot = table._handle.cache.refresh().snapshot(table._handle.store)
    return set(plan_scan(snapshot, where=where).files["bucket"].to_pylist())


def spec_of(table: Table) -> object:
    return table.inspect.describe()["bucket_spec"]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_rows_of_one_value_share_a_bucket_and_a_predicate_on_it_opens_no_other(
    uri: str, table_type: str
) -> None:
    table = table_of(uri, table_type=table_type)
    table.upsert(rows_of(20, 5))
    for user in range(20):
        bucket = bucket_of(key_hashes(pa.table({"user": [user]}), ["user"]), COUNT)[0]
        assert buckets_read(table, f"user = {user}") == {bucket}
        assert len(shown(table, f"user = {user}")) == 5
    assert len(buckets_read(table, "n = 3")) > 1
    assert len(shown(table, "n = 3")) == 20
    assert not table.check.verify().problems


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_keys_are_one_by_the_whole_key_and_not_by_what_is_hashed(uri: str, table_type: str) -> None:
    """INV-08."""
    table = table_of(uri, table_type=table_type)
    table.upsert(rows_of(6, 4))
    table.upsert(rows_of(6, 2, "newer"))
    table.delete(keys=pa.table({"user": [0, 1], "n": [0, 3]}))
    gone = {(0, 0), (1, 3)}
    wanted = [(u, n, "newer" if n < 2 else "new") for u in range(6) for n in range(4)]
    assert shown(table) == [row for row in wanted if row[:2] not in gone]
    assert shown(table, "user = 0 AND n = 1") == [(0, 1, "newer")]
    assert shown(table, "user = 0 AND n = 0") == []


def test_a_repush_changes_what_is_hashed_and_an_undo_changes_it_back(uri: str) -> None:
    table = table_of(uri, ())
    table.upsert(rows_of(10, 5))
    assert "by" not in spec_of(table)
    table.layout.repush(bucket_by="n")
    rows = shown(table)
    assert spec_of(table)["by"] == ["n"]
    assert table.scan().count() == 50
    assert len(buckets_read(table, "n = 3")) == 1
    table.layout.repush(buckets=3)
    assert (spec_of(table)["by"], spec_of(table)["count"]) == (["n"], 3), "what is not named stays"
    table.upsert(pa.table({"user": [99], "n": [99], "v": ["late"]}))
    table.layout.undo()
    assert (spec_of(table)["by"], spec_of(table)["count"]) == (["n"], COUNT)
    table.layout.repush(bucket_by=())
    assert "by" not in spec_of(table)
    assert shown(table) == sorted([*rows, (99, 99, "late")])
    assert not table.check.verify().problems


def test_the_whole_key_in_any_order_is_the_same_as_none(uri: str) -> None:
    assert spec_of(table_of(uri, ("n", "USER"))) == {"id": 0, "key": ["user", "n"], "count": COUNT}


def test_clients_learn_from_a_feature_that_buckets_are_by_a_part_of_the_key(uri: str) -> None:
    """A client that hashed the whole key would look for rows in the wrong bucket."""
    table = table_of(uri, ())
    table.upsert(rows_of(2, 2))
    decisions = table._handle.cache.timeline
    assert BUCKET_BY not in decisions.find(table.version).features
    table.layout.repush(bucket_by="n")
    table.upsert(rows_of(2, 2, "newer"))
    assert BUCKET_BY in decisions.find(table.version).features


@pytest.mark.parametrize(
    ("key", "by", "error"),
    [
        (["user", "n"], ["v"], OptionError),
        (["user", "n"], ["user", "user"], OptionError),
        (["user", "n"], ["nothing"], SchemaMismatchError),
        ([], ["user"], OptionError),
    ],
)
def test_buckets_by_what_is_no_part_of_the_key_are_refused(
    uri: str, key: list[str], by: list[str], error: type[Exception]
) -> None:
    with pytest.raises(error, match="bucket_by"):
        Table.create(uri, SCHEMA, record_key=key, bucket_by=by)
    table = Table.create(uri, SCHEMA, record_key=key)
    with pytest.raises(error, match="bucket_by"):
        table.layout.repush(bucket_by=by)
    assert table.version == 0
