"""No repush brings NaN into an ordering column: no upsert would ever replace such a row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import RepushRefusedError, Table
from tests.support import build
from tests.support.protocol import beside
from tests.support.repush_steps import again

NAN = float("nan")


def rows(*values: tuple[int, float | None]) -> pa.Table:
    ids, scores = zip(*values, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "at": pa.array(scores, pa.float64())})


def make(**how: object) -> Table:
    return build.make("id bigint, at double", **how, upsert=rows((1, 1.0), (2, None)))


def refused(client: Table, told: str, **call: object) -> None:
    with pytest.raises(RepushRefusedError, match="'at' is NaN") as caught:
        client.layout.repush(**call)  # type: ignore[arg-type]  # as above
    assert caught.value.column == "at"
    assert told in str(caught.value)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_rows_that_nothing_could_replace_get_no_ordering(table_type: str) -> None:
    table = make(table_type=table_type)
    table.upsert(rows((1, NAN)))
    refused(table, "the table", ordering="at")
    table.layout.cancel()
    table.upsert(rows((1, 5.0)))
    table.layout.repush(ordering="at")
    table.upsert(rows((1, 4.0), (2, 0.0)))
    assert sorted(again(table).scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "at": 5.0},
        {"id": 2, "at": 0.0},
    ]


def test_rows_written_beside_a_repush_are_asked_too() -> None:
    table = make()
    client = beside(table, "repush-follow", lambda: table.upsert(rows((3, NAN))))
    refused(client, "the table", ordering="at")
    table.delete(where="id = 3")
    assert client.layout.repush(ordering="at").version is not None
    assert again(table).scan().count() == 2


@pytest.mark.parametrize("how", [{"ordering": "at"}, {}], ids=["had it", "gets it"])
def test_rows_of_a_source_are_asked(how: dict[str, object], tmp_path: Path) -> None:
    table, source = make(**how), f"parquet:{tmp_path / 'a.parquet'}"
    pq.write_table(rows((1, 2.0), (7, NAN)), tmp_path / "a.parquet")
    refused(table, source, source=source, ordering="at")
    assert again(table).scan().count() == 2


def test_an_undo_gives_no_ordering_to_rows_that_nothing_could_replace() -> None:
    table = make(ordering="at")
    table.layout.repush(ordering="")
    table.upsert(rows((1, NAN)))
    with pytest.raises(RepushRefusedError, match="'at' is NaN"):
        table.layout.undo()
    table.layout.cancel()
    table.upsert(rows((1, 0.5)))
    table.layout.undo()
    table.upsert(rows((1, 0.1)))
    assert 0.5 in again(table).scan().to_arrow()["at"].to_pylist()


def test_a_column_that_orders_nothing_may_have_them() -> None:
    table = make(ordering="at")
    table.layout.repush(ordering="")
    table.upsert(rows((1, NAN)))
    table.layout.repush(buckets=3)
    assert again(table).scan().count() == 2
