"""Files prove their names: one that is whole, but in the place of another, is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from plait import Table
from plait.errors import CorruptMetadataError
from plait.files.data_file import REMOVALS, RUN, Place, data_path
from plait.files.entry_file import EntryFile, read_entry
from plait.files.hash import load_sidecar, write_sidecar
from plait.files.reader import staged_batches
from plait.files.writer import DataFileWriter
from plait.model.bucket import UNKEYED
from plait.model.instant import Instant
from plait.storage.memory import MemoryStore

HASHES = np.array([1, 2], dtype=np.uint64)


def swap(store: MemoryStore, one: str, other: str) -> None:
    first, second = store.find(one), store.find(other)
    assert first is not None
    assert second is not None
    store.put(one, second)
    store.put(other, first)


@pytest.fixture
def files(uri: str) -> MemoryStore:
    """Give a store with two files of entries that are alike."""
    store = MemoryStore(uri)
    for path in ("data/a", "data/b"):
        file = EntryFile(store, path, b"\1")
        assert [file.append(b"one"), file.append(b"two")] == [1, 12]
        file.close()
    return store


def test_an_entry_of_another_file_is_refused(files: MemoryStore) -> None:
    assert read_entry(files, "data/a", 1, 3) == b"one"
    swap(files, "data/a", "data/b")
    with pytest.raises(CorruptMetadataError) as refused:
        read_entry(files, "data/a", 1, 3)
    assert refused.value.path == "data/a"


def test_an_entry_of_another_place_is_refused(files: MemoryStore) -> None:
    body = files.find("data/a") or b""
    files.put("data/a", body[:1] + body[12:] + body[1:12])
    with pytest.raises(CorruptMetadataError):
        read_entry(files, "data/a", 1, 3)


def test_an_entry_stays_that_of_its_file_in_another_directory(files: MemoryStore) -> None:
    """A table is copied, and the files of a repush become those of the table around it."""
    files.put("repush-0123456789abcdef/data/a", files.find("data/a") or b"")
    assert read_entry(files, "repush-0123456789abcdef/data/a", 12, 3) == b"two"


def test_a_sidecar_of_another_decision_is_refused(uri: str) -> None:
    store = MemoryStore(uri)
    for path in ("data/a", "data/b"):
        write_sidecar(store, path, HASHES)
    swap(store, "data/a", "data/b")
    with pytest.raises(CorruptMetadataError) as refused:
        load_sidecar(store, "data/a", count=2)
    assert refused.value.path == "data/a"


def test_files_with_rows_alike_have_other_footers(uri: str) -> None:
    """No statistics tell floats apart, so nothing else does."""
    table = Table.create(uri, "v double")
    for value in (1.0, 2.0):
        table.append(pa.table({"v": [value]}))
    files = table.inspect.files()
    assert len(set(files["bytes"].to_pylist())) == 1
    assert len(set(files["footer"].to_pylist())) == 2


@pytest.mark.parametrize("kind", [RUN, REMOVALS])
def test_staged_rows_of_another_file_are_refused(uri: str, kind: str) -> None:
    """No decision names it, so nobody has a hash of its footer."""
    table = Table.create(uri, "v double")
    store, spec = table._handle.store, table._handle.cache.known().table.spec
    paths = [data_path((), UNKEYED, Instant.at(0, digit * 16), "0-0", kind) for digit in "ab"]
    for number, path in enumerate(paths):
        with DataFileWriter(store, Place(path, (), UNKEYED, kind), spec) as writer:
            writer.write(pa.table({"v": [float(number)]}))
            writer.close()
    assert [batch["v"].to_pylist() for batch in staged_batches(store, paths[1])] == [[1.0]]
    swap(store, *paths)  # type: ignore[arg-type]  # in memory
    with pytest.raises(CorruptMetadataError) as refused:
        list(staged_batches(store, paths[1]))
    assert refused.value.path == paths[1]
