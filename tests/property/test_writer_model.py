"""A table against a dict: any operations and clauses, whatever is flushed when (INV-08)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.arrow.clauses import parsed, partial
from plait.errors import DuplicateKeyError
from plait.model.clauses import Clauses, Delete, Insert, Update
from tests.support.effort import share
from tests.support.livetable import LiveTable

SCHEMA = pa.schema(
    [
        ("v", pa.int64()),
        ("id", pa.int64()),
        ("k", pa.string()),
        ("p", pa.string()),
        ("rank", pa.int32()),
    ]
)
_NUMBERS = itertools.count()
Row = dict[str, Any]


def less(one: int | None, other: int | None) -> bool:
    """Compare as SQL does: with null nothing is true."""
    return one is not None and other is not None and one < other


def plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


Make = Callable[[Row, Row], Row | None]
"""What becomes of a row of the table, given the source's; None: it goes."""
Asked = Callable[[Row, Row], bool]
UPDATES: list[tuple[dict[str, object], Callable[[Row], Row]]] = [
    ({"v": "v + id"}, lambda t: {"v": plus(t["v"], t["id"])}),
    ({"v": "coalesce(v, 0) - 1"}, lambda t: {"v": (t["v"] or 0) - 1}),
    ({"v": "id", "rank": "1"}, lambda t: {"v": t["id"], "rank": 1}),
    (
        {"v": "case when v < 9 then null else 9 end"},
        lambda t: {"v": None if less(t["v"], 9) else 9},
    ),
]
MATCHED: list[tuple[Update | Delete, Asked, Make]] = [
    (Update(), lambda _s, _t: True, lambda s, _t: s),
    (Delete(when="s.rank = 3"), lambda s, _t: s["rank"] == 3, lambda _s, _t: None),
    (
        Update({"v": "t.v + s.v", "rank": "t.rank"}, when="s.v > t.v"),
        lambda s, t: less(t["v"], s["v"]),
        lambda s, t: {"v": plus(t["v"], s["v"])},
    ),
    (
        Update({"v": "s.id"}, when="t.v is null"),
        lambda _s, t: t["v"] is None,
        lambda s, _t: {"v": s["id"]},
    ),
]
NEW: list[tuple[Insert, Callable[[Row], bool], Callable[[Row], Row]]] = [
    (Insert(), lambda _: True, lambda s: s),
    (
        Insert({"v": "v + 1"}, when="rank <> 3"),
        lambda s: s["rank"] not in (None, 3),
        lambda s: {"v": plus(s["v"], 1)},
    ),
]
LEFT: list[tuple[Update | Delete, Callable[[Row], bool], Callable[[Row], Row | None]]] = [
    (Delete(when="v < 9"), lambda t: less(t["v"], 9), lambda _: None),
    (
        Update({"v": "t.v * 2"}, when="t.p = 'x'"),
        lambda t: t["p"] == "x",
        lambda t: {"v": plus(t["v"], t["v"])},
    ),
]
clauses = st.tuples(
    st.lists(st.sampled_from(range(len(MATCHED))), max_size=3),
    st.lists(st.sampled_from(range(len(NEW))), max_size=2),
    st.lists(st.sampled_from(range(len(LEFT))), max_size=2),
).filter(any)

keyed_rows = st.fixed_dictionaries(
    {
        "id": st.integers(-2, 9),
        "k": st.sampled_from(["", "\0", "a", "a\0", "b" * 30]),
        "p": st.sampled_from(["x", "y/ü"]),
        "rank": st.one_of(st.none(), st.integers(0, 3)),
    }
)
batches = st.lists(st.lists(keyed_rows, max_size=12), max_size=4)
Step = tuple[str, list[list[Row]], int, bool, tuple[list[int], list[int], list[int]]]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("upsert", "changes", "changes", "partial", "delete", "where", "insert", "skip"),
                *("replace", "dynamic", "some", "update", "merge", "merge"),
            ]
        ),
        batches,
        st.integers(-2, 9),
        st.booleans(),
        clauses,
    ),
    min_size=1,
    max_size=5,
)
definitions = st.fixed_dictionaries(
    {
        "table_type": st.sampled_from(["cow", "mor"]),
        "key": st.sampled_from([["id"], ["k"], ["id", "k"], ["k", "id"], ["p", "id"]]),
        "partition_by": st.sampled_from([[], ["p"]]),
        "ordering": st.sampled_from([None, "rank"]),
        "buckets": st.sampled_from([1, 3]),
    }
)
sizes = st.sampled_from([1, 300, 3_000, 1 << 20])


