"""Row maps: where rows went, by reference to a plain list; damaged ones are refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import CorruptMetadataError
from plait.files.row_map import RowMap, RowMapBuilder, RowMapWriter, decode, encode, load_row_map
from plait.storage.local import LocalStore
from plait.storage.port import Store

PATH = "data/map.bin"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "data").mkdir()
    return LocalStore(str(tmp_path))


def built(to: list[int | None]) -> RowMap:
    builder = RowMapBuilder(len(to))
    copied = [at for at, new in enumerate(to) if new is not None]
    for at in reversed(copied):
        builder.add(np.array([at], dtype=np.uint64), np.array([to[at]], dtype=np.int64))
    return builder.build()


def positions(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


@st.composite
def maps(draw: st.DrawFn) -> list[int | None]:
    rows = draw(st.integers(0, 60))
    new: list[int] = draw(
        st.lists(st.integers(0, 100_000), unique=True, min_size=rows, max_size=rows)
    )
    if draw(st.booleans()):
        new.sort()
    return [None if draw(st.booleans()) else each for each in new]


@given(maps(), st.data())
def test_a_map_gives_the_place_of_each_row_as_a_list_does(
    to: list[int | None], data: st.DataObject
) -> None:
    """INV-14: rising or not, with rows that were not copied, before and after encoding."""
    moved = built(to)
    again = decode(encode(moved), rows=len(to), target_rows=100_001)
    asked = sorted(data.draw(st.sets(st.integers(0, max(0, len(to) - 1))))) if to else []
    expected = sorted(to[at] for at in asked if to[at] is not None)
    for each in (moved, again):
        assert each.image(positions(asked)).tolist() == expected
        assert each.whole().tolist() == sorted(new for new in to if new is not None)


def test_rising_maps_are_small() -> None:
    """A log of one row in a thousand: the base's map is some bytes for each row that came."""
    new = np.setdiff1d(np.arange(100_100), np.arange(0, 100_100, 1001))
    builder = RowMapBuilder(len(new))
    builder.add(np.arange(len(new), dtype=np.uint64), new)
    assert len(encode(builder.build())) < 1_000


def test_maps_are_read_back_from_the_decision_or_from_their_file(store: Store) -> None:
    large = np.random.default_rng(1).permutation(20_000)[:10_000].tolist()
    writer = RowMapWriter(store, PATH)
    writer.add("a", 0, built([3, None, 1]))
    writer.add("b", 0, built(large))
    small, filed = writer.close().to_pylist()
    assert writer.paths == [PATH]
    assert small["map_path"] is None
    assert filed["map_inline"] is None
    assert load_row_map(store, small, target_rows=4).placed.tolist() == [3, 1]
    assert load_row_map(store, filed, target_rows=20_000).placed.tolist() == large


def refused(store: Store, row: dict[str, object], target_rows: int = 4) -> None:
    with pytest.raises(CorruptMetadataError, match=r"row map|data/map.bin"):
        load_row_map(store, row, target_rows=target_rows)


def row_of(entry: bytes, rows: int) -> dict[str, object]:
    return {
        "path": "data/a", "group": 0, "rows": rows, "map_inline": entry,
        "map_path": None, "map_offset": None, "map_bytes": None,
    }  # fmt: skip


def test_every_flipped_byte_of_an_entry_is_refused(store: Store) -> None:
    entry = encode(built([3, None, 1]))
    for at in range(len(entry)):
        body = bytearray(entry)
        body[at] ^= 1
        refused(store, row_of(bytes(body), 3))
        refused(store, row_of(entry[:at], 3))


def test_a_map_that_does_not_fit_its_files_is_refused(store: Store) -> None:
    entry = encode(built([3, None, 1]))
    refused(store, row_of(entry, 4))
    refused(store, row_of(entry, 3), target_rows=3)
    refused(store, row_of(entry, 3), target_rows=1)
    twice = RowMap(2, positions([]), np.array([5, 5], dtype=np.uint32))
    refused(store, row_of(encode(twice), 2), target_rows=9)
    wide = RowMap(1, positions([]), positions([2**32 + 1]))  # type: ignore[arg-type]
    refused(store, row_of(encode(wide), 1), target_rows=9)
    beyond = RowMap(2, positions([7]), np.array([0], dtype=np.uint32))
    refused(store, row_of(encode(beyond), 2), target_rows=9)


def test_a_map_that_is_gone_or_cut_off_is_refused_by_name(store: Store) -> None:
    writer = RowMapWriter(store, PATH)
    writer.add("b", 0, built(list(range(20_000, 0, -1))))
    (row,) = writer.close().to_pylist()
    refused(store, {**row, "map_offset": row["map_offset"] + 1}, 20_001)
    refused(store, {**row, "map_offset": 0}, 20_001)
    refused(store, {**row, "map_bytes": 1 << 40}, 20_001)
    refused(store, {**row, "map_path": None}, 20_001)
    Path(store.location(PATH)).unlink()
    refused(store, row, 20_001)


def test_the_example_of_the_specification_is_what_is_written() -> None:
    text = Path(__file__).parents[3].joinpath("docs/spec/format.md").read_text()
    shown = re.split(r"has\s+this\s+entry:", text)[1].split("```")[1]
    assert encode(built([3, None, 1])).hex() == "".join(shown.split())
