"""The rows of a write are checked and brought to the table's types once, whoever takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait import Insert, Table, Update
from plait.arrow import check
from plait.arrow.check import prepare, prepare_all
from plait.errors import BadRecordError, SchemaMismatchError
from plait.model.instant import Operation
from plait.replicate import Replicas, TableSink
from tests.support.memory import forget

SCHEMA = "id bigint, day string, v bigint"
SMALL = {"write.buffer.size": "4MiB", "write.bucket.size": "1MiB"}
"""A chunk is 64 KiB, so that the rows are prepared in many pieces."""


def rows(*ids: int, v: int = 0) -> pa.Table:
    """Return rows whose values the table keeps in wider types."""
    narrow = pa.schema([("id", pa.int32()), ("day", pa.string()), ("v", pa.int32())])
    columns = {"id": list(ids), "day": [str(i % 3) for i in ids], "v": [v] * len(ids)}
    return pa.table(columns, schema=narrow)


MANY = rows(*range(20_000))

WRITES: dict[str, Callable[[Table, pa.Table], object]] = {
    "append": lambda t, data: t.append(data),
    "insert": lambda t, data: t.insert(data),
    "upsert": lambda t, data: t.upsert(data),
    "upsert of some columns": lambda t, data: t.upsert(
        data.select(["id", "day"]), missing_columns="keep"
    ),
    "overwrite": lambda t, data: t.overwrite(data),
    "overwrite of what matches": lambda t, data: t.overwrite(data, where="v = 0"),
    "overwrite of partitions": lambda t, data: t.overwrite(data, partitions="dynamic"),
    "delete": lambda t, data: t.delete(keys=data.select(["id", "day"])),
    "merge": lambda t, data: t.merge(data, matched=[Update({"v": "s.v"})], not_matched=[Insert()]),
    "rows with a new column": lambda t, data: t.upsert(
        data.append_column("w", data["v"]), evolve="add"
    ),
}

COMPUTING = ("merge", "upsert of some columns")
"""Their clauses compute a row of the table from each that came, and that one is prepared too."""


@pytest.fixture
def uri(request: pytest.FixtureRequest) -> str:
    made = f"memory://{request.node.name}"
    forget(made)
    return made


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of rows of each batch that was brought to the types of a table."""
    counts: list[int] = []
    typed = check._Checker._typed

    def counting(self: check._Checker, batch: pa.RecordBatch) -> pa.RecordBatch:
        counts.append(batch.num_rows)
        return typed(self, batch)

    monkeypatch.setattr(check._Checker, "_typed", counting)
    return counts


@pytest.mark.parametrize("name", WRITES)
def test_each_row_of_a_write_is_prepared_once(uri: str, prepared: list[int], name: str) -> None:
    keyed = {} if name == "append" else {"record_key": "id"}
    t = Table.create(uri, SCHEMA, partition_by="day", properties=SMALL, **keyed)
    WRITES[name](t, MANY)
    assert len(prepared) > 1
    computed = MANY.num_rows if name in COMPUTING else 0
    assert sum(prepared) == MANY.num_rows + computed


def test_each_row_of_a_dual_write_is_prepared_once_by_the_table(
    uri: str, prepared: list[int]
) -> None:
    """The sink is a table too, and prepares them for itself."""
    t, sink = (
        Table.create(f"{uri}{end}", SCHEMA, partition_by="day", record_key="id", properties=SMALL)
        for end in ("", "-eu")
    )
    replicas = Replicas([TableSink("eu", f"{uri}-eu")], batch_size=1_000)
    with t.writer("upsert", replicas=replicas) as w:
        w.write(MANY)
    assert sum(prepared) == 2 * MANY.num_rows
    assert t.scan().count() == sink.scan().count() == MANY.num_rows
    forget(f"{uri}-eu")


def test_rows_are_prepared_again_for_columns_that_changed_meanwhile(
    uri: str, prepared: list[int]
) -> None:
    t = Table.create(uri, SCHEMA, record_key="id")
    t.upsert(rows(1))
    Table.open(uri).alter.columns().add("w", "bigint", default=7).commit()
    prepared.clear()
    t.insert(rows(2, 3, v=1))
    assert sum(prepared) == 2 * 2
    assert t.scan().to_arrow().sort_by("id").to_pydict() == {
        "id": [1, 2, 3],
        "day": ["1", "2", "0"],
        "v": [0, 1, 1],
        "w": [7, 7, 7],
    }


def test_prepared_rows_are_given_once_and_to_their_layout_alone(uri: str) -> None:
    t = Table.create(uri, SCHEMA, record_key="id")
    spec = t._handle.cache.known().table.spec
    held = prepare_all(MANY, spec, Operation.UPSERT, piece_bytes=1 << 12)
    assert len(held.batches) > 1
    keys = pa.Table.from_batches(prepare(held, spec, Operation.DELETE))
    assert keys.column_names == ["id"]
    for other in (replace(spec, rejects_nan_in="v"), replace(spec, unique="table")):
        again = pa.Table.from_batches(prepare(held, other, Operation.UPSERT))
        assert again.num_rows == MANY.num_rows
    assert len(held.batches) > 1
    given = pa.Table.from_batches(prepare(held, spec, Operation.UPSERT))
    assert not held.batches
    assert given.equals(pa.Table.from_batches(prepare(held, spec, Operation.UPSERT)))
    assert pc.sum(given["id"]).as_py() == sum(range(20_000))


def test_rows_that_do_not_match_the_overwrite_are_refused_and_none_are_checked_all_the_same(
    uri: str,
) -> None:
    t = Table.create(uri, SCHEMA, record_key="id")
    with pytest.raises(BadRecordError, match="does not match the predicate"):
        t.overwrite(rows(1, 2), where="id = 1")
    assert t.upsert(MANY.slice(0, 0)).version == 0
    with pytest.raises(SchemaMismatchError):
        t.upsert(MANY.slice(0, 0).rename_columns(["id", "day", "other"]))
