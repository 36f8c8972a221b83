"""What is set beside a repush, and whether the table can have both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import OptionError, RepushRefusedError, Table
from tests.support import build
from tests.support.protocol import beside
from tests.support.repush_steps import again

DAYS = pa.array([1, 400], pa.int32()).cast(pa.date32())
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("v", pa.int64())])


def make(**how: object) -> Table:
    return build.make(
        SCHEMA, **how, upsert=pa.table({"id": [1, 2], "day": DAYS, "v": [1, 2]}, schema=SCHEMA)
    )


Act = Callable[[Table], object]
WRITTEN = {"properties": {"rows.written": "on"}}
BESIDE: dict[str, tuple[dict[str, object], dict[str, object], Act, Act]] = {
    "sinks that cannot tell keys apart": (
        {},
        {"partition_by": "year(day)"},
        lambda table: table.replicas.add("eu=memory://repush-fitting-eu"),
        lambda table: table.replicas.remove("eu"),
    ),
    "a time to live by what is not kept": (
        WRITTEN,
        {"properties": {"rows.written": "off"}},
        lambda table: table.alter.set_ttl("written 30d row"),
        lambda table: table.alter.set_ttl(None),
    ),
    "a time to live of a column that is no partition": (
        {"partition_by": "day"},
        {"partition_by": ()},
        lambda table: table.alter.set_ttl("day 30d partition"),
        lambda table: table.alter.set_ttl(None),
    ),
    "a level of another codec": (
        {},
        {"properties": {"file.compression": "snappy"}},
        lambda table: table.alter.set({"file.compression": "gzip", "file.compression.level": 9}),
        lambda table: table.alter.set({"file.compression.level": 0}),
    ),
}
UNDONE: dict[str, tuple[dict[str, object], dict[str, object], Act, Act]] = {
    "sinks that cannot tell keys apart": (
        {"partition_by": "year(day)"},
        {"partition_by": ()},
        lambda table: table.replicas.add("eu=memory://repush-fitting-eu"),
        lambda table: table.replicas.remove("eu"),
    ),
    "a time to live of a column that was no partition": (
        {},
        {"partition_by": "day"},
        lambda table: table.alter.set_ttl("day 30d partition"),
        lambda table: table.alter.set_ttl(None),
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_set_beside_a_repush_fits_the_table_that_it_leads_to(name: str) -> None:
    """Else the swap would leave a table that nobody could create, or write."""
    how, call, act, back = BESIDE[name]
    table = make(**how)
    client = beside(table, "repush-load", lambda: act(again(table)))
    with pytest.raises(RepushRefusedError):
        client.layout.repush(**call)  # type: ignore[arg-type]  # as above
    assert again(table).scan().count() == 2
    back(again(table))
    assert client.layout.repush(**call).version is not None  # type: ignore[arg-type]  # as above
    assert again(table).scan().count() == 2


def test_a_table_with_sinks_gets_no_partitions_by_which_they_cannot_tell_keys_apart() -> None:
    table = make()
    before = table.replicas.add("eu=memory://repush-fitting-eu").version
    with pytest.raises(OptionError):
        table.layout.repush(partition_by="year(day)")
    assert again(table).version == before


def test_a_table_with_sinks_gets_no_partitions_between_which_a_key_can_move() -> None:
    """A sink keeps a row by its key and partition, so every write would be refused after it."""
    table = make(unique="table")
    before = table.replicas.add("eu=memory://repush-fitting-eu").version
    with pytest.raises(OptionError):
        table.layout.repush(partition_by="day")
    assert again(table).version == before
    assert table.layout.repush(buckets=2).version is not None


@pytest.mark.parametrize("field", ["day", "year(day)"])
def test_an_undo_never_lays_rows_out_by_another_column_of_the_name(field: str) -> None:
    """A column is its id."""
    table = make(partition_by=field)
    table.layout.repush(partition_by=())
    table.alter.columns().rename("day", "date").add("day", "date").commit()
    before = table.version
    with pytest.raises(RepushRefusedError) as caught:
        table.layout.undo()
    assert caught.value.columns == ["day"]
    assert again(table).version == before


@pytest.mark.parametrize("written", [False, True], ids=["no row since", "rows since"])
@pytest.mark.parametrize("name", UNDONE)
def test_an_undo_leads_to_no_layout_that_does_not_go_with_what_was_set_since(
    name: str, written: bool
) -> None:
    """Whether it moves the rows or brings the old files back: nobody could write that table."""
    how, call, act, back = UNDONE[name]
    table = make(**how)
    table.layout.repush(**call)  # type: ignore[arg-type]  # as above
    if written:
        table.upsert(table.scan().to_arrow())
    act(table)
    before = table.version
    with pytest.raises(OptionError):
        table.layout.undo()
    assert again(table).version == before
    back(table)
    assert table.layout.undo().version is not None
    table.upsert(table.scan().to_arrow())
    assert again(table).scan().count() == 2


def test_an_undo_fits_what_is_set_until_its_decision() -> None:
    table = make()
    table.layout.repush(partition_by="day")
    client = beside(table, "publish", lambda: again(table).alter.set_ttl("day 30d partition"))
    with pytest.raises(OptionError):
        client.layout.undo()
    assert again(table).scan().count() == 2


@pytest.mark.parametrize("source", ["parquet:{place}", "1"])
def test_options_for_a_source_that_takes_none_are_refused(source: str, tmp_path: Path) -> None:
    """A secret that is passed in vain should not look as if it were used."""
    table = make()
    pq.write_table(table.scan().to_arrow(), tmp_path / "a.parquet")
    named = source.format(place=tmp_path)
    with pytest.raises(OptionError) as caught:
        table.layout.repush(source=named, source_options={"access_key": "AKIA"})
    assert "AKIA" not in str(caught.value)
    assert again(table).version == 1
    assert table.layout.repush(source=named).version is not None
