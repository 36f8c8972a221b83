"""Planning: files are left out only when no row of them can be wanted, and many at once."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pytest

from plait.errors import CorruptMetadataError
from plait.files.hash import bucket_of, key_hashes
from plait.model.bucket import BucketSpec, partition_text
from plait.model.plan import COW, LIVE, Snapshot, TableLayout, TableSpec
from plait.model.schema import Schema
from plait.read.plan import ScanPlan, plan_scan
from tests.unit.read.conftest import Build, Built

SCHEMA = Schema.create(
    pa.schema(
        [
            ("id", pa.int64()),
            ("day", pa.date32()),
            ("place", pa.string()),
            ("note", pa.string()),
            ("ok", pa.bool_()),
            ("raw", pa.binary()),
            ("list", pa.list_(pa.int64())),
        ]
    )
)
SPEC = TableSpec(SCHEMA, TableLayout(("day", "place"), BucketSpec(0, ("id",), 8), None, COW))


def entry(
    number: int, day: str | None, place: str | None, bucket: int = 0, **bounds: list[object]
) -> dict[str, object]:
    stats = {str(SCHEMA.ids[name]): value for name, value in bounds.items()}
    return {
        "path": f"p/{number:06d}",
        "partition": partition_text((day, place)),
        "bucket": bucket,
        "kind": "base",
        "rows": 10,
        "bytes": 100,
        "order": 0,
        "schema_id": 0,
        "footer": 0,
        "stats": json.dumps(stats, separators=(",", ":"), ensure_ascii=False) if bounds else None,
        "version": 1,
        "masked": 0,
    }


def plan(files: list[dict[str, object]], where: object, spec: TableSpec = SPEC) -> ScanPlan:
    snapshot = Snapshot(3, spec, {0: SCHEMA}, pa.Table.from_pylist(files, schema=LIVE))
    return plan_scan(snapshot, where=where)  # type: ignore[arg-type]


def chosen(files: list[dict[str, object]], where: object) -> list[int]:
    return [int(path[2:]) for path in plan(files, where).files["path"].to_pylist()]


PLACES = [
    entry(0, "2026-01-01", "JFK"),
    entry(1, "2026-01-02", "a/b=c %é"),
    entry(2, None, "JFK"),
    entry(3, "2026-01-01", None),
    entry(4, "10000-01-01", ""),
]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, [0, 1, 2, 3, 4]),
        ("place = 'JFK'", [0, 2]),
        ("place = 'a/b=c %é'", [1]),
        ("place = ''", [4]),
        ("place IS NULL", [3]),
        ("place != 'JFK'", [1, 4]),
        ("place LIKE '%é'", [1]),
        ("day > '2026-01-01'", [1, 4]),
        ("day = '2026-01-01' AND place = 'JFK'", [0]),
        ("day = '2026-01-02' OR place = 'JFK'", [0, 1, 2]),
        ("day IN ('2026-01-01', '2026-01-02') AND note = 'x'", [0, 1, 3]),
        ("place = 'JFK' OR note = 'x'", [0, 1, 2, 3, 4]),
        ("(place = 'JFK' AND note = 'x') OR (place = '' AND id = 1)", [0, 2, 4]),
        ("day IS NULL", [2]),
    ],
)
def test_files_are_chosen_by_partition_values_of_any_kind(
    where: str | None, expected: list[int]
) -> None:
    assert sorted(chosen(PLACES, where)) == expected


def test_condition_on_partitions_is_not_asked_again_of_their_rows() -> None:
    assert plan(PLACES, "place = 'JFK'").condition is None
    assert plan(PLACES, "place = 'JFK' AND id = 1").condition.columns == ("id",)  # type: ignore[union-attr]
    assert plan(PLACES, "place = 'JFK' OR id = 1").condition.columns == ("id", "place")  # type: ignore[union-attr]


@pytest.mark.parametrize("where", ["id = 42", "id = 42 AND note != 'x'", "id IN (42)"])
def test_point_on_the_record_key_leads_to_its_bucket(where: str) -> None:
    files = [entry(number, "2026-01-01", "JFK", number) for number in range(8)]
    files.append(entry(8, "2026-01-01", "JFK", -1))  # belongs to no bucket
    bucket = bucket_of(key_hashes(pa.table({"id": [42]}), ["id"]), 8)[0]
    assert chosen(files, where) == [8, bucket]
    found = plan(files, where)
    assert (found.files_total, found.pruned_by_bucket) == (9, 7)


def test_a_range_or_a_choice_of_keys_leads_to_every_bucket_that_may_have_one() -> None:
    files = [entry(number, "2026-01-01", "JFK", number) for number in range(8)]
    assert len(chosen(files, "id > 42")) == 8
    assert len(chosen(files, "id = 1 OR id = 2")) == 2
    assert plan(files, "id = 1 AND id = 2").files.num_rows <= 1


NOTES = ['q"\\"5":[', "z\n", 2]
BOUNDED = [
    entry(0, "2026-01-01", "JFK", id=["0", "9", 0], note=["a", "c", 0], ok=["false", "true", 0]),
    entry(1, "2026-01-01", "JFK", id=["10", "19", 0], note=NOTES, ok=[None, None, 10]),
    entry(2, "2026-01-01", "JFK", id=[None] * 3, note=[None, None, 10], raw=["00", "7f", 0]),
    entry(3, "2026-01-01", "JFK"),
]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id >= 10", [1, 2, 3]),
        ("id < 10", [0, 2, 3]),
        ("id > 9 AND id < 10", [2, 3]),
        ("id BETWEEN 5 AND 6", [0, 2, 3]),
        ("id != 3", [0, 1, 2, 3]),
        ("note = 'b'", [0, 3]),
        ("note > 'm'", [1, 3]),
        ("note IS NULL", [1, 2, 3]),
        ("note IS NOT NULL", [0, 1, 3]),
        ("note LIKE 'b%'", [0, 3]),
        ("note LIKE '%b'", [0, 1, 3]),
        ("note LIKE 'q\"%'", [1, 3]),
        ("ok = true", [0, 2, 3]),
        ("raw = X'80'", [0, 1, 3]),
        ("id > 100 OR note = 'b'", [0, 2, 3]),
        ("list IS NULL", [0, 1, 2, 3]),
    ],
)
def test_files_are_chosen_by_their_bounds(where: str, expected: list[int]) -> None:
    assert chosen(BOUNDED, where) == expected


def test_long_list_of_values_still_prunes_by_its_ends() -> None:
    values = ", ".join(str(number) for number in range(1000, 1200))
    assert chosen(BOUNDED, f"id IN ({values})") == [2, 3]


def test_report_adds_up() -> None:
    files = [entry(n, "2026-01-01", "JFK" if n % 2 else "LGA", n % 8) for n in range(64)]
    found = plan(files, "place = 'JFK' AND id = 1").to_dict()
    read, total = found["files_read"], found["files_total"]
    pruned = [found[f"pruned_by_{reason}"] for reason in ("partition", "bucket", "bounds")]
    assert total == 64
    assert sum(pruned) + read == total  # type: ignore[operator, arg-type]
    assert found["rows_max"] == 10 * read  # type: ignore[operator]


@pytest.mark.parametrize("text", ["nonsense", '["2026-01-01"]', '["x","JFK"]', "[1,2]"])
def test_damaged_partition_values_are_refused(text: str) -> None:
    files = [{**PLACES[0], "partition": text}]
    with pytest.raises(CorruptMetadataError, match="partition"):
        plan(files, "place = 'JFK'")


def test_damaged_bounds_are_refused() -> None:
    files = [*BOUNDED, entry(7, "2026-01-01", "JFK", id=["zero", "9", 0]), *BOUNDED]
    with pytest.raises(CorruptMetadataError, match="bounds of column 'id'") as caught:
        plan(files, "id > 5")
    assert caught.value.path == files[len(BOUNDED)]["path"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"1": 5}', '{"1":["1"]}', "[" * 100_000])
def test_what_is_no_bounds_says_nothing(text: str) -> None:
    """Nor is it parsed: metadata nested without end would end the read with RecursionError."""
    assert chosen([{**PLACES[0], "stats": text}], "id > 5") == [0]


def test_many_files_are_planned_without_an_object_each() -> None:
    count = 20_000
    days = [(dt.date(2020, 1, 1) + dt.timedelta(n)).isoformat() for n in range(count // 16)]
    one = pa.Table.from_pylist([entry(0, days[0], "x", id=["0", "9", 0])], schema=LIVE)
    files = pa.concat_tables([one] * count)
    texts = pa.array([partition_text((day, "x")) for day in days for _ in range(16)])
    files = files.set_column(1, LIVE.field("partition"), texts)
    buckets = pa.array(np.arange(count) % 8, pa.int32())
    files = files.set_column(2, LIVE.field("bucket"), buckets)
    snapshot = Snapshot(1, SPEC, {0: SCHEMA}, files)
    found = plan_scan(snapshot, where=f"day = '{days[7]}' AND id = 3")
    assert (found.files_total, found.files.num_rows) == (count, 2)


def test_old_file_without_an_added_column_is_not_ruled_out_by_it(build: Build) -> None:
    table: Built = build(pa.schema([("id", pa.int64()), ("x", pa.int64())]))
    table.add(pa.table({"id": [1], "x": [2]}))
    table.rows[0]["stats"] = '{"1":["1","1",0]}'
    assert table.scan("x = 2").count() == 1
