"""Predicates mean the same as text, as a tree, as JSON, in Arrow and in pruning."""

from __future__ import annotations

import itertools
import json

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.errors import CorruptMetadataError, PredicateError, SchemaError
from plait.expr import (
    Bounds,
    Predicate,
    columns_read,
    from_json,
    key_points,
    may_match,
    negate,
    parse_ddl,
    parse_where,
    to_json,
    to_sql,
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
from tests.property.predicates import (
    LITERALS,
    OPERATORS,
    ROWS,
    SCHEMA,
    SPECS,
    VALUES,
    Row,
    Spec,
    cell,
    holds,
    leaves,
    order,
    table_of,
)
from tests.support.effort import share
from tests.support.expressions import filtered

FEW = st.lists(ROWS, max_size=6)
SOME = st.lists(ROWS, min_size=1, max_size=6)
NUMBERS = itertools.count()
PLAIN = [name for name in SCHEMA.names if name != "st"]


def chosen(predicate: Predicate, rows: list[Row]) -> list[int]:
    found: list[int] = filtered(table_of(rows), predicate)["at"].to_pylist()
    return found


@given(SPECS, FEW)
def test_evaluation_selects_what_the_book_says(spec: Spec, rows: list[Row]) -> None:
    """Three-valued logic: the negation tells FALSE from NULL."""
    predicate = parse_where(spec.sql, SCHEMA)
    assert chosen(predicate, rows) == [at for at, r in enumerate(rows) if spec.truth(r) is True]
    inverse = [at for at, r in enumerate(rows) if spec.truth(r) is False]
    assert chosen(negate(predicate), rows) == inverse


@given(SPECS, FEW)
def test_json_and_sql_give_back_the_predicate(spec: Spec, rows: list[Row]) -> None:
    predicate = parse_where(spec.sql, SCHEMA)
    assert from_json(json.loads(json.dumps(to_json(predicate))), SCHEMA) == predicate
    again = parse_where(to_sql(predicate), SCHEMA)
    assert chosen(again, rows) == chosen(predicate, rows)
    assert chosen(negate(again), rows) == chosen(negate(predicate), rows)
    assert parse_where(to_sql(again), SCHEMA) == again
    assert (columns_read(again) or set()) <= (columns_read(predicate) or set())


@given(SPECS, SOME, st.sets(st.sampled_from(PLAIN)))
def test_pruning_never_drops_a_matching_row(spec: Spec, rows: list[Row], unknown: set[str]) -> None:
    """INV-04: what is skipped holds no row that a reader asked for."""
    bounds = {}
    for name in set(PLAIN) - unknown:
        known = [row[name] for row in rows if row[name] is not None]
        ends = sorted(known, key=order) if known and not any(order(v)[0] for v in known) else [None]
        kind, nulls = SCHEMA.field(name).type, len(rows) - len(known)
        counts = (pa.array([count], pa.int64()) for count in (nulls, len(rows)))
        bounds[name] = Bounds(pa.array(ends[:1], kind), pa.array(ends[-1:], kind), *counts)
    if any(spec.truth(row) is True for row in rows):
        assert may_match(parse_where(spec.sql, SCHEMA), bounds, 1).all()


@given(SPECS, ROWS, st.sets(st.sampled_from(PLAIN)))
def test_known_values_decide_as_the_row_does(spec: Spec, row: Row, known: set[str]) -> None:
    """INV-07: a partition is ruled out only if its values rule out every row."""
    predicate = parse_where(spec.sql, SCHEMA)
    values = {name: pa.array([row[name]], SCHEMA.field(name).type) for name in known}
    found = bool(may_match(predicate, values, 1)[0])
    assert found or spec.truth(row) is not True
    if (columns_read(predicate) or set()) <= known:
        assert found is (spec.truth(row) is True)


@settings(max_examples=share(150))
@given(st.lists(SOME, min_size=1, max_size=4), SPECS, st.integers(1, 3))
def test_a_scan_that_prunes_gives_the_rows_that_match(
    files: list[list[Row]], spec: Spec, group_rows: int
) -> None:
    """INV-04: by partitions, by the bounds of files, and by those of row groups."""
    rows = [{**row, "s": part[0]["s"]} for part in files for row in part]
    whole, store = table_of(rows), MemoryStore(f"memory://pruning-{next(NUMBERS)}")
    layout = TableLayout(("s",), BucketSpec(0, (), 1), None, COW)
    table, records, start = TableSpec(Schema.create(whole.schema), layout), [], 0
    for number, part in enumerate(files):
        value = to_text(pa.scalar(part[0]["s"], pa.string()), pa.string())
        place = Place(f"data/{number}.parquet", (value,), -1, BASE)
        with DataFileWriter(store, place, table, group_rows=group_rows) as writer:
            writer.write(whole.slice(start, len(part)))
            records.append({**writer.close().to_pylist()[0], "version": 1, "masked": 0})
        start += len(part)
    live = pa.Table.from_pylist(records, schema=LIVE)
    where = parse_where(spec.sql, SCHEMA)
    scan = Scan(store, Snapshot(1, table, {0: table.schema}, live), where=where)
    wanted = [at for at, row in enumerate(rows) if spec.truth(row) is True]
    assert sorted(scan.to_arrow()["at"].to_pylist()) == wanted
    assert scan.count() == len(wanted)


KEYED = st.recursive(
    leaves(st.sampled_from(["t", "b"])),
    lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
        lambda part: Spec(f"({part[0]}) {part[1]} ({part[2]})", lambda _: None)
    ),
    max_leaves=5,
)


