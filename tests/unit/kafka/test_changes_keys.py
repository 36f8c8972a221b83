"""Records without a value: what their keys remove."""

from __future__ import annotations

from dataclasses import dataclass

from plait import Table
from plait.kafka.records.change_sets import ChangeReader
from plait.kafka.settings import SinkSettings


@dataclass(frozen=True)
class Record:
    """What is looked at of a record of the client."""

    body: bytes | None
    name: bytes | None

    def value(self) -> bytes | None:
        return self.body

    def key(self) -> bytes | None:
        return self.name


def test_a_record_with_neither_value_nor_key_removes_no_row() -> None:
    """An empty key is a key; none is not."""
    schema = "id string, note string"
    spec = Table.create("memory://neither", schema, record_key=["id"])._handle.cache.known()
    settings = SinkSettings("b:1", ("t",), key_format="text")
    reader = ChangeReader(spec.table.spec, settings)
    found = reader.read([Record(None, None), Record(None, b""), Record(None, b"a")])
    assert found.removals is not None
    assert sorted(found.removals["id"].to_pylist()) == ["", "a"]
    assert [(each.at, "neither" in each.reason) for each in found.bad] == [(0, True)]


def test_a_key_alone_removes_a_row_where_keys_are_unique_in_the_table() -> None:
    """Elsewhere it must say in which partition the row is."""
    schema = "id string, place string"
    settings = SinkSettings("b:1", ("t",), key_format="text")
    records = [Record(b'{"id": "a", "place": "x"}', b"a"), Record(None, b"a"), Record(None, b"b")]
    for unique, removed in (("table", ["a", "b"]), ("partition", None)):
        table = Table.create(
            f"memory://unique-{unique}", schema,
            record_key=["id"], partition_by=["place"], unique=unique,
        )  # fmt: skip
        found = ChangeReader(table._handle.cache.known().table.spec, settings).read(records)
        if removed is None:
            assert [each.at for each in found.bad] == [1, 2]
        else:
            assert found.bad == ()
            assert found.removals is not None
            assert sorted(found.removals["id"].to_pylist()) == removed
            assert found.removals.schema.names == ["id"]
            assert found.rows.num_rows == 0
