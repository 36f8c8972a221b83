"""How large the row map of a compaction is, by encoding, and how fast it translates (RFC 0018).

    python benchmarks/row_maps.py [--rows 1000000]

A row map says where each row of a replaced file went. Three shapes are measured: a bucket of a
merge-on-read table (a sorted base file, and log files whose rows are merged into it by key), small
files that are put one after the other, and a clustering that sorts rows anew. Sizes are bytes for
each million rows of the new file. Results: results/row_maps.json.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from plait.files import roaring

RESULTS = Path(__file__).with_name("results") / "row_maps.json"
Places = npt.NDArray[np.uint64]
"""Where the rows of one file went: the position of the first, the second, and so on."""
GONE = np.iinfo(np.uint32).max


def merged(rows: int, logs: int, share: float, rng: np.random.Generator) -> list[Places]:
    """Merge a base file and logs by key; 80 % of the rows of a log replace rows of the base."""
    fresh = int(rows * share * 0.2)
    keys = rng.permutation(rows + logs * fresh)
    base, new = keys[:rows], keys[rows:].reshape(logs, fresh)
    owner = np.zeros(rows + logs * fresh, dtype=np.int8)
    for log in range(logs):
        owner[rng.choice(base, int(rows * share * 0.8), replace=False)] = log + 1
        owner[new[log]] = log + 1
    return [np.flatnonzero(owner == each).astype(np.uint64) for each in range(logs + 1)]


def appended(rows: int, files: int) -> list[Places]:
    """Put small files one after the other."""
    return [each.astype(np.uint64) for each in np.array_split(np.arange(rows), files)]


def clustered(rows: int, files: int, rng: np.random.Generator) -> list[Places]:
    """Sort the rows of files by another column."""
    return [each.astype(np.uint64) for each in np.array_split(rng.permutation(rows), files)]


def as_parquet(places: list[Places]) -> int:
    """Write them as Parquet, delta encoded and compressed."""
    sink = io.BytesIO()
    table = pa.table({"to": pa.array(np.concatenate(places).astype(np.int64))})
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=False,
        column_encoding={"to": "DELTA_BINARY_PACKED"},
    )
    return sink.tell()


def as_arrow(places: list[Places]) -> int:
    """Write them as an Arrow file of uint32, compressed."""
    sink = io.BytesIO()
    table = pa.table({"to": pa.array(np.concatenate(places).astype(np.uint32))})
    with pa.ipc.new_file(
        sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as out:
        out.write_table(table)
    return sink.tell()


def measure(places: list[Places]) -> dict[str, float]:
    """Measure each encoding, and the time of one translation."""
    rows = sum(len(each) for each in places)
    rising = all(bool((each[1:] > each[:-1]).all()) for each in places)
    found: dict[str, float] = {
        "files": len(places),
        "uint32": 4 * rows,
        "arrow_zstd": as_arrow(places),
        "parquet_delta_zstd": as_parquet(places),
    }
    found = {
        name: round(size * 1e6 / rows) if name != "files" else size for name, size in found.items()
    }
    first = places[0]
    hidden = np.sort(
        np.random.default_rng(1).choice(len(first), min(len(first), 10_000), replace=False)
    )
    if rising:
        bodies = [roaring.encode(each) for each in places]
        found["roaring"] = round(sum(map(len, bodies)) * 1e6 / rows)
        began = time.perf_counter()
        told = roaring.decode(bodies[0], count=len(first))[hidden]
    else:
        body = first.astype("<u4").tobytes()
        began = time.perf_counter()
        told = np.sort(np.frombuffer(body, "<u4")[hidden])
    found["translate_ms"] = round((time.perf_counter() - began) * 1e3, 2)
    if not np.array_equal(np.sort(told), np.sort(first[hidden])):
        message = "a row went elsewhere"
        raise AssertionError(message)
    return found


def main() -> None:
    """Measure all shapes, print and keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows, rng = parser.parse_args().rows, np.random.default_rng(0)
    shapes = {
        "merge, 1 log of 0.01 %": merged(rows, 1, 0.0001, rng),
        "merge, 1 log of 1 %": merged(rows, 1, 0.01, rng),
        "merge, 5 logs of 5 %": merged(rows, 5, 0.05, rng),
        "merge, 20 logs of 5 %": merged(rows, 20, 0.05, rng),
        "merge, 50 logs of 0.1 %": merged(rows, 50, 0.001, rng),
        "small files, 100": appended(rows, 100),
        "clustering, 10 files": clustered(rows, 10, rng),
    }
    results = {name: measure(places) for name, places in shapes.items()}
    for name, found in results.items():
        print(f"{name:<26} {found}")
    RESULTS.parent.mkdir(exist_ok=True)
    told = {"machine": platform.machine(), "rows": rows, "bytes_per_million_rows": results}
    RESULTS.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
