"""Records without a value: what their keys remove."""

from __future__ import annotations

from dataclasses import dataclass

from plait import Table
from plait.kafka.changes import ChangeReader
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
    spec = Table.create("memory://neither", schema, record_key=["id"]).handle.cache.known()
    settings = SinkSettings("b:1", ("t",), key_format="text")
    reader = ChangeReader(spec.table.spec, settings)
    found = reader.read([Record(None, None), Record(None, b""), Record(None, b"a")])
    assert found.removals is not None
    assert sorted(found.removals["id"].to_pylist()) == ["", "a"]
    assert [(each.at, "neither" in each.reason) for each in found.bad] == [(0, True)]
