"""Predicates of Arrow, Polars, DuckDB and our own select the rows that a table in memory has."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import operator
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

import plait.polars
from plait import Table
from plait.expr.implied import of_arrow
from plait.expr.tree import TRUE
from tests.support.build import make
from tests.support.effort import share
from tests.support.expressions import filtered

NAN = float("nan")
DDL = "id bigint, n int, x double, g float, s string, day date, b boolean"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.string()),
        ("day", pa.date32()),
        ("b", pa.bool_()),
    ]
)
VALUES: dict[str, list[Any]] = {
    "id": [0, 1, 2, 3, 4, 5, 6, 7],
    "n": [-(2**31), -1, 0, 1, 2**31 - 1],
    "x": [-1.5, -0.0, 0.0, 1.0, 2.0**53, float("inf"), NAN],
    "g": [-1.5, -0.0, 0.0, 0.5, NAN],
    "s": ["", "a", "ab", "b", "é"],
    "day": [dt.date(1969, 12, 31), dt.date(2026, 1, 1), dt.date(2026, 1, 2)],
    "b": [True, False],
}
ASKED: dict[str, list[Any]] = {
    **VALUES,
    "n": [*VALUES["n"], 2**31, 2**40],
    "x": [*VALUES["x"], 2**53, 0, 0.1],
    "g": [*VALUES["g"], 0.1, 0, 2**24],
}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ROWS = st.fixed_dictionaries(
    {"id": st.sampled_from(VALUES["id"])}
    | {n: st.none() | st.sampled_from(v) for n, v in VALUES.items() if n != "id"}
)
NAMES = itertools.count()


@dataclass(frozen=True, repr=False)
class Asked:
    """One predicate, as each library writes it."""

    arrow: pc.Expression
    polars: pl.Expr
    sql: str

    def __repr__(self) -> str:
        return self.sql


def literal(name: str, value: Any) -> str:
    """Write a value as SQL that DuckDB and Plait both read."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    if isinstance(value, float) and not math.isfinite(value):
        return f"CAST('{'NaN' if math.isnan(value) else 'Infinity'}' AS DOUBLE)"
    return f"'{value}'" if isinstance(value, str) else repr(value)


@st.composite
def leaves(draw: st.DrawFn) -> Asked:
    name = draw(st.sampled_from(sorted(VALUES)))
    field, column = pc.field(name), pl.col(name)
    match draw(st.sampled_from(["compare", "mirrored", "in", "null", "valid", "flag"])):
        case "null":
            return Asked(field.is_null(), column.is_null(), f"{name} IS NULL")
        case "valid":
            return Asked(field.is_valid(), column.is_not_null(), f"{name} IS NOT NULL")
        case "flag":
            return Asked(pc.field("b"), pl.col("b"), "b")
        case "in":
            few = st.lists(st.sampled_from(VALUES[name]), min_size=1, max_size=3)
            values = draw(few.filter(lambda v: NAN not in v))
            sql = f"{name} IN ({', '.join(literal(name, v) for v in values)})"
            typed = pa.array(values, SCHEMA.field(name).type)
            arrow = field.isin(typed) if draw(st.booleans()) else in_duckdb(field, typed)
            return Asked(arrow, column.is_in(values), sql)
        case how:
            value = draw(st.sampled_from(ASKED[name]))
            symbol = draw(st.sampled_from(sorted(OPERATORS)))
            apply = OPERATORS[symbol]
            if how == "mirrored":
                sides = (pc.scalar(value), field), (pl.lit(value), column)
                sql = f"{literal(name, value)} {symbol} {name}"
            else:
                sides = (field, value), (column, pl.lit(value))
                sql = f"{name} {symbol} {literal(name, value)}"
            return Asked(apply(*sides[0]), apply(*sides[1]), sql)


def in_duckdb(column: pc.Expression, values: Any) -> pc.Expression:
    """Write IN as DuckDB does: it is NULL of a null."""
    null = pa.scalar(None, pa.bool_())
    return pc.if_else(column.is_valid(), column.isin(values), null)


