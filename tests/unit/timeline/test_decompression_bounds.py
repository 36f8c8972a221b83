"""Metadata that becomes very much out of very little is refused, in bounded memory and time."""

from __future__ import annotations

import io
import resource
import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait.errors import CorruptMetadataError
from plait.model.changes import ADDED, PATHS
from plait.timeline import columns
from plait.timeline.columns import from_parquet, to_parquet

MEMORY_BYTES_MAX = 512 << 20


def repeated() -> bytes:
    """One text of a mebibyte, named two thousand times."""
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0] * 2_000, pa.int32()), pa.array(["x" * (1 << 20)])
    )
    return written(pa.table({"path": texts}))


def zeros() -> bytes:
    """One text of 64 mebibytes, which compresses to nothing."""
    return written(pa.table({"path": pa.array(["x" * (1 << 26)])}))


def nulls() -> bytes:
    """Very many rows of nothing."""
    return written(pa.table({"path": pa.nulls(20_000_000, pa.string())}))


def twice() -> bytes:
    """A column that is there twice."""
    column = pa.array(["a"])
    return written(pa.Table.from_arrays([column, column], names=["path", "path"]))


def written(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    return sink.getvalue()


BOMBS: dict[str, Callable[[], bytes]] = {b.__name__: b for b in (repeated, zeros, nulls, twice)}

READ = """
import sys
from plait.errors import CorruptMetadataError
from plait.model.changes import PATHS
from plait.timeline.columns import from_parquet
body = sys.stdin.buffer.read()
try:
    from_parquet(body, PATHS, where="manifest")
except CorruptMetadataError as error:
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(error.path, int(peak.split()[1]) * 1024)
"""


@pytest.mark.processes
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_by_name_in_bounded_memory(bomb: str) -> None:
    body = BOMBS[bomb]()
    assert len(body) < 1 << 20
    done = subprocess.run(
        [sys.executable, "-c", READ],
        input=body,
        capture_output=True,
        check=True,
        timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)),
    )
    path, peak = done.stdout.split()
    assert path == b"manifest"
    assert int(peak) < MEMORY_BYTES_MAX


def test_rows_that_a_few_bytes_declare_are_refused_before_they_are_made() -> None:
    body = written(pa.table({"path": pa.nulls(100_000, pa.string())}))
    assert len(body) < 1_000
    with pytest.raises(CorruptMetadataError) as caught:
        from_parquet(body, PATHS, where="manifest")
    assert "100000 rows" in caught.value.message


def test_texts_are_bounded_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"path": ["x" * 1_000] * 300})
    body = to_parquet(table)
    limit = 300 * 1_000 - columns._GROWTH_MAX * len(body)
    monkeypatch.setattr(columns, "_GROWTH_FREE", limit)
    assert from_parquet(body, PATHS, where="manifest").num_rows == 300
    monkeypatch.setattr(columns, "_GROWTH_FREE", limit - 1)
    with pytest.raises(CorruptMetadataError):
        from_parquet(body, PATHS, where="manifest")


@pytest.mark.parametrize("rows", [0, 1, 20_000])
def test_what_a_large_commit_writes_stays_readable(rows: int) -> None:
    """Paths that differ in a number alone, and the same partition everywhere."""
    table = pa.table(
        {
            "path": [
                f"data/00001-20260101000000000-{'a' * 16}-0-{n:06d}.base.parquet"
                for n in range(rows)
            ],
            "partition": ["[]"] * rows,
            "bucket": [1] * rows,
            "kind": ["base"] * rows,
            "rows": [100] * rows,
            "bytes": [4_096] * rows,
            "order": [0] * rows,
            "schema_id": [0] * rows,
            "footer": [0] * rows,
            "stats": ['{"1":[1,2,0]}'] * rows,
        },
        schema=ADDED,
    )
    assert from_parquet(to_parquet(table), ADDED, where="manifest").equals(table)
    paths = table.select(["path"])
    assert from_parquet(to_parquet(paths), PATHS, where="manifest").num_rows == rows


def test_what_is_no_table_is_refused() -> None:
    for body in (b"", b"PAR1", b"PAR1" * 100):
        with pytest.raises(CorruptMetadataError):
            from_parquet(body, PATHS, where="manifest")
