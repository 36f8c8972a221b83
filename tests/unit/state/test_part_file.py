"""Pieces of a large part file: what is asked for, or an error; never a search in disorder."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from plait.errors import CorruptMetadataError
from plait.state import part_file
from plait.state.events import TABLES
from plait.state.part_file import PieceReader, write_part_file
from plait.storage.local import LocalStore
from plait.storage.port import Store
from plait.timeline import paths

SCHEMA = TABLES["removed"]
FILE = paths.checkpoint(7, f"{'a' * 16}-0-removed.parquet")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(part_file, "GROUP_ROWS", 2)
    return LocalStore(str(tmp_path))


def removed(*names: str) -> pa.Table:
    return pa.table([list(names), range(len(names))], schema=SCHEMA)


def test_the_rows_of_a_directory_are_found_among_others(store: Store) -> None:
    file = write_part_file(store, "removed", FILE, removed("c/1", "a/1", "b/1", "a/2", "b/2"))
    with PieceReader(store, file) as pieces:
        assert pieces.read(SCHEMA, frozenset({"a"}))["path"].to_pylist() == ["a/1", "a/2"]
        assert pieces.read(SCHEMA).num_rows == 5


def test_rows_in_no_order_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-11: a search among them would miss some; they are made up for by the decisions."""
    monkeypatch.setattr(part_file, "_IN_TIME", ("removed",))  # as written by somebody else
    file = write_part_file(store, "removed", FILE, removed("c/1", "c/2", "a/1", "a/2"))
    with PieceReader(store, file) as pieces, pytest.raises(CorruptMetadataError, match="order"):
        pieces.read(SCHEMA, frozenset({"a"}))
