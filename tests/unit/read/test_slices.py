"""Slices: rows of one file with their positions, however the file is laid out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from plait.errors import CorruptMetadataError
from plait.read.condition import Condition
from tests.unit.read.conftest import Build, Built

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])
HIDDEN = [0, 9, 10, 11, 35, 99]


@pytest.fixture
def table(build: Build) -> Built:
    made = build(SCHEMA, key=["id"], group_rows=10)
    made.add(pa.table({"id": np.arange(100), "note": [f"n{i}" for i in range(100)]}), HIDDEN)
    return made


def where(text: str) -> Condition:
    found = Condition.of(text, SCHEMA)
    assert found is not None
    return found


@pytest.mark.parametrize("text", [None, "id >= 30 AND id < 40", "note = 'n42'", "id < 0"])
@pytest.mark.parametrize("columns", [None, ["id"], ["note"], []], ids=str)
def test_position_is_the_row_s_place_in_the_file(
    table: Built, text: str | None, columns: list[str] | None
) -> None:
    condition = None if text is None else where(text)
    slices = table.reader.slices(table.files[0], columns=columns, where=condition)
    found = [int(p) for part in slices for p in part.positions]
    visible = [n for n in range(100) if n not in HIDDEN]
    tests = {
        None: lambda n: True,
        "id >= 30 AND id < 40": lambda n: 30 <= n < 40,
        "note = 'n42'": lambda n: n == 42,
        "id < 0": lambda n: False,
    }
    assert found == [n for n in visible if tests[text](n)]


def test_rows_stand_beside_their_positions(table: Built) -> None:
    for part in table.reader.slices(table.files[0], columns=["note", "id"]):
        assert part.rows.schema.names == ["note", "id"]
        assert part.rows["id"].to_pylist() == part.positions.tolist()


def test_row_groups_without_a_match_are_not_read(
    table: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups hold 10 rows: one of ten can hold this key."""
    from plait.files.reader import OpenFile

    read: list[int] = []
    plain = OpenFile.batches

    def counted(self: OpenFile, group: int, columns: list[str]) -> object:
        read.append(group)
        return plain(self, group, columns)

    monkeypatch.setattr(OpenFile, "batches", counted)
    slices = list(table.reader.slices(table.files[0], columns=["note"], where=where("id = 42")))
    assert [part.positions.tolist() for part in slices] == [[42]]
    assert set(read) == {4}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"masked": 5}, "deletion vector"),
        ({"masked": 101}, "101"),
        ({"inline": b"garbage"}, "deletion vector"),
        ({"inline": None}, "none"),
    ],
    ids=str,
)
def test_damaged_deletion_vector_is_refused_not_ignored(
    table: Built, change: dict[str, object], found: str
) -> None:
    table.rows[0].update(change)
    with pytest.raises(CorruptMetadataError, match=found):
        list(table.reader.rows(table.files[0]))


def test_unknown_schema_of_a_file_is_refused(table: Built) -> None:
    table.rows[0]["schema_id"] = 5
    with pytest.raises(CorruptMetadataError, match="schema 5"):
        list(table.reader.rows(table.files[0]))
