"""Files with timestamps as INT96, which Spark writes by default: imported exactly."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait.errors import SchemaError
from tests.support.build import make

_local = dt.datetime
_DAYS = [
    _local(2020, 1, 1, 12, 0, 0, 1),
    _local(9999, 12, 31, 23, 59, 59, 999_999),
    _local(1, 1, 1),
    _local(1600, 1, 1),
    None,
]
_US = pa.timestamp("us")
_SHAPES = {
    "{0}": lambda days: pa.array(days, _US),
    "struct<n: int, m: array<{0}>>": lambda days: pa.array(
        [{"n": 1, "m": [day]} for day in days],
        pa.struct([("n", pa.int32()), ("m", pa.list_(_US))]),
    ),
    "map<string, {0}>": lambda days: pa.array(
        [[("k", day)] for day in days], pa.map_(pa.string(), _US)
    ),
}


def _file(path: Path, columns: dict[str, pa.Array], *, int96: bool = True) -> str:
    pq.write_table(pa.table(columns), path, use_deprecated_int96_timestamps=int96)
    return f"parquet:{path}"


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
@pytest.mark.parametrize("shape", _SHAPES)
def test_moments_and_local_times_are_imported_from_int96_as_they_are(
    tmp_path: Path, shape: str, kind: str
) -> None:
    values = _SHAPES[shape](_DAYS)
    source = _file(tmp_path / "a.parquet", {"id": pa.array(range(5)), "at": values})
    table = make(f"id bigint, at {shape.format(kind)}, part string", record_key=())
    table.alter.columns().drop("part").commit()
    table.layout.repush(source=source)
    found = table.scan().to_arrow().sort_by("id")["at"].to_pylist()
    if kind == "timestamp":
        found = _without_zone(found)
    assert found == values.to_pylist()


def _without_zone(value: object) -> object:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_without_zone, value))
    if isinstance(value, dict):
        return {name: _without_zone(each) for name, each in value.items()}
    return value


def test_a_local_time_beside_int96_is_still_no_moment(tmp_path: Path) -> None:
    day = pa.array([_local(2020, 1, 1)], _US)
    pq.write_table(pa.table({"at": day}), tmp_path / "plain.parquet")
    table = make("at timestamp", record_key=())
    with pytest.raises(SchemaError):
        table.layout.repush(source=f"parquet:{tmp_path / 'plain.parquet'}")


def test_files_of_which_only_some_have_int96_are_refused_by_the_column(tmp_path: Path) -> None:
    day = pa.array([_local(2020, 1, 1)], _US)
    _file(tmp_path / "a.parquet", {"at": day})
    _file(tmp_path / "b.parquet", {"at": day}, int96=False)
    table = make("at timestamp", record_key=())
    with pytest.raises(SchemaError) as told:
        table.layout.repush(source=f"parquet:{tmp_path}")
    assert told.value.column == "at"
    assert table.version == 0


def test_int96_in_a_partitioned_directory_is_imported(tmp_path: Path) -> None:
    place = tmp_path / "day=1"
    place.mkdir()
    _file(place / "a.parquet", {"at": pa.array(_DAYS[:1], _US)})
    table = make("day int, at timestamp", record_key=())
    table.layout.repush(source=f"parquet:{tmp_path}")
    assert _without_zone(table.scan().to_arrow()["at"].to_pylist()) == _DAYS[:1]
