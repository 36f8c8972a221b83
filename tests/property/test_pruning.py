"""Pruning leaves out only what a full scan would not have given."""

from __future__ import annotations

import datetime as dt
import itertools

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.expr.tree import (
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Predicate,
    all_of,
    any_of,
)
from plait.files.data_file import Place
from plait.files.writer import DataFileWriter
from plait.model.bucket import BucketSpec
from plait.model.changes import BASE
from plait.model.plan import COW, LIVE, Snapshot, TableLayout, TableSpec
from plait.model.schema import Schema
from plait.model.value import to_text
from plait.read.scan import Scan
from plait.storage.memory import MemoryStore
from tests.support.effort import share
from tests.support.expressions import filtered

KINDS = {
    "id": pa.int64(),
    "part": pa.string(),
    "text": pa.string(),
    "real": pa.float64(),
    "day": pa.date32(),
    "flag": pa.bool_(),
}
SMALL_TEXT = st.text('ab%_\\"é', max_size=3)
VALUES = {
    "id": st.integers(-5, 5),
    "part": SMALL_TEXT,
    "text": SMALL_TEXT | st.just("b" * 70),
    "real": st.sampled_from([-1.5, -0.0, 0.0, 1.0, float("inf"), float("nan")]),
    "day": st.dates(dt.date(2026, 1, 1), dt.date(2026, 1, 5)),
    "flag": st.booleans(),
}
ROWS = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
FILES = st.lists(st.lists(ROWS, min_size=1, max_size=6), min_size=1, max_size=4)
SPEC = TableSpec(
    Schema.create(pa.schema(list(KINDS.items()))),
    TableLayout(("part",), BucketSpec(0, (), 1), None, COW),
)
NUMBERS = itertools.count()


def value_of(name: str, raw: object) -> Literal:
    text = to_text(pa.scalar(raw, KINDS[name]), KINDS[name])
    assert text is not None
    return Literal(text, KINDS[name])


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(sorted(KINDS)))
    column = Column((name,), KINDS[name])
    kind = draw(st.sampled_from(["compare", "in", "null", "like"]))
    if kind == "null":
        return IsNull(column, draw(st.booleans()))
    if kind == "like" and name in ("part", "text"):
        return Like(column, draw(st.text("ab%_", max_size=3)), draw(st.booleans()))
    if kind == "in":
        raws = draw(st.lists(VALUES[name], min_size=1, max_size=3))
        values = tuple(dict.fromkeys(value_of(name, raw) for raw in raws))
        return In(column, values, draw(st.booleans()))
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
    return Compare(column, op, value_of(name, draw(VALUES[name])))


PREDICATES = st.recursive(
    leaves(),
    lambda inner: st.builds(
        lambda items, every: all_of(*items) if every else any_of(*items),
        st.lists(inner, min_size=1, max_size=3),
        st.booleans(),
    ),
    max_leaves=6,
)


@settings(max_examples=share(150), deadline=None)
@given(FILES, PREDICATES, st.integers(1, 3))
def test_scan_with_pruning_gives_what_a_filter_of_all_rows_gives(
    files: list[list[dict[str, object]]], where: Predicate, group_rows: int
) -> None:
    store = MemoryStore(f"memory://pruning-{next(NUMBERS)}")
    records, every = [], []
    for number, rows in enumerate(files):
        part = rows[0]["part"]
        table = pa.Table.from_pylist([{**r, "part": part} for r in rows], SPEC.schema.arrow)
        text = to_text(pa.scalar(part, pa.string()), pa.string())
        place = Place(f"data/{number}.parquet", (text,), -1, BASE)
        with DataFileWriter(store, place, SPEC, group_rows=group_rows) as writer:
            writer.write(table)
            records.append({**writer.close().to_pylist()[0], "version": 1, "masked": 0})
        every.append(table)
    live = pa.Table.from_pylist(records, schema=LIVE)
    scan = Scan(store, Snapshot(1, SPEC, {0: SPEC.schema}, live), where=where)
    expected = filtered(pa.concat_tables(every), where)
    assert sorted(map(str, scan.to_arrow().to_pylist())) == sorted(map(str, expected.to_pylist()))
    assert scan.count() == expected.num_rows
