"""Bad input is refused before anything is written: the error names column, row and remedy."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from plait.arrow import check
from plait.arrow.check import prepare
from plait.errors import BadRecordError, OptionError, SchemaMismatchError
from plait.model.bucket import BucketSpec
from plait.model.instant import Operation
from plait.model.plan import COW, TableLayout, TableSpec
from plait.model.schema import Schema
from plait.read.condition import Condition

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("must", pa.int32(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("rank", pa.float64()),
        pa.field("day", pa.string()),
    ]
)


def spec_of(*key: str, partition_by: tuple[str, ...] = ()) -> TableSpec:
    return TableSpec(
        Schema.create(SCHEMA), TableLayout(partition_by, BucketSpec(0, key, 2), "rank", COW)
    )


def rows(**columns: object) -> pa.Table:
    return pa.table({"id": [1, 2], "must": pa.array([1, 2], pa.int32()), **columns})


def prepared(data: object, operation: Operation = Operation.INSERT) -> pa.Table:
    return pa.Table.from_batches(prepare(data, spec_of("id"), operation))


def test_rows_come_in_the_schema_of_the_table_whatever_their_order() -> None:
    found = prepared(pa.table({"must": [1], "id": [7]}))
    assert found.schema.equals(Schema.create(SCHEMA).arrow, check_metadata=True)
    assert found.to_pylist()[0] == {
        **dict.fromkeys(SCHEMA.names),
        "must": 1,
        "id": 7,
    }


@pytest.mark.parametrize(
    "data",
    [
        rows(),
        rows().to_batches()[0],
        rows().to_reader(),
        rows().to_pandas(),
        pl.DataFrame(rows()),
        rows().to_pandas().query("id > 0").set_index("id"),
        rows().to_pandas()[lambda frame: frame.id > 0],
    ],
    ids=["table", "batch", "reader", "pandas", "polars", "indexed", "filtered"],
)
def test_every_kind_of_arrow_data_is_taken(data: object) -> None:
    assert prepared(data)["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize("data", [[{"id": 1}], {"id": [1]}, 7])
def test_other_data_is_refused_with_a_way_out(data: object) -> None:
    with pytest.raises(OptionError) as caught:
        prepared(data)
    assert "pyarrow" in caught.value.hint or "__arrow_c_stream__" in caught.value.hint


@pytest.mark.parametrize(
    ("data", "column", "hint"),
    [
        pytest.param(rows(naem=["a", "b"]), "naem", "'name'", id="unknown, with the nearest"),
        pytest.param(rows().drop_columns(["must"]), "must", "", id="missing, and never null"),
        pytest.param(rows().drop_columns(["id"]), "id", "", id="missing, and of the key"),
        pytest.param(
            pa.Table.from_arrays([pa.array([1])] * 3, ["id", "must", "id"]), "id", "", id="twice"
        ),
        pytest.param(rows(at=pa.array([1, 2], pa.timestamp("us"))), "at", "zone", id="a type"),
    ],
)
def test_columns_that_do_not_fit_are_refused_with_what_to_do(
    data: pa.Table, column: str, hint: str
) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        prepared(data)
    assert caught.value.column == column
    assert list(caught.value.nearest) == (["name"] if column == "naem" else [])
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("columns", "column"),
    [
        ({"id": pa.array([1, None])}, "id"),
        ({"must": pa.array([None, 1], pa.int32()), "name": ["x" * 10_000] * 2}, "must"),
        ({"rank": pa.array([0.5, float("nan")])}, "rank"),
        ({"must": pa.array([1, 2**40])}, "must"),
    ],
    ids=["a key's null", "a null, and a long text", "nan", "a value that its type does not hold"],
)
def test_values_that_no_row_may_have_are_refused_with_a_short_sample(
    columns: dict[str, object], column: str
) -> None:
    with pytest.raises(BadRecordError) as caught:
        prepared(pa.table({**dict(zip(["id", "must"], rows().columns, strict=True)), **columns}))
    assert caught.value.column == column
    assert caught.value.sample
    assert all(len(text) <= 40 for text in caught.value.sample.values())


def test_a_table_is_checked_to_the_last_row_before_the_first_is_given() -> None:
    count = 5_000
    table = pa.table({"id": range(count), "must": [1] * (count - 1) + [2**40]})
    with pytest.raises(BadRecordError) as caught:
        prepare(table, spec_of("id"), Operation.INSERT, piece_bytes=1 << 12)
    assert caught.value.sample == {"must": str(2**40), "id": str(count - 1)}


@pytest.mark.parametrize(
    ("must", "passes"),
    [(pa.int32(), 1), (pa.int64(), 2)],
    ids=["checked once", "cast again, so that no copy of the whole is held"],
)
def test_rows_are_prepared_once_unless_a_copy_of_them_all_would_be_held(
    monkeypatch: pytest.MonkeyPatch, must: pa.DataType, passes: int
) -> None:
    casts: list[int] = []
    plain = check.apply

    def counted(array: pa.Array, target: pa.DataType) -> pa.Array:
        casts.append(len(array))
        return plain(array, target)

    monkeypatch.setattr(check, "apply", counted)
    count = 10_000
    columns = {
        name: pa.nulls(count, kind) for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)
    }
    columns |= {"id": pa.array(range(count)), "must": pa.array([1] * count, must)}
    pieces = list(prepare(pa.table(columns), spec_of("id"), piece_bytes=1 << 14))
    assert len(pieces) > 1
    assert sum(casts) == passes * count * len(SCHEMA)


def test_a_stream_is_checked_batch_by_batch() -> None:
    good, bad = rows(), pa.table({"id": [3], "must": pa.array([None], pa.int32())})
    stream = pa.RecordBatchReader.from_batches(
        good.schema, [*good.to_batches(), *bad.cast(good.schema).to_batches()]
    )
    batches = prepare(stream, spec_of("id"), Operation.INSERT)
    assert next(batches)["id"].to_pylist() == [1, 2]
    with pytest.raises(BadRecordError):
        next(batches)


def test_large_batches_are_given_in_bounded_pieces() -> None:
    table = pa.table({"id": range(50_000), "must": pa.array([1] * 50_000, pa.int32())})
    pieces = list(prepare(table, spec_of("id"), piece_bytes=1 << 14))
    assert max(piece.nbytes for piece in pieces) <= 1 << 16
    assert sum(piece.num_rows for piece in pieces) == 50_000


def test_a_delete_takes_key_columns_and_leaves_others_out() -> None:
    spec = spec_of("id", partition_by=("day",))
    alone = pa.Table.from_batches(prepare(rows(), spec, Operation.DELETE))
    assert alone.column_names == ["id"]
    placed = pa.Table.from_batches(prepare(rows(day=["a", "b"]), spec, Operation.DELETE))
    assert placed.column_names == ["id", "day"]


def test_a_delete_by_key_needs_a_key() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        prepare(rows(), spec_of(), Operation.DELETE)
    assert "where" in caught.value.hint


def test_rows_outside_of_what_is_overwritten_are_refused() -> None:
    where = Condition.of("id < 2", Schema.create(SCHEMA).arrow)
    with pytest.raises(BadRecordError) as caught:
        prepare(rows(), spec_of("id"), Operation.OVERWRITE, where=where)
    assert caught.value.sample["id"] == "2"
    kept = prepare(rows().slice(0, 1), spec_of("id"), Operation.OVERWRITE, where=where)
    assert sum(batch.num_rows for batch in kept) == 1


def test_a_frame_that_mixes_types_is_refused_naming_the_column() -> None:
    frame = pd.DataFrame({"id": [1, 2], "must": [1, 1], "name": ["a", 7]})
    with pytest.raises(BadRecordError) as caught:
        prepared(frame)
    assert caught.value.column == "name"


def test_broken_data_of_others_is_refused() -> None:
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    )
    table = pa.table({"id": [1], "must": pa.array([1], pa.int32()), "name": text})

    class Foreign:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return table.__arrow_c_stream__(requested_schema)

    with pytest.raises(BadRecordError):
        prepared(Foreign())
