"""Generated columns against plain Python: any expressions, any writes (RFC 0031)."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait import ConstraintError, Insert, Table, Update
from tests.support.effort import share
from tests.support.memory import forget

Row: TypeAlias = dict[str, Any]
Rule: TypeAlias = tuple[str, str, Callable[[Row], object]]
NAMES = itertools.count()
KINDS = {
    "id": pa.int64(),
    "at": pa.timestamp("us"),
    "a": pa.int64(),
    "b": pa.int64(),
    "s": pa.string(),
}
DDL = "id bigint, at timestamp_ntz, a bigint, b bigint, s string"


def _both(row: Row, compute: Callable[[int, int], object]) -> object:
    return None if row["a"] is None or row["b"] is None else compute(row["a"], row["b"])


def _of(name: str, compute: Callable[[Any], object]) -> Callable[[Row], object]:
    return lambda row: None if row[name] is None else compute(row[name])


RULES: list[Rule] = [
    ("date", "day(at)", _of("at", lambda at: at.date())),
    ("date", "month(at)", _of("at", lambda at: at.date().replace(day=1))),
    ("date", "year(at)", _of("at", lambda at: at.date().replace(month=1, day=1))),
    ("bigint", "truncate(5, a)", _of("a", lambda a: a - a % 5)),
    ("string", "truncate(2, s)", _of("s", lambda s: s[:2])),
    ("bigint", "a * 3 - b", lambda row: _both(row, lambda a, b: a * 3 - b)),
    ("boolean", "a < b", lambda row: _both(row, lambda a, b: a < b)),
    (
        "bigint",
        "coalesce(a, b, -1)",
        lambda row: next((each for each in (row["a"], row["b"]) if each is not None), -1),
    ),
    (
        "string",
        "concat(s, '/', CAST(a AS string))",
        lambda row: None if None in (row["s"], row["a"]) else f"{row['s']}/{row['a']}",
    ),
    (
        "bigint",
        "CASE WHEN s = 'x' THEN a ELSE length(s) END",
        lambda row: row["a"] if row["s"] == "x" else None if row["s"] is None else len(row["s"]),
    ),
    (
        "date",
        "CASE WHEN b > 0 THEN DATE '2026-01-31' END",
        lambda row: dt.date(2026, 1, 31) if (row["b"] or 0) > 0 else None,
    ),
]
MOMENTS = st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(2040, 1, 1))  # noqa: DTZ001 - of no zone
VALUES = st.fixed_dictionaries(
    {
        "at": st.none() | MOMENTS,
        "a": st.none() | st.integers(-9, 9),
        "b": st.none() | st.integers(-9, 9),
        "s": st.none() | st.sampled_from(["", "x", "éé1", "long text"]),
    }
)
ROWS = st.dictionaries(st.integers(0, 5), VALUES, min_size=1, max_size=4)
GIVEN = st.sampled_from(["none", "some", "all", "wrong"])
STEP = st.one_of(
    st.tuples(st.sampled_from(["upsert", "merge", "overwrite"]), ROWS, GIVEN),
    st.tuples(st.just("partial"), ROWS, st.sampled_from(["a", "s", "at"])),
    st.tuples(st.just("update"), st.integers(-3, 3), st.integers(0, 5)),
    st.tuples(st.just("delete"), st.integers(0, 5), st.none()),
)


def made(row: Row, rules: list[Rule]) -> Row:
    return row | {f"g{at}": rule[2](row) for at, rule in enumerate(rules)}


def table_of(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def given_rows(
    rows: dict[int, Row], rules: list[Rule], how: str, schema: pa.Schema
) -> tuple[pa.Table, bool]:
    """Return rows that bring generated values or not, and whether they bring a wrong one."""
    whole = [made(row | {"id": key}, rules) for key, row in rows.items()]
    if how == "none":
        return table_of(whole, schema).select(list(KINDS)), False
    if how == "some":
        whole = [row | ({"g0": None} if row["id"] % 2 else {}) for row in whole]
    if how != "wrong" or whole[0]["g0"] is None:
        return table_of(whole, schema), False
    kind = schema.field("g0").type
    others = [pa.scalar(each).cast(kind) for each in _others(kind)]
    right = pa.scalar(whole[0]["g0"], kind)
    whole[0] |= {"g0": next(each.as_py() for each in others if not each.equals(right))}
    return table_of(whole, schema), True


def _others(kind: pa.DataType) -> list[object]:
    if pa.types.is_string(kind):
        return ["~", "~~"]
    if pa.types.is_boolean(kind):
        return [True, False]
    return [dt.date(1900, 1, 1), dt.date(1901, 1, 1)] if pa.types.is_date(kind) else [777, 778]


@settings(max_examples=share(60))
@given(
    st.lists(st.sampled_from(RULES), min_size=1, max_size=3),
    st.lists(STEP, min_size=1, max_size=6),
    st.sampled_from(["cow", "mor"]),
    st.booleans(),
)
def test_every_row_has_the_values_of_its_expressions(
    rules: list[Rule], steps: list[tuple[str, Any, Any]], kind: str, divided: bool
) -> None:
    """INV-03, INV-04: and what brings another value changes nothing."""
    uri = f"memory://generated-model-{next(NAMES)}"
    names = [f"g{at}" for at in range(len(rules))]
    divided = divided and rules[0][1].startswith("truncate")
    table = Table.create(
        uri,
        DDL + "".join(f", {name} {rule[0]}" for name, rule in zip(names, rules, strict=True)),
        record_key="id",
        partition_by=["g0"] if divided else (),
        generated={name: rule[1] for name, rule in zip(names, rules, strict=True)},
        unique="table" if divided else "partition",
        table_type=kind,
        buckets=2,
    )
    schema, model = pa.schema([(f.name, f.type) for f in table.schema]), dict[int, Row]()
    for step in steps:
        _do(table, step, model, rules, schema, divided=divided)
        found = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
        assert found == {key: made(row, rules) for key, row in model.items()}
    for row in list(model.values()):
        value = made(row, rules)["g0"]
        if divided and isinstance(value, int):
            same = {key for key, each in model.items() if made(each, rules)["g0"] == value}
            ids = table.scan(where=f"g0 = {value}").to_arrow()["id"].to_pylist()
            assert set(ids) == same
    assert not table.check.verify(data=True).problems
    forget(uri)


def _do(
    table: Table,
    step: tuple[str, Any, Any],
    model: dict[int, Row],
    rules: list[Rule],
    schema: pa.Schema,
    *,
    divided: bool,
) -> None:
    name, what, how = step
    if name == "delete":
        table.delete(where=f"id = {what}")
        model.pop(what, None)
        return
    if name == "update":
        if divided:
            return  # its place would change
        table.update({"a": f"b + {what}", "s": "concat(s, 'u')"}, where=f"id <= {how}")
        for key in [key for key in model if key <= how]:
            row = model[key]
            more = {"a": None if row["b"] is None else row["b"] + what}
            model[key] = row | more | {"s": None if row["s"] is None else row["s"] + "u"}
        return
    fresh = {key: row | {"id": key} for key, row in what.items()}
    if name == "partial":
        if divided:
            return
        some = table_of(list(fresh.values()), schema).select(["id", how])
        table.upsert(some, missing_columns="keep")
        for key, row in fresh.items():
            blank: Row = dict.fromkeys(KINDS) | {"id": key}
            model[key] = model.get(key, blank) | {how: row[how]}
        return
    rows, wrong = given_rows(what, rules, how, schema)
    writes: dict[str, Callable[[], object]] = {
        "upsert": lambda: table.upsert(rows),
        "overwrite": lambda: table.overwrite(rows),
        "merge": lambda: table.merge(rows, matched=[Update()], not_matched=[Insert()]),
    }
    before = table.version
    try:
        writes[name]()
    except ConstraintError:
        assert wrong
        after = [each.operation for each in table.inspect.history() if each.version > before]
        assert set(after) <= {"rollback"}  # of files of a bucket that was staged before
        return
    assert not wrong
    if name == "overwrite":
        model.clear()
    model |= fresh
