"""Limits and counts: no more files are opened than the answer needs."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait import OptionError, Table
from tests.support.build import keys, make, rows
from tests.support.opened import opened_files

TYPES = ["cow", "mor"]


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the data files that are opened."""
    return opened_files(monkeypatch)


def days(table_type: str = "mor") -> Table:
    """Make twenty files of ten rows each, of which the first of each day is hidden."""
    table = make(
        "id bigint, day string, x double",
        table_type=table_type,
        partition_by="day",
        properties={"write.bucket.size": "1 MiB"},
    )
    table.upsert(rows(range(200), day=lambda key: f"d{key // 10:02d}", x=float))
    table.delete(keys=keys(range(0, 200, 10)))
    return table


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("limit", [0, 1, 8, 9, 10, 179, 180, 181])
def test_a_limit_returns_so_many_rows_and_opens_the_files_that_have_them(
    table_type: str, limit: int, paths: list[str]
) -> None:
    table = days(table_type)
    paths.clear()
    scan = table.scan(limit=limit)
    assert scan.limit == limit
    found = scan.to_arrow()
    assert found.num_rows == min(limit, 180) == scan.count()
    assert len(set(found["id"].to_pylist())) == found.num_rows
    assert len(paths) == min(-(-limit // 9), 20)
    plan = scan.plan
    assert plan.files.num_rows + plan.pruned_by_limit == plan.files_total
    assert sum(batch.num_rows for batch in scan) == found.num_rows


@pytest.mark.parametrize("table_type", TYPES)
def test_a_limit_with_a_predicate_stops_at_the_file_that_completes_it(
    table_type: str, paths: list[str]
) -> None:
    table = days(table_type)
    for where in ("id >= 100", pc.field("id") >= 100):
        paths.clear()
        found = table.scan(where=where, limit=12).to_arrow()
        assert found.num_rows == 12
        assert min(found["id"].to_pylist()) >= 100
        assert len(paths) == 2
    assert table.scan(where="id >= 100", limit=5).count() == 5
    assert table.scan(where="id >= 195", limit=50).count() == 5
    assert table.scan(where=pc.bit_wise_and(pc.field("id"), 1) == 1, limit=7).count() == 7


def test_head_returns_some_rows(paths: list[str]) -> None:
    table = days()
    paths.clear()
    assert table.head().num_rows == 5
    assert table.head(3, ["id"]).column_names == ["id"]
    assert table.scan(where="id > 195").head(100).num_rows == 4
    assert table.scan(limit=2).head(10).num_rows == 2
    assert table.snapshot(version=1).scan(limit=10).head(3).num_rows == 3
    assert table.snapshot(version=1).scan(limit=10).count() == 10


@pytest.mark.parametrize("limit", [-1, True, 1.5, "3", np.bool_(1), np.int64(-1)])
def test_what_is_no_number_of_rows_is_refused(limit: Any) -> None:
    table = make()
    for read in (lambda: table.scan(limit=limit), lambda: table.head(limit)):
        with pytest.raises(OptionError) as caught:
            read()
        assert caught.value.key in ("limit", "rows")


def test_any_whole_number_of_rows_is_a_limit(paths: list[str]) -> None:
    """Also those of NumPy, and those that are more than Arrow can count to."""
    table = days()
    paths.clear()
    assert table.scan(limit=np.int64(3)).to_arrow().num_rows == 3  # type: ignore[arg-type] # as users do
    assert table.head(np.int32(3)).num_rows == 3  # type: ignore[arg-type] # as users do
    assert len(paths) == 2
    for limit in (2**63 - 1, 2**63, 2**70):
        for where in (None, "id >= 0"):
            scan = table.scan(where=where, limit=limit)
            assert scan.to_arrow().num_rows == scan.count() == 180
            assert scan.head(limit).num_rows == 180
    assert len(table.scan().splits(size_bytes=2**70)) == 1


def test_a_limited_scan_is_neither_divided_nor_narrowed() -> None:
    """A predicate after a limit would otherwise become one before it."""
    scan = days().scan(limit=3)
    for part in (
        scan.splits,
        scan.to_dataset,
        lambda: scan.narrowed(where="id > 1"),
        lambda: list(scan.by_file()),
    ):
        with pytest.raises(OptionError) as caught:
            part()
        assert caught.value.key == "limit"


PROVEN = {
    "id >= 100": 0,
    "id >= 105": 1,
    "id < 109": 1,
    "id > 101": 1,
    "id < 100 OR id > 149": 0,
    "id != 500": 0,
    "id IN (3, 500)": 1,
    "id NOT IN (500, 501)": 0,
    "id IS NOT NULL": 0,
    "x IS NULL": 0,
    "id > 3 AND x > 55": 1,
    "x <= 199": 0,
    "day = 'd03'": 0,
    "day = 'd03' AND id >= 0": 0,
    "day = 'd03' AND id > 35": 1,
}


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("where", PROVEN)
def test_a_count_opens_only_files_of_which_some_rows_match(
    table_type: str, where: str, paths: list[str]
) -> None:
    table = days(table_type)
    expected = table.scan(where=where).to_arrow().num_rows
    paths.clear()
    assert table.scan(where=where).count() == expected
    assert len(set(paths)) == PROVEN[where]


@pytest.mark.parametrize("table_type", TYPES)
def test_a_count_is_exact_where_there_are_nulls_and_nan(table_type: str) -> None:
    """Bounds leave NaN out, and a comparison with a null is not TRUE."""
    nan = float("nan")
    values = [[1.0, 2.0], [1.0, None], [1.0, nan], [nan, nan], [None, None], [-0.0, 0.0]]
    table = make("id bigint, x double", table_type=table_type, record_key=())
    for at, pair in enumerate(values):
        table.append(rows(at, at + 10, x=pair))
    for where in (
        *("x >= 1", "x < 3", "x > 0", "x != 7", "x = 0", "x <= 0", "x IS NULL", "x IS NOT NULL"),
        *("x >= CAST('NaN' AS DOUBLE)", "x = CAST('NaN' AS DOUBLE)", "x < CAST('NaN' AS DOUBLE)"),
        *("NOT (x < 3)", "x IN (1, 2)", "x NOT IN (7)", "x <=> NULL"),
    ):
        scan = table.scan(where=where)
        assert scan.count() == scan.to_arrow().num_rows, where


def test_a_count_is_exact_beside_long_texts_and_late_moments() -> None:
    """Bounds of texts are cut, and those of moments are not."""
    table = make("id bigint, s string, at timestamp", record_key=())
    moment = dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)
    table.append(rows(1, 2, s=["b" * 70, "b" * 71], at=[moment, moment]))
    for where in (
        f"s = '{'b' * 70}'",
        f"s >= '{'b' * 70}'",
        f"s <= '{'b' * 71}'",
        f"s < '{'b' * 65}c'",
        "at >= TIMESTAMP '2026-01-01 00:00:00.000001Z'",
        "at > TIMESTAMP '2026-01-01 00:00:00Z'",
        "at < TIMESTAMP '2026-01-01 00:00:00.000001Z'",
    ):
        scan = table.scan(where=where)
        assert scan.count() == scan.to_arrow().num_rows, where


def test_a_scan_is_iterated_in_batches_and_can_be_left_early() -> None:
    table = days()
    scan = table.scan(["id"])
    batches = list(scan)
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert pa.Table.from_batches(batches).num_rows == 180
    for batch in scan:
        assert batch.num_rows
        break
    assert sum(batch.num_rows for batch in table.changes(since=1)) > 0
