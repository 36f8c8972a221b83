"""Records without a value: what their keys remove."""

from __future__ import annotations

from plait import Table
from tests.support.records import places, read, spec_of


def test_a_record_with_neither_value_nor_key_removes_no_row() -> None:
    """An empty key is a key; none is not."""
    spec = spec_of("id string, note string", "id")
    found = read(spec, (None, None), (None, b""), (None, b"a"), key_format="text")
    assert found.removals is not None
    assert sorted(found.removals["id"].to_pylist()) == ["", "a"]
    assert [(each.at, "neither" in each.reason) for each in found.bad] == [(0, True)]


def test_a_key_alone_removes_a_row_where_keys_are_unique_in_the_table() -> None:
    """Elsewhere it must say in which partition the row is."""
    schema = "id string, place string"
    records = (({"id": "a", "place": "x"}, b"a"), (None, b"a"), (None, b"b"))
    for unique, removed in (("table", ["a", "b"]), ("partition", None)):
        table = Table.create(
            f"memory://unique-{unique}", schema,
            record_key=["id"], partition_by=["place"], unique=unique,
        )  # fmt: skip
        found = read(table._handle.cache.known().table.spec, *records, key_format="text")
        if removed is None:
            assert places(found) == [1, 2]
        else:
            assert found.bad == ()
            assert found.removals is not None
            assert sorted(found.removals["id"].to_pylist()) == removed
            assert found.removals.schema.names == ["id"]
            assert found.rows.num_rows == 0