@given(KEYED, SOME)
def test_key_points_name_every_key_that_matches(spec: Spec, rows: list[Row]) -> None:
    predicate = parse_where(spec.sql, SCHEMA)
    points = key_points(predicate, ["t", "b"])
    for at in chosen(predicate, rows):
        assert points is None or (rows[at]["t"], rows[at]["b"]) in points


def test_every_literal_compares_with_every_value_as_the_book_says() -> None:
    """All of them, since a random walk meets few of the corners."""
    longest = max(map(len, VALUES.values())) + 1
    cycles = {name: itertools.cycle([*values, None]) for name, values in VALUES.items()}
    rows = [{name: next(cycle) for name, cycle in cycles.items()} for _ in range(longest)]
    for name, literals in LITERALS.items():
        for op, literal in itertools.product(OPERATORS, literals):
            text = f"{name} {op} {literal.sql}"
            truths = [holds(op, cell(row, name), literal.value) for row in rows]
            predicate = parse_where(text, SCHEMA)
            assert chosen(predicate, rows) == [at for at, t in enumerate(truths) if t], text
            inverse = [at for at, t in enumerate(truths) if t is False]
            assert chosen(negate(predicate), rows) == inverse, text


NAMES = st.sampled_from(
    ["and", "or", "always", "compare", "in", "null", "like", "fixed", "op", "value", "values"]
)
MORE_NAMES = NAMES | st.sampled_from(["negated", "pattern", "substrait"])
SCALARS = st.sampled_from(["id", "s", "st", "a", "=", "<", "1", "x%", "\\", True, False, None, 3])
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MORE_NAMES, inner, max_size=4),
)
SQL_WORDS = """id s f st.a day ( ) , = < <=> + - NOT AND OR IN LIKE BETWEEN IS NULL TRUE 1 2.5 'a'
'2026-01-01' DATE CAST AS INT X'00' ; -- /* ` \\ ' " . * CASE WHEN SELECT INTERVAL :: [ ] { } @ # $
? 1L"""
DDL_WORDS = "a b `c` int bigint array map struct decimal ( ) < > , : 1 10 not null comment 'x' ;"
WORDS, TYPES = st.sampled_from(SQL_WORDS.split()), st.sampled_from(DDL_WORDS.split())


@given(JSON)
def test_any_json_is_a_predicate_or_refused(value: object) -> None:
    """Metadata is untrusted: what is taken can be evaluated."""
    try:
        predicate = from_json(value, SCHEMA)
    except CorruptMetadataError:
        return
    assert chosen(predicate, []) == []
    assert from_json(to_json(predicate), SCHEMA) == predicate


@given(st.lists(WORDS, max_size=8).map(" ".join) | st.text(max_size=12))
def test_any_text_is_a_predicate_or_refused(text: str) -> None:
    try:
        predicate = parse_where(text, SCHEMA)
    except PredicateError as error:
        refused = error
    else:
        assert chosen(predicate, []) == []
        return
    assert refused.hint


@given(st.lists(TYPES, max_size=10).map(" ".join) | st.text(max_size=12))
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    try:
        schema = parse_ddl(text)
    except SchemaError as error:
        position = error.facts["position"]
    else:
        assert len(schema) > 0
        return
    assert isinstance(position, int)
    assert 0 <= position <= len(text)
