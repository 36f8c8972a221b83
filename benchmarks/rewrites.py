"""Compaction and clustering in one process, beside a bulk insert and plain Parquet.

    python benchmarks/rewrites.py [--rows 2000000] [--upserts 50]

1. A merge-on-read table takes five upserts of a twentieth of its rows each, and is compacted. The
   time is a share of that of a bulk insert of the same rows into a copy-on-write table. The table
   is scanned before and after, beside plain Parquet files of the same rows.
2. A table whose writers compact inline takes many small upserts, and is scanned after every tenth.
3. A table without a key is clustered, and one with a key inside its buckets. From the footers, the
   bytes are counted of the row groups in which a range of 1 % of the values can lie: of one column,
   and of boxes of two.
4. In one bucket of a merge-on-read table that is sorted by key, and in one that is clustered, with
   and without key indexes, the reads of data files and their bytes are counted: of the look-up of a
   key, and of upserts of one row and of ten.

Results: results/rewrites.json.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from plait import Table
from plait.storage.arrow import RootedHandler
from plait.storage.port import Store
from plait.table import handle_of
from plait.testing import open_wrapped
from plait.testing.wrapper import WrappedStore

RESULTS = Path(__file__).with_name("results") / "rewrites.json"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("x", pa.int64()), ("y", pa.int64()), ("text", pa.string())]
)
BUCKETS, ROUNDS = 8, 3
VALUES = 1_000_000_000


def rows(ids: np.ndarray, seed: int) -> pa.Table:
    """Make rows with random values."""
    chance = np.random.default_rng(seed)
    words = pa.array([f"word {n}" for n in range(1_000)])
    text = words.take(pa.array(chance.integers(0, 1_000, len(ids))))
    x, y = (chance.integers(0, VALUES, len(ids)) for _ in range(2))
    return pa.table([ids, x, y, text], schema=SCHEMA)


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def best(work: Callable[[], object]) -> float:
    """Return the least seconds of some rounds."""
    return min(timed(work) for _ in range(ROUNDS))


def plain(table: Table, folder: str) -> Callable[[], object]:
    """Write the table's rows as plain Parquet, and return how to scan them."""
    place = Path(folder) / "plain"
    place.mkdir(exist_ok=True)
    whole = table.scan().to_arrow()
    share = -(-whole.num_rows // BUCKETS)
    for number in range(BUCKETS):
        part = whole.slice(number * share, share)
        pq.write_table(part, place / f"{number}.parquet", compression="snappy")
    return lambda: ds.dataset(place).to_table()


def compaction(folder: str, count: int) -> dict[str, float]:
    """Time a compaction after five upserts."""
    every = rows(np.arange(count), 0)
    copied = Table.create(f"{folder}/cow", SCHEMA, record_key="id", buckets=BUCKETS)
    insert = timed(lambda: copied.insert(every))
    table = Table.create(
        f"{folder}/mor", SCHEMA, record_key="id", buckets=BUCKETS, table_type="mor"
    )
    table.insert(every)
    chance = np.random.default_rng(1)
    fresh = [rows(chance.choice(count, count // 20), seed) for seed in range(5)]
    upserts = [timed(partial(table.upsert, each)) for each in fresh]
    scan = plain(table, folder)
    parquet, before = best(scan), best(lambda: table.scan().to_arrow())
    compact = timed(lambda: table.maintenance.compact(full=True))
    after = best(lambda: table.scan().to_arrow())
    return {
        "insert_s": insert,
        "upsert_s": statistics.median(upserts),
        "compact_s": compact,
        "compact_of_insert": compact / insert,
        "scan_before_of_parquet": before / parquet,
        "scan_after_of_parquet": after / parquet,
    }


def many_upserts(folder: str, count: int, upserts: int) -> dict[str, object]:
    """Time upserts of a hundredth of the rows, with inline compaction."""
    table = Table.create(
        f"{folder}/inline",
        SCHEMA,
        record_key="id",
        buckets=BUCKETS,
        table_type="mor",
        properties={"compact": "inline"},
    )
    table.insert(rows(np.arange(count), 0))
    parquet = best(plain(table, folder))
    chance = np.random.default_rng(2)
    times, scans = [], []
    for number in range(upserts):
        fresh = rows(chance.choice(count, max(1, count // 100)), number)
        times.append(timed(partial(table.upsert, fresh)))
        if number % 10 == 9 or number == upserts - 1:
            scans.append(best(lambda: table.scan().to_arrow()) / parquet)
    buckets = handle_of(table).cache.snapshot().files["bucket"].to_pylist()
    return {
        "upsert_median_s": statistics.median(times),
        "upsert_most_s": max(times),
        "scans_of_parquet": scans,
        "files_of_a_bucket": max(buckets.count(number) for number in set(buckets)),
    }


def clustering(folder: str, count: int, *, keyed: bool) -> dict[str, float]:
    """Count the bytes that ranges can lie in."""
    found: dict[str, float] = {}
    for kind, columns in (("sort", ["x"]), ("zorder", ["x", "y"]), ("hilbert", ["x", "y"])):
        size = max(1, count // 100)
        table = Table.create(
            f"{folder}/{kind}-{keyed}",
            SCHEMA,
            record_key="id" if keyed else (),
            buckets=1 if keyed else None,
            properties={"file.size.target": f"{size * 16}"},
        )
        table.append(rows(np.arange(count), 0))
        found[f"{kind}_s"] = timed(partial(table.maintenance.cluster, columns, kind=kind))
        width = int(VALUES * 0.01 ** (1 / len(columns)))
        starts = (VALUES // 10, VALUES * 4 // 10, VALUES * 7 // 10)
        shares = [share(table, dict.fromkeys(columns, (low, low + width))) for low in starts]
        found[f"{kind}_bytes_of_all"] = statistics.mean(shares)
    return found


def look_ups(folder: str, count: int) -> dict[str, object]:
    """Count what is read to find keys in one bucket."""
    found: dict[str, object] = {}
    for name in ("by key", "clustered, without indexes", "clustered"):
        place = f"{folder}/look-ups {name}"
        table = Table.create(place, SCHEMA, record_key="id", buckets=1, table_type="mor")
        table.insert(rows(np.arange(count) * 2, 0))
        if name != "by key":
            table.maintenance.cluster(order_by="x", kind="sort")
        found[f"{name}: bytes of the file"] = table.inspect.files()["bytes"].to_pylist()
        with mock.patch("plait.read.slices._GROUPS_A_KEY", count if "without" in name else 2):
            found[name] = counted_look_ups(place, count)
    return found


def counted_look_ups(place: str, count: int) -> dict[str, dict[str, int]]:
    """Count the reads of data files and their bytes: medians of a few look-ups, then upserts."""
    table, store = open_wrapped(place, ReadStore)
    chance = np.random.default_rng(3)

    def counted(work: Callable[[int], object], keys: list[int]) -> dict[str, int]:
        reads = []
        for key in keys:
            store.reads.clear()
            work(key)
            reads.append((len(store.reads), sum(store.reads)))
        return {
            "reads": int(statistics.median(each for each, _ in reads)),
            "bytes": int(statistics.median(each for _, each in reads)),
        }

    keys = (chance.integers(0, count, 5) * 2).tolist()
    found = {
        "look-up": counted(lambda key: table.scan(where=f"id = {key}").to_arrow(), keys),
        "look-up of a key that is not there": counted(
            lambda key: table.scan(where=f"id = {key + 1}").to_arrow(), keys
        ),
    }
    for size in (1, 10, 100):
        fresh = rows(chance.choice(count, size, replace=False) * 2, size)
        name = f"upsert of {size}"
        found[name] = counted(lambda _, fresh=fresh: table.upsert(fresh), [0])  # type: ignore[misc]
    return found


class ReadStore(WrappedStore):
    """Notes the size of each read of a file through Arrow."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.reads: list[int] = []

    def filesystem(self) -> pafs.FileSystem:
        """Return the Arrow file system."""
        return pafs.PyFileSystem(_ReadHandler(self))


class _ReadHandler(RootedHandler):
    def __init__(self, store: ReadStore) -> None:
        super().__init__(store.inner.filesystem(), "reads")
        self._store = store

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(_ReadFile(self._store.location(path), self._store.reads), mode="r")


class _ReadFile(io.FileIO):
    def __init__(self, path: str, reads: list[int]) -> None:
        super().__init__(path)
        self._reads = reads

    def read(self, size: int | None = -1) -> bytes:
        body = super().read(-1 if size is None else size) or b""
        self._reads.append(len(body))
        return body


def share(table: Table, box: dict[str, tuple[int, int]]) -> float:
    """Return the share of the table's bytes in row groups whose bounds meet a box."""
    root = str(table.inspect.describe()["uri"])
    met = total = 0
    for path in table.inspect.files()["path"].to_pylist():
        footer = pq.read_metadata(Path(root) / path)
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            size = group.total_byte_size
            total += size
            met += size if all(_meets(group, *each) for each in box.items()) else 0
    return met / total


def _meets(group: pq.RowGroupMetaData, name: str, wanted: tuple[int, int]) -> bool:
    bounds = group.column(SCHEMA.get_field_index(name)).statistics
    return bool(bounds.min <= wanted[1] and bounds.max >= wanted[0])


def main() -> int:
    """Run all four, and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--upserts", type=int, default=50)
    asked = parser.parse_args()
    results: dict[str, object] = {"rows": asked.rows, "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as folder:
        results["compaction"] = compaction(folder, asked.rows)
        results["upserts"] = many_upserts(folder, asked.rows // 2, asked.upserts)
        results["clustering"] = clustering(folder, asked.rows // 2, keyed=False)
        results["clustering_of_buckets"] = clustering(folder, asked.rows, keyed=True)
        results["look_ups"] = look_ups(folder, asked.rows)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
