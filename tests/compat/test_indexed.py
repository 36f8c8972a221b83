"""The record index of a golden table leads a reader of the specification to every row."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from plait import Table
from plait.queries.lookup import look_up
from tests.compat.indexed import entries_of, live_keys, newest_manifest, places_of
from tests.compat.reader import Reader, RefusedError

PLACE = Path(__file__).parent / "v1" / "indexed"


def missing(reader: Reader) -> list[int]:
    """Return the hashes of live rows to which the index does not lead.

    It leads to a row if its newest entry names the version of the row's file, or an older one; or
    if decisions say that its bucket is to be read whole.
    """
    places, whole = places_of(reader)
    return [
        number
        for number, file in live_keys(reader)
        if (file["partition"], file["bucket"]) not in whole
        and not places.get((number, file["partition"]), file["version"] + 1) <= file["version"]
    ]


def test_second_reader_finds_every_row_by_the_index_and_misses_one_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-11: of the runs, and of the decisions since."""
    reader = Reader(str(PLACE))
    manifest = newest_manifest(reader)
    assert [len(files) for _, _, files in manifest["runs"]] == [1, 1]
    assert manifest["version"] < reader.version
    assert reader.table["dropped_indexes"]
    assert missing(reader) == []
    places, whole = places_of(reader)
    assert whole
    assert len({partition for _, partition in places}) == 4
    monkeypatch.setattr("tests.compat.indexed.entries_of", lambda *file: entries_of(*file)[:-1])
    assert missing(reader)


@pytest.mark.slow
def test_second_reader_refuses_damage_of_any_part_of_an_index(tmp_path: Path) -> None:
    place = tmp_path / "indexed"
    shutil.copytree(PLACE, place)
    name = Reader(str(place)).table["index"]
    newest = max((place / ".meta" / "index" / name).glob("*.json"))
    named = newest_manifest(Reader(str(place)))["runs"]
    files = [newest, *(place / file[0] for _, _, each in named for file in each)]
    for path in files:
        body = path.read_bytes()
        for at in range(8, len(body), 7):
            path.write_bytes(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
            with pytest.raises((RefusedError, ValueError)):
                places_of(Reader(str(place)))
        path.write_bytes(body)


def test_plait_looks_up_by_the_golden_index_and_goes_on_with_it(tmp_path: Path) -> None:
    place = tmp_path / "indexed"
    shutil.copytree(PLACE, place)
    table = Table.open(str(place))
    found = look_up(table._handle, list(range(130)))
    assert found.through == "index"
    key = [("id", "ascending"), ("day", "ascending")]
    assert found.rows.sort_by(key).equals(table.scan().to_arrow().sort_by(key))
    assert table.index.verify().ok
    table.upsert(found.rows.slice(0, 7))
    assert table.index.build() is not None
    assert missing(Reader(str(place))) == []
    assert table.index.verify().ok
