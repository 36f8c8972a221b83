"""Temporary files on a disk that is full, by the kernel itself: no file may grow here.

The tables are in memory, so the only files of an operation are the temporary ones.
"""

from __future__ import annotations

import ast
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from plait import Table
from plait.arrow.buffer import FlushBatch
from plait.arrow.memory import MemoryLimits
from plait.arrow.runs import RunSink
from plait.errors import StorageError
from plait.index.builder import RunBuilder
from plait.read.join import SortedBatch
from plait.read.key_sort import sorted_by_key
from plait.replicate.compare import compare
from plait.replicate.sink import SinkSchema
from plait.storage.scratch import Scratch
from plait.txn.key_window import load_newest_known_keys

SOURCE = Path(__file__).resolve().parents[2] / "src" / "plait"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.string())])
GROUP = ((), 0)
LIMITS = MemoryLimits(bucket=1 << 20, buffer=4 << 20)
MAKERS = {"OSFile", "memory_map", "LocalFileSystem", "TemporaryDirectory", "mkdtemp", "mkstemp"}
ADAPTERS = {"storage/scratch.py", "storage/arrow.py"}
"""Where errors of local files are translated."""
ALLOWED = {
    "polars.py": "four rows of its own, to see whether Polars hides rows as it is told",
    "read/dataset.py": "a place where nothing is, so that pyarrow's own code reads no file",
    "spark/exchange.py": "files that several processes share; translated by scratch.explained",
    "spark/java.py": "starts a JVM before there is a table",
    "spark/packaging.py": "writes beside a file that the caller names",
}


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow: each write fails as on a disk without space."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def rows(count: int = 50) -> pa.Table:
    """Return some rows."""
    return pa.table({"id": list(range(count)), "x": ["v"] * count}, schema=SCHEMA)


def batch(count: int = 50) -> pa.RecordBatch:
    """Return the rows as one batch."""
    return rows(count).to_batches()[0]


def _runs() -> None:
    sink = RunSink(("id",), None, LIMITS)
    try:
        sink.flush([FlushBatch(GROUP, [batch()], 1, lambda: None)])
    finally:
        sink.close()


def _removals() -> None:
    sink = RunSink(("id",), None, LIMITS)
    gone = batch().select(["id"])
    try:
        sink.flush([FlushBatch(GROUP, [], 1, lambda: None, [(0, gone)])])
    finally:
        sink.close()


def _sort() -> None:
    list(sorted_by_key((SortedBatch(rows()) for _ in range(3)), ["id"], 1))


def _compare() -> None:
    list(compare([batch()], [batch()], SinkSchema(SCHEMA, ("id",)), rows=50))


def _index() -> None:
    with RunBuilder(1) as builder:
        builder.add(np.arange(9, dtype=np.uint64), "[]", 1)


SPILLS: dict[str, Callable[[], None]] = {
    "sorted runs": _runs,
    "removals": _removals,
    "sort by key": _sort,
    "comparison of a sink": _compare,
    "index": _index,
}


@pytest.mark.parametrize("spill", SPILLS)
def test_a_full_temporary_disk_is_a_storage_error_that_says_what_to_do(spill: str) -> None:
    with full_disk(), pytest.raises(StorageError) as caught:
        SPILLS[spill]()
    error = caught.value
    assert Path(str(error.path)).parent == Path(tempfile.gettempdir())
    assert isinstance(error.free_bytes, int)
    assert str(error.path) in error.message
    assert "TMPDIR" in error.hint
    assert not Path(str(error.path)).exists()


@pytest.mark.parametrize("spill", SPILLS)
def test_a_temporary_directory_that_is_missing_is_a_storage_error(
    spill: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StorageError) as caught:
        SPILLS[spill]()
    assert caught.value.path == str(tmp_path / "gone")
    assert caught.value.free_bytes is None


def test_an_index_build_on_a_full_temporary_disk_publishes_no_index_and_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table.create("memory://index-on-a-full-disk", SCHEMA, record_key=["id"])
    table.append(rows())
    monkeypatch.setattr("plait.index.builder._BYTES_AN_ENTRY", 1 << 26)  # four are held at once
    with full_disk(), pytest.raises(StorageError) as caught:
        table.index.create()
    assert caught.value.free_bytes is not None
    assert load_newest_known_keys(table._handle, table._handle.cache.refresh()) is None
    assert table.scan().count() == 50
    built = table.index.build()
    assert built is not None
    assert built.entries == 50


def test_an_error_of_the_rows_is_not_taken_for_one_of_the_temporary_disk() -> None:
    def failing() -> Iterator[SortedBatch]:
        yield SortedBatch(rows())
        yield SortedBatch(rows())
        message = "cannot read the store"
        raise StorageError(message, path="data/1")

    with pytest.raises(StorageError) as caught:
        list(sorted_by_key(failing(), ["id"], 1))
    assert caught.value.path == "data/1"


def test_a_directory_that_cannot_be_removed_does_not_fail_what_succeeded(tmp_path: Path) -> None:
    with Scratch("test", str(tmp_path)) as scratch:
        Path(scratch.path).rmdir()
    assert not list(tmp_path.iterdir())


def test_temporary_files_are_opened_by_their_adapter_alone() -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in MAKERS
    }
    assert found == ADAPTERS | set(ALLOWED)
