"""The dual write: four slow sinks beside the slowest of them, and a table as a sink.

    python benchmarks/dual_write.py [--batches 40] [--rows 1000000] [--rounds 3]

The first part sends batches of one row to one sink of 50 ms a batch, and to four of them, in turn.
The second part upserts new rows into two empty tables one after the other, and then into one table
with the other as its sink, for several batch sizes; many batches are one commit of the sink. It
also upserts into the second table alone in these batches, to tell what a commit a batch would cost.
Results: benchmarks/results/dual_write.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from plait import Table
from plait.model.words import TableType
from plait.replicate import Replicas, SinkSchema, TableSink

RESULTS = Path(__file__).with_name("results") / "dual_write.json"
PAUSE_S = 0.05
SINKS = 4
BUCKETS = 8
KINDS: tuple[TableType, ...] = ("cow", "mor")


@dataclass(frozen=True)
class SlowSink:
    """Takes 50 ms for a batch, and keeps nothing."""

    name: str
    removes: bool = True

    def open(self, schema: SinkSchema) -> SlowSession:
        """Connect to nothing."""
        del schema
        return SlowSession()


@dataclass(frozen=True)
class SlowSession:
    """A connection to a store that is far away."""

    def batch_put(self, records: pa.RecordBatch) -> None:
        """Wait as for the answer of a store."""
        del records
        time.sleep(PAUSE_S)

    def batch_remove(self, keys: pa.RecordBatch) -> None:
        """The same."""
        self.batch_put(keys)

    def flush(self) -> None:
        """Do nothing: each batch was acknowledged."""

    def held(self) -> Iterator[pa.RecordBatch]:
        """Return nothing."""
        return iter(())

    def close(self) -> None:
        """Do nothing."""


def rows(start: int, stop: int) -> pa.Table:
    """Return new rows."""
    ids = np.arange(start, stop)
    texts = pa.array([f"name {key % 1000}" for key in range(stop - start)])
    return pa.table({"id": ids, "at": ids + 7, "price": ids * 0.25, "name": texts, "n": ids % 97})


def latency(place: Path, batches: int) -> dict[str, object]:
    """Time batches of one row at one slow sink and at four, in turn."""
    few, many = ([SlowSink(f"s{at}") for at in range(count)] for count in (1, SINKS))
    table = Table.create(str(place / "slow"), rows(0, 1).schema, record_key=["id"])
    spent: dict[int, list[float]] = {1: [], SINKS: []}
    for start in range(0, batches, 10):
        for sinks in (few, many):
            with table.writer("upsert", replicas=Replicas(sinks)) as writer:
                writer.write(rows(start, start + 1))  # connections are made with the first batch
                for key in range(start + 1, start + 11):
                    batch = rows(key, key + 1)
                    begun = time.perf_counter()
                    writer.write(batch)
                    spent[len(sinks)].append(time.perf_counter() - begun)
    one, four = (statistics.median(spent[count]) * 1000 for count in (1, SINKS))
    return {
        "batches": len(spent[SINKS]),
        "sink_ms": PAUSE_S * 1000,
        "one_sink_ms": round(one, 2),
        "four_sinks_ms": round(four, 2),
        "four_sinks_p90_ms": round(statistics.quantiles(spent[SINKS], n=10)[-1] * 1000, 2),
        "ratio_to_the_sink": round(four / (PAUSE_S * 1000), 3),
        "ratio_to_one_sink": round(four / one, 3),
    }


def throughput(
    place: Path, count: int, kind: TableType, batch_size: int
) -> tuple[float, float, float]:
    """Return the seconds for two tables one after the other, the second as a whole and in batches,
    and for a table and its sink.
    """
    data = rows(0, count)
    names = ("alone-1", "alone-2", "parts", "primary", "replica")
    alone_1, alone_2, parts, primary, replica = (
        Table.create(
            str(place / name), data.schema, record_key=["id"], buckets=BUCKETS, table_type=kind
        )
        for name in names
    )
    begun = time.perf_counter()
    alone_1.upsert(data)
    one_s = time.perf_counter() - begun
    alone_2.upsert(data)
    alone_s = time.perf_counter() - begun
    begun = time.perf_counter()
    for batch in data.to_batches(batch_size):
        parts.upsert(batch)
    parts_s = one_s + time.perf_counter() - begun
    replicas = Replicas([TableSink("replica", str(place / "replica"))], batch_size=batch_size)
    begun = time.perf_counter()
    with primary.writer("upsert", replicas=replicas) as writer:
        writer.write(data)
    both_s = time.perf_counter() - begun
    assert replica.scan().count() == primary.scan().count() == count
    for name in names:
        shutil.rmtree(place / name)
    return alone_s, parts_s, both_s


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    load = [round(each, 2) for each in os.getloadavg()]
    result: dict[str, object] = {"load_before": load, "cores": os.cpu_count()}
    place = Path(tempfile.mkdtemp(prefix="plait-bench-"))
    try:
        result["latency"] = latency(place, options.batches)
        found: list[dict[str, object]] = []
        for kind in KINDS:
            for parts in (1, 4, 20):
                size = max(1, options.rows // parts)
                times = [throughput(place, options.rows, kind, size) for _ in range(options.rounds)]
                alone, in_parts, both = (
                    statistics.median(each) for each in zip(*times, strict=True)
                )
                found.append(
                    {
                        "table_type": kind,
                        "rows": options.rows,
                        "batch_size": size,
                        "two_tables_s": round(alone, 3),
                        "second_in_batches_s": round(in_parts, 3),
                        "dual_write_s": round(both, 3),
                        "ratio": round(alone / both, 3),
                        "ratio_to_batches": round(in_parts / both, 3),
                    }
                )
                print(json.dumps(found[-1]), flush=True)
        result["throughput"] = found
    finally:
        shutil.rmtree(place, ignore_errors=True)
    result["load_after"] = [round(each, 2) for each in os.getloadavg()]
    print(json.dumps(result, indent=2))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