def combined(inner: st.SearchStrategy[Asked]) -> st.SearchStrategy[Asked]:
    return st.one_of(
        inner.map(lambda one: Asked(~one.arrow, ~one.polars, f"(NOT {one})")),
        st.tuples(inner, inner).map(
            lambda two: Asked(
                two[0].arrow & two[1].arrow,
                two[0].polars & two[1].polars,
                f"({two[0]} AND {two[1]})",
            )
        ),
        st.tuples(inner, inner).map(
            lambda two: Asked(
                two[0].arrow | two[1].arrow,
                two[0].polars | two[1].polars,
                f"({two[0]} OR {two[1]})",
            )
        ),
    )


PREDICATES = st.recursive(leaves(), combined, max_leaves=5)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "upsert", "delete", "compact", "rename"]),
        st.lists(ROWS, min_size=1, max_size=5, unique_by=lambda row: row["id"]),
    ),
    min_size=1,
    max_size=5,
)
LAYOUTS = st.fixed_dictionaries(
    {
        "table_type": st.sampled_from(["cow", "mor"]),
        "buckets": st.sampled_from([1, 3]),
        "partition_by": st.sampled_from([(), ("b",), ("day",), ("month(day)",)]),
    }
)


Steps = list[tuple[str, list[dict[str, Any]]]]


def built(layout: dict[str, Any], steps: Steps, place: str | None = None) -> Table:
    """Make a table with a history; its files have several schemas."""
    table = make(DDL, uri=place, **layout)
    for what, found in steps:
        rows = pa.Table.from_pylist(found, SCHEMA)
        if what == "upsert":
            table.upsert(rows)
        elif what == "delete":
            table.delete(keys=rows.select(["id"]))
        elif what == "compact":
            table.maintenance.compact(full=True)
        else:
            for old, new in (("s", "t"), ("t", "s")):
                table.alter.columns().rename(old, new).commit()
    return table


def spelled(rows: pa.Table | pl.DataFrame) -> list[str]:
    """Return rows as texts: NaN is NaN, and a zero keeps its sign."""
    return sorted(map(repr, rows.rows() if isinstance(rows, pl.DataFrame) else rows.to_pylist()))


@settings(max_examples=share(60))
@given(LAYOUTS, STEPS, st.lists(PREDICATES, min_size=1, max_size=4))
def test_a_pushed_predicate_selects_what_a_table_in_memory_has(
    layout: dict[str, Any], steps: Steps, asked: list[Asked]
) -> None:
    """INV-04: what is pruned has no row that the library would have selected."""
    table = built(layout, steps)
    memory = table.scan().to_arrow()
    frame = pl.DataFrame(memory)
    dataset, lazy = table.scan().to_dataset(), plait.polars.scan(table)
    connection = duckdb.connect()
    connection.register("dataset", dataset)
    connection.register("memory", memory)
    for each in asked:
        expected = memory.filter(each.arrow)
        assert spelled(table.scan(where=each.arrow).to_arrow()) == spelled(expected), each
        assert spelled(dataset.to_table(filter=each.arrow)) == spelled(expected), each
        assert dataset.count_rows(filter=each.arrow) == expected.num_rows, each
        shown = dataset.to_table(columns=["s"], filter=each.arrow)
        assert spelled(shown) == spelled(expected.select(["s"])), each
        found = lazy.filter(each.polars).collect()
        assert spelled(found) == spelled(frame.filter(each.polars)), each
        query = f"SELECT * FROM {{}} WHERE {each}"
        pushed, plain = (
            connection.execute(query.format(name)).fetchall() for name in ("dataset", "memory")
        )
        assert sorted(map(repr, pushed)) == sorted(map(repr, plain)), each
        ours = table.scan(where=each.sql)
        assert ours.count() == ours.to_arrow().num_rows, each
        splits = ours.splits(size_bytes=1)
        assert sorted(itertools.chain(*(spelled(split.to_arrow()) for split in splits))) == spelled(
            ours.to_arrow()
        ), each