class Model:
    """What the table should hold: one row a key and partition."""

    def __init__(self, table: LiveTable) -> None:
        self.spec = table.spec
        self.rows: dict[tuple[Any, ...], Row] = {}

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[c] for c in (*self.spec.layout.partition_by, *self.spec.key))

    def newest(self, rows: list[Row], onto: dict[tuple[Any, ...], Row]) -> dict[Any, Row]:
        found = dict(onto)
        for row in rows:
            before = found.get(self.key(row))
            if before is None or self.spec.layout.ordering is None or _rank(row) >= _rank(before):
                found[self.key(row)] = row
        return found

    def first(self, rows: list[Row]) -> dict[Any, Row]:
        """Of rows of one key the first, unless the ordering column chooses."""
        if self.spec.layout.ordering is not None:
            return self.newest(rows, {})
        return {self.key(row): row for row in reversed(rows)}

    def twice(self, rows: list[Row]) -> bool:
        """Whether rows have one key, and nothing chooses one."""
        found = {self.key(row) for row in rows}
        return self.spec.layout.ordering is None and len(found) < len(rows)

    def partial(self, rows: list[Row], lacking: str) -> None:
        """Rows without a column leave it as it is."""
        for key, row in self.newest(rows, {}).items():
            before = self.rows.get(key)
            if before is None:
                self.rows[key] = {**row, lacking: None}
            elif self.newest([row], {key: before})[key] is row:
                self.rows[key] = {**row, lacking: before[lacking]}


def _rank(row: Row) -> int:
    return -1 if row["rank"] is None else int(row["rank"])


def _below(row: Row, bound: int) -> bool:
    """Whether ``id < bound`` holds; of a partial upsert's new row the id may be null."""
    return row["id"] is not None and row["id"] < bound


def _tables(parts: list[list[Row]], columns: list[str] | None = None) -> list[pa.Table]:
    tables = [pa.Table.from_pylist(part, schema=SCHEMA) for part in parts]
    return [table if columns is None else table.select(columns) for table in tables]


def apply(table: LiveTable, model: Model, step: Step) -> None:
    """Do one step to both; they must agree on whether it is allowed."""
    operation, parts, bound, placed, _ = step
    rows = [row for part in parts for row in part]
    if operation == "upsert":
        table.write("upsert", *_tables(parts))
        model.rows = model.newest(rows, model.rows)
    elif operation == "changes":
        change(table, model, parts, removes=placed)
    elif operation == "partial":
        needed = {*table.spec.key, *table.spec.layout.partition_by, table.spec.layout.ordering}
        others = sorted(set(SCHEMA.names) - needed)
        lacking = others[bound % len(others)]
        columns = [name for name in SCHEMA.names if name != lacking]
        clauses = partial(table.spec)
        table.write("upsert", *_tables(parts, columns), clauses=clauses)
        model.partial(rows, lacking)
    elif operation == "delete":
        columns = list(dict.fromkeys([*table.spec.key, *(table.spec.layout.partition_by * placed)]))
        table.write("delete", *_tables(parts, columns))
        gone = [tuple(row[c] for c in columns) for row in rows]
        model.rows = {
            k: row for k, row in model.rows.items() if tuple(row[c] for c in columns) not in gone
        }
    elif operation == "where":
        table.write("delete", where=f"id < {bound}")
        model.rows = {k: row for k, row in model.rows.items() if not _below(row, bound)}
    elif operation in ("insert", "skip"):
        skips = operation == "skip"
        fresh = model.first(rows) if skips else model.newest(rows, {})
        if not skips and (model.twice(rows) or fresh.keys() & model.rows.keys()):
            _refused(table, "insert", parts)
            return
        table.write("insert", *_tables(parts), on_duplicate="skip" if skips else "raise")
        model.rows = {**fresh, **model.rows}
    elif operation == "update":
        update(table, model, bound, everywhere=placed)
    elif operation == "merge":
        merge(table, model, step)
    else:
        overwrite(table, model, step)


def update(table: LiveTable, model: Model, bound: int, *, everywhere: bool) -> None:
    values, change = UPDATES[bound % len(UPDATES)]
    made = parsed(Clauses(by_source=(Update(values),), merges=False))
    where = "true" if everywhere else f"id < {bound}"
    status = table.write("update", where=where, clauses=made)
    hit = [key for key, row in model.rows.items() if everywhere or _below(row, bound)]
    model.rows |= {key: model.rows[key] | change(model.rows[key]) for key in hit}
    assert status.stats.rows_updated == len(hit)


