"""Updates and merges against a dict: any clauses, whatever is flushed when (INV-08)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.arrow.clauses import parsed
from plait.model.clauses import Clauses, Delete, Insert, Update
from tests.support.effort import share
from tests.support.livetable import LiveTable

SCHEMA = pa.schema([("v", pa.int64()), ("id", pa.int64()), ("p", pa.string()), ("w", pa.int64())])
SOURCE = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("op", pa.string())])
_NUMBERS = itertools.count()
Row = dict[str, Any]
Rows = dict[tuple[str, int], Row]


def less(one: int | None, other: int | None) -> bool:
    """Compare as SQL does: with null nothing is true."""
    return one is not None and other is not None and one < other


def plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


WHERE: dict[str, Callable[[Row], bool]] = {
    "true": lambda _: True,
    "v < 3": lambda t: less(t["v"], 3),
    "w is null and p = 'x'": lambda t: t["w"] is None and t["p"] == "x",
    "id in (1, 2, 5)": lambda t: t["id"] in (1, 2, 5),
}
CHANGES: list[tuple[dict[str, object], Callable[[Row], Row]]] = [
    ({"v": "v + id"}, lambda t: {"v": plus(t["v"], t["id"])}),
    ({"w": "coalesce(w, 0) - 1"}, lambda t: {"w": (t["w"] or 0) - 1}),
    ({"v": "w", "w": "v"}, lambda t: {"v": t["w"], "w": t["v"]}),
    ({"v": "case when v < 3 then null else 9 end"}, lambda t: {"v": 9 if over(t) else None}),
]


def over(row: Row) -> bool:
    return not less(row["v"], 3)


Pair = Callable[[Row, Row], Row | None]
Asked = Callable[[Row, Row], bool]
MATCHED: list[tuple[Update | Delete, Asked, Pair]] = [
    (Update(), lambda _s, _t: True, lambda s, _t: {"v": s["v"]}),
    (Delete(when="s.op = 'd'"), lambda s, _t: s["op"] == "d", lambda _s, _t: None),
    (
        Update({"v": "t.v + s.v", "w": "t.v"}, when="s.v > t.v"),
        lambda s, t: less(t["v"], s["v"]),
        lambda s, t: {"v": plus(t["v"], s["v"]), "w": t["v"]},
    ),
    (
        Update({"w": "s.id"}, when="w is null"),
        lambda _s, t: t["w"] is None,
        lambda s, _t: {"w": s["id"]},
    ),
]
NEW: list[tuple[Insert, Callable[[Row], bool], Callable[[Row], Row]]] = [
    (Insert(), lambda _: True, lambda s: {"v": s["v"], "w": None}),
    (
        Insert({"w": "v + 1"}, when="op <> 'd'"),
        lambda s: s["op"] not in (None, "d"),
        lambda s: {"v": None, "w": plus(s["v"], 1)},
    ),
]
LEFT: list[tuple[Update | Delete, Callable[[Row], bool], Callable[[Row], Row | None]]] = [
    (Delete(when="v < 2"), lambda t: less(t["v"], 2), lambda _: None),
    (
        Update({"w": "t.id * 2"}, when="t.p = 'x'"),
        lambda t: t["p"] == "x",
        lambda t: {"w": t["id"] * 2},
    ),
]

numbers = st.one_of(st.none(), st.integers(0, 6))
keys = st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 7))
sources = st.dictionaries(keys, st.tuples(numbers, st.sampled_from([None, "d", "u"])), max_size=12)
upserts = st.tuples(
    st.just("upsert"), st.dictionaries(keys, st.tuples(numbers, numbers), max_size=12)
)
updates = st.tuples(
    st.just("update"),
    st.tuples(st.sampled_from(sorted(WHERE)), st.sampled_from(range(len(CHANGES)))),
)
merges = st.tuples(
    st.just("merge"),
    st.tuples(
        sources,
        st.lists(st.sampled_from(range(len(MATCHED))), max_size=3),
        st.lists(st.sampled_from(range(len(NEW))), max_size=2),
        st.lists(st.sampled_from(range(len(LEFT))), max_size=2),
    ).filter(lambda each: any(each[1:])),
)
definitions = st.fixed_dictionaries(
    {
        "table_type": st.sampled_from(["cow", "mor"]),
        "key": st.sampled_from([["id"], ["p", "id"]]),
        "partition_by": st.just(["p"]),
        "ordering": st.sampled_from([None, "w"]),
        "buckets": st.sampled_from([1, 3]),
    }
)


def upsert(table: LiveTable, model: Rows, given_rows: dict[Any, Any]) -> None:
    rows = [{"id": i, "p": p, "v": v, "w": w} for (p, i), (v, w) in given_rows.items()]
    table.write("overwrite", pa.Table.from_pylist(rows, schema=SCHEMA), overwrite="partitions")
    for place in {row["p"] for row in rows}:
        for key in [key for key in model if key[0] == place]:
            del model[key]
    model.update({(row["p"], row["id"]): row for row in rows})


def update(table: LiveTable, model: Rows, where: str, number: int) -> None:
    values, change = CHANGES[number]
    clauses = parsed(Clauses(by_source=(Update(values),), merges=False))
    status = table.write("update", where=where, clauses=clauses)  # type: ignore[arg-type]
    hit = [row for row in model.values() if WHERE[where](row)]
    for row in hit:
        row.update(change(row))
    assert status.stats.rows_updated == len(hit)


def merge(table: LiveTable, model: Rows, work: tuple[Any, ...], parts: int) -> None:
    given_rows, matched, fresh, left = work
    source = {(p, i): {"id": i, "p": p, "v": v, "op": op} for (p, i), (v, op) in given_rows.items()}
    clauses = Clauses(
        tuple(MATCHED[n][0] for n in matched),
        tuple(NEW[n][0] for n in fresh),
        tuple(LEFT[n][0] for n in left),
    )
    rows = pa.Table.from_pylist(list(source.values()), schema=SOURCE)
    size = max(1, rows.num_rows // parts)
    pieces = [rows.slice(at, size) for at in range(0, max(1, rows.num_rows), size)]
    status = table.write("merge", *pieces, clauses=parsed(clauses))  # type: ignore[arg-type]
    expected = _merged(model, source, work)
    stats = status.stats
    assert (stats.rows_inserted, stats.rows_updated, stats.rows_deleted) == expected


def _merged(model: Rows, source: Rows, work: tuple[Any, ...]) -> tuple[int, int, int]:
    _, matched, fresh, left = work
    inserted = updated = deleted = 0
    before = set(model)
    for key, row in list(model.items()):
        incoming = source.get(key)
        found: list[Row | None] = (
            [make(row) for _, when, make in (LEFT[n] for n in left) if when(row)]
            if incoming is None
            else [
                do(incoming, row)
                for _, when, do in (MATCHED[n] for n in matched)
                if when(incoming, row)
            ]
        )
        if not found:
            continue
        if found[0] is None:
            del model[key]
            deleted += 1
        else:
            model[key] = {**row, **found[0]}
            updated += 1
    for key, incoming in source.items():
        rows = [make(incoming) for _, when, make in (NEW[n] for n in fresh) if when(incoming)]
        if rows and key not in before:
            model[key] = {"id": incoming["id"], "p": incoming["p"], **rows[0]}
            inserted += 1
    return inserted, updated, deleted


@given(
    definition=definitions,
    size=st.sampled_from([1, 500, 1 << 20]),
    parts=st.integers(1, 3),
    first=upserts,
    work=st.lists(st.one_of(upserts, updates, merges), min_size=1, max_size=4),
)
@settings(max_examples=share(60))
def test_updates_and_merges_leave_what_a_dict_would(
    definition: dict[str, Any], size: int, parts: int, first: Any, work: list[Any]
) -> None:
    options = {"write.buffer.size": size, "write.bucket.size": size}
    table = LiveTable(f"memory://merges-{next(_NUMBERS)}", SCHEMA, options=options, **definition)
    model: Rows = {}
    for name, given_work in [first, *work]:
        if name == "upsert":
            upsert(table, model, given_work)
        elif name == "update":
            update(table, model, *given_work)
        else:
            merge(table, model, given_work, parts)
        found = sorted(table.rows(), key=repr)
        assert found == sorted(({n: r[n] for n in SCHEMA.names} for r in model.values()), key=repr)