@settings(max_examples=share(40))
@given(LAYOUTS, STEPS, st.lists(PREDICATES, min_size=1, max_size=4))
def test_another_reader_of_the_files_selects_what_a_table_in_memory_has(
    layout: dict[str, Any], steps: Steps, asked: list[Asked]
) -> None:
    """INV-04: DuckDB and Polars read the files of a disk themselves, and skip some by their own."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        table = built(layout, steps, folder)
        memory = table.scan().to_arrow()
        frame, lazy = pl.DataFrame(memory), plait.polars.scan(table)
        table.scan().to_duckdb(connection).create_view("files")
        connection.register("memory", memory)
        assert lazy.collect_schema() == frame.schema
        assert lazy.select(pl.len()).collect().item() == frame.height
        for each in asked:
            wanted, found = frame.filter(each.polars), lazy.filter(each.polars)
            assert spelled(found.collect(engine="streaming")) == spelled(wanted), each
            assert spelled(found.collect(engine="in-memory")) == spelled(wanted), each
            assert spelled(found.select("g", "id").collect()) == spelled(wanted.select("g", "id"))
            assert found.head(1).collect().height == min(1, wanted.height), each
            assert found.select(pl.len()).collect().item() == wanted.height, each
            query = f"SELECT * FROM {{}} WHERE {each}"
            pushed, plain = (
                connection.execute(query.format(name)).fetchall() for name in ("files", "memory")
            )
            assert sorted(map(repr, pushed)) == sorted(map(repr, plain)), each


@given(PREDICATES, st.lists(ROWS, max_size=6))
def test_what_follows_is_true_of_each_row_that_arrow_selects(
    asked: Asked, rows: list[dict[str, Any]]
) -> None:
    """Judged row by row, without files: of the predicate, and of its negation."""
    table = make(DDL, record_key=())
    memory = pa.Table.from_pylist(rows, SCHEMA).append_column("at", pa.array(range(len(rows))))
    known = of_arrow(asked.arrow, table.schema)
    for expression, follows in ((asked.arrow, known.true), (~asked.arrow, known.false)):
        chosen = set(memory.filter(expression)["at"].to_pylist())
        implied = set(filtered(memory, follows)["at"].to_pylist())
        assert chosen <= implied


def test_most_of_what_is_pushed_is_understood() -> None:
    """Else every other test would hold although nothing was pruned."""
    schema = make(DDL).schema
    for expression in (
        pc.field("id") == 3,
        pc.scalar(3) < pc.field("n"),
        ~(pc.field("s") >= "a"),
        pc.field("s").isin(["a", "b"]),
        pc.field("day") > dt.date(2026, 1, 1),
        pc.field("b"),
        ~pc.field("b"),
        pc.field("x").is_null(),
        pc.field("x") > 1.5,
        pc.field("g") != 0.5,
        (pc.field("id") == 1) & (pc.field("x") + 1 > 2),
        in_duckdb(pc.field("id"), [1, 2]),
        ~in_duckdb(pc.field("id"), [1, 2]),
    ):
        assert of_arrow(expression, schema).true != TRUE, expression


def test_what_is_not_understood_prunes_nothing() -> None:
    schema = make(DDL).schema
    for expression in (
        pc.field("x") > NAN,
        ~(pc.field("x") > 1),
        ~pc.field("x").isin([0.0]),
        pc.field("g") == 0.1,
        pc.field("g") == 2**24 + 1,
        pc.field("x") == 2**53 + 1,
        pc.field("id") == 0.5,
        pc.field("x").is_null(nan_is_null=True),
        pc.field("n").cast(pa.string()) == "1",
        pc.field("id") == pc.field("n"),
        (pc.field("id") == 1) | (pc.field("x") + 1 > 2),
        pc.field("nowhere") == 1,
        pc.if_else(pc.field("b"), pc.field("id") == 1, pc.scalar(True)),
        pc.if_else(pc.field("b"), pc.scalar(value=None), pc.field("id") == 1),
    ):
        assert of_arrow(expression, schema).true == TRUE, expression