def merge(table: LiveTable, model: Model, step: Step) -> None:
    """Merge rows, of each key the last; the counts must say what became of them."""
    _, parts, _, _, (matched, fresh, left) = step
    source = {model.key(row): row for part in parts for row in part}
    asked = Clauses(
        tuple(MATCHED[n][0] for n in matched),
        tuple(NEW[n][0] for n in fresh),
        tuple(LEFT[n][0] for n in left),
    )
    rows = list(source.values())
    pieces = _tables([rows[: len(rows) // 2], rows[len(rows) // 2 :]])
    stats = table.write("merge", *pieces, clauses=parsed(asked)).stats
    before, counts = dict(model.rows), dict.fromkeys(("inserted", "updated", "deleted"), 0)
    for key, row in before.items():
        came = source.get(key)
        found: list[Row | None] = (
            [make(row) for _, when, make in (LEFT[n] for n in left) if when(row)]
            if came is None
            else [
                make(came, row)
                for _, when, make in (MATCHED[n] for n in matched)
                if when(came, row)
            ]
        )
        if found and found[0] is None:
            del model.rows[key]
            counts["deleted"] += 1
        elif found:
            model.rows[key] = row | (found[0] or {})
            counts["updated"] += 1
    for key in source.keys() - before.keys():
        made = [NEW[n][2](source[key]) for n in fresh if NEW[n][1](source[key])]
        if made:
            kept = {*table.spec.key, *table.spec.layout.partition_by}
            blank = {name: source[key][name] if name in kept else None for name in SCHEMA.names}
            model.rows[key] = blank | made[0]
            counts["inserted"] += 1
    assert {name: getattr(stats, f"rows_{name}") for name in counts} == counts


def change(table: LiveTable, model: Model, parts: list[list[Row]], *, removes: bool) -> None:
    """Upsert and remove in turns; the counts must say what became of each key."""
    names = dict.fromkeys([*table.spec.key, *table.spec.layout.partition_by])
    came, before = [], dict(model.rows)
    for part in parts:
        came.append((removes, _tables([part], list(names) if removes else None)[0]))
        for row in part:
            if removes:
                model.rows.pop(model.key(row), None)
            else:
                model.rows = model.newest([row], model.rows)
        removes = not removes
    stats = table.change(*came).stats
    keys = {model.key(row) for part in parts for row in part}
    after = {key: model.rows[key] for key in keys & set(model.rows)}
    known = keys & set(before)
    assert stats.rows_in == sum(map(len, parts))
    assert stats.rows_inserted == len(set(after) - known)
    assert stats.rows_deleted == len(known - set(after))
    assert stats.rows_updated == sum(after[key] != before[key] for key in known & set(after))
    changed = stats.rows_inserted + stats.rows_deleted + stats.rows_updated
    assert stats.keys_unchanged == len(keys) - changed


def overwrite(table: LiveTable, model: Model, step: Step) -> None:
    """Do an overwrite of some kind to both."""
    operation, parts, bound, *_ = step
    rows = [row for part in parts for row in part]
    if operation == "replace":
        if model.twice(rows):
            _refused(table, "overwrite", parts)
            return
        table.write("overwrite", *_tables(parts))
        model.rows = model.newest(rows, {})
    elif operation == "dynamic" and table.spec.layout.partition_by:
        if model.twice(rows):
            _refused(table, "overwrite", parts, overwrite="partitions")
            return
        table.write("overwrite", *_tables(parts), overwrite="partitions")
        places = {row["p"] for row in rows}
        rest = {k: row for k, row in model.rows.items() if row["p"] not in places}
        model.rows = {**rest, **model.newest(rows, {})}
    elif operation == "some":
        parts = [[row for row in part if row["id"] < bound] for part in parts]
        rows = [row for row in rows if row["id"] < bound]
        fresh = model.newest(rows, {})
        rest = {k: row for k, row in model.rows.items() if not _below(row, bound)}
        if model.twice(rows) or fresh.keys() & rest.keys():
            _refused(table, "overwrite", parts, where=f"id < {bound}")
            return
        table.write("overwrite", *_tables(parts), where=f"id < {bound}")
        model.rows = {**rest, **fresh}


def _refused(table: LiveTable, operation: str, parts: list[list[Row]], **kind: str) -> None:
    try:
        table.write(operation, *_tables(parts), **kind)
    except DuplicateKeyError:
        return
    message = f"{operation} took keys that are there, or came twice"
    raise AssertionError(message)


@given(definition=definitions, buffer=sizes, bucket=sizes, work=steps)
@settings(max_examples=share(60))
def test_a_table_holds_what_a_dict_would(
    definition: dict[str, Any], buffer: int, bucket: int, work: list[Any]
) -> None:
    options = {"write.buffer.size": buffer, "write.bucket.size": bucket}
    uri = f"memory://model-{next(_NUMBERS)}"
    table = LiveTable(uri, SCHEMA, options=options, **definition)
    model = Model(table)
    numbers = itertools.count()
    for operation, parts, *rest in work:
        marked = [[{**row, "v": next(numbers)} for row in part] for part in parts]
        apply(table, model, (operation, marked, *rest))
        found = sorted(table.rows(), key=repr)
        assert found == sorted(
            ({n: r[n] for n in SCHEMA.names} for r in model.rows.values()), key=repr
        )
