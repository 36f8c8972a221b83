"""Partitions by transforms never hide a row, and Arrow's values are those of plain Python."""

from __future__ import annotations

import datetime as dt
import itertools

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from plait import Table
from plait.files.partition_values import known_of, values_of
from plait.model.bucket import BucketSpec
from plait.model.partitioning import parse_field
from plait.model.plan import COW, TableLayout, TableSpec
from plait.model.schema import Schema
from plait.model.value import from_raws, texts_of
from tests.support.memory import forget

KINDS = {
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "day": pa.date32(),
    "tiny": pa.int8(),
    "n": pa.int64(),
    "s": pa.string(),
    "b": pa.binary(),
}
LONG = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-(10**15), 10**16)
RAWS = {
    "at": LONG,
    "local": LONG,
    "day": st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-40_000, 40_000),
    "tiny": st.integers(-128, 127),
    "n": st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-9, 9),
    "s": st.text(max_size=6),
    "b": st.binary(max_size=6),
}
TRANSFORMS = {
    "at": ["year", "month", "day", "hour", "bucket"],
    "local": ["year", "month", "day", "hour"],
    "day": ["year", "month", "day", "bucket"],
    "tiny": ["truncate", "bucket"],
    "n": ["truncate", "bucket"],
    "s": ["truncate", "bucket"],
    "b": ["truncate", "bucket"],
}
NAMES = itertools.count()
ROW = st.fixed_dictionaries({name: st.none() | raws for name, raws in RAWS.items()})


@st.composite
def field_texts(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(sorted(TRANSFORMS)))
    transform = draw(st.sampled_from(TRANSFORMS[name]))
    size = f"{draw(st.integers(1, 7))}, " if transform in ("truncate", "bucket") else ""
    return f"{transform}({size}{name})"


def table_of(rows: list[dict[str, object]]) -> pa.Table:
    columns = [from_raws([row[name] for row in rows], kind) for name, kind in KINDS.items()]
    return pa.table(columns, names=list(KINDS))


def spec_of(*texts: str) -> TableSpec:
    schema = Schema.create(pa.schema(list(KINDS.items())))
    fields = tuple(parse_field(text).text for text in texts)
    return TableSpec(schema, TableLayout(fields, BucketSpec(0, (), 0), None, COW))


LEAST = dict.fromkeys(KINDS) | {"at": -(1 << 63), "local": -(1 << 63), "day": -(1 << 31)}
MOST = dict.fromkeys(KINDS) | {"at": (1 << 63) - 1, "local": (1 << 63) - 1, "day": (1 << 31) - 1}


@given(st.lists(field_texts(), min_size=1, max_size=3), st.lists(ROW, min_size=1, max_size=8))
@example(["year(at)", "day(at)", "hour(at)"], [LEAST, MOST])
@example(["month(local)", "hour(local)", "year(day)"], [LEAST, MOST])
@example(["truncate(2, s)", "truncate(1, b)"], [dict.fromkeys(KINDS) | {"s": "abc", "b": b"ab"}])
@example(["truncate(7, tiny)"], [dict.fromkeys(KINDS) | {"tiny": n} for n in (-128, 127)])
def test_what_a_partition_says_of_a_source_holds_for_every_row(
    texts: list[str], rows: list[dict[str, object]]
) -> None:
    """INV-04: by a bound that is too narrow, a scan would leave out a row."""
    spec = spec_of(*texts)
    (batch,) = table_of(rows).combine_chunks().to_batches()
    columns = [texts_of(values_of(field, batch)) for field in spec.fields]
    known = known_of(list(zip(*columns, strict=True)), spec)
    for name, bounds in known.items():
        assert not isinstance(bounds, pa.Array)
        numbers = [row[name] for row in rows]
        ends = zip(*map(_raws, (bounds.lower, bounds.upper)), strict=True)
        nulls = bounds.null_count.to_pylist()
        for value, (lower, upper), null in zip(numbers, ends, nulls, strict=True):
            assert null == (value is None)
            if value is not None:
                assert lower is None or _bytes(lower) <= _bytes(value)
                assert upper is None or _bytes(value) <= _bytes(upper)


def _raws(array: pa.Array) -> list[object]:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    return list(array.to_pylist())


def _bytes(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


TIMES = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))  # noqa: DTZ001 - in UTC below


@given(TIMES)
def test_periods_begin_where_the_calendar_says(time: dt.datetime) -> None:
    time = time.replace(tzinfo=dt.UTC)
    rows = pa.record_batch({"at": pa.array([time], KINDS["at"])})
    wanted: dict[str, object] = {
        "year": dt.date(time.year, 1, 1),
        "month": dt.date(time.year, time.month, 1),
        "day": time.date(),
        "hour": time.replace(minute=0, second=0, microsecond=0),
    }
    for name, begin in wanted.items():
        assert values_of(parse_field(f"{name}(at)"), rows).to_pylist() == [begin]


NUMBERS = st.integers(-20, 20)
SMALL = st.fixed_dictionaries(
    {
        "at": st.none() | st.integers(-5, 60).map(lambda n: n * 7_200_000_000),
        "n": st.none() | NUMBERS,
        "s": st.none() | st.text("ab%", max_size=3),
    }
)
CONDITIONS = st.sampled_from([
    "at {op} TIMESTAMP '1970-01-0{day}T0{hour}:00:00Z'",
    "n {op} {n}",
    "s {op} '{s}'",
    "s LIKE '{s}%'",
    "NOT n {op} {n}",
    "n IN ({n}, 3)",
    "n NOT IN ({n}, 3)",
    "n BETWEEN -3 AND {n}",
    "at IS NULL",
    "s IS NOT NULL",
    "n = {n} AND s = '{s}'",
    "n = {n} OR s {op} '{s}'",
])  # fmt: skip
FIELDS = st.sampled_from(
    ["day(at)", "hour(at)", "bucket(3, n)", "bucket(2, s)", "truncate(1, s)", "truncate(4, n)", "s"]
)


@given(
    st.lists(FIELDS, min_size=1, max_size=2, unique=True),
    st.lists(SMALL, min_size=1, max_size=12),
    st.lists(CONDITIONS, min_size=1, max_size=3),
    st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
    st.integers(1, 6),
    st.integers(0, 9),
    NUMBERS,
    st.text("ab", max_size=2),
)
def test_pruning_by_transforms_never_loses_a_row(  # noqa: PLR0917 - what is drawn
    fields: list[str],
    rows: list[dict[str, object]],
    conditions: list[str],
    op: str,
    day: int,
    hour: int,
    n: int,
    s: str,
) -> None:
    uris = [f"memory://partition-fields-{next(NAMES)}" for _ in range(2)]
    kinds = {name: KINDS[name] for name in ("at", "n", "s")}
    data = pa.table(
        [from_raws([row[name] for row in rows], kind) for name, kind in kinds.items()],
        names=list(kinds),
    ).append_column("row", pa.array(range(len(rows))))
    where = " AND ".join(
        f"({each.format(op=op, day=day, hour=hour, n=n, s=s)})" for each in conditions
    )
    found = []
    for uri, partition_by in zip(uris, (fields, []), strict=True):
        table = Table.create(uri, data.schema, partition_by=partition_by)
        table.append(data)
        found.append(sorted(table.scan(where=where).to_arrow()["row"].to_pylist()))
        forget(uri)
    assert found[0] == found[1]
