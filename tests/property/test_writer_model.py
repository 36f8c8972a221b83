"""A table against a dict: any sequence of operations, whatever is flushed when (INV-08)."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.arrow.clauses import partial
from plait.errors import DuplicateKeyError
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

keyed_rows = st.fixed_dictionaries(
    {
        "id": st.integers(-2, 9),
        "k": st.sampled_from(["", "\0", "a", "a\0", "b" * 30]),
        "p": st.sampled_from(["x", "y/ü"]),
        "rank": st.one_of(st.none(), st.integers(0, 3)),
    }
)
batches = st.lists(st.lists(keyed_rows, max_size=12), max_size=4)
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("upsert", "changes", "changes", "partial", "delete", "where", "insert", "skip"),
                *("replace", "dynamic", "some"),
            ]
        ),
        batches,
        st.integers(-2, 9),
        st.booleans(),
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


def apply(table: LiveTable, model: Model, step: tuple[str, list[list[Row]], int, bool]) -> None:
    """Do one step to both; they must agree on whether it is allowed."""
    operation, parts, bound, placed = step
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
    else:
        overwrite(table, model, step)


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


def overwrite(table: LiveTable, model: Model, step: tuple[str, list[list[Row]], int, bool]) -> None:
    """Do an overwrite of some kind to both."""
    operation, parts, bound, _ = step
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
    for operation, parts, bound, placed in work:
        marked = [[{**row, "v": next(numbers)} for row in part] for part in parts]
        apply(table, model, (operation, marked, bound, placed))
        found = sorted(table.rows(), key=repr)
        assert found == sorted(
            ({n: r[n] for n in SCHEMA.names} for r in model.rows.values()), key=repr
        )
