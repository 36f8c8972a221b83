"""Reads of a table whose columns were altered, beside the same rows that were never altered.

    python benchmarks/evolved_reads.py [--rows 5000000] [--rounds 7] [--spark]

The altered table got a new name of a column, a new place, and a new column with a default, which
its files lack. The other one was written under the last columns. Types are the same in both. Whole
scans, and scans of two columns with a predicate, in turn; medians. With ``--spark`` by
``format("plait")`` too.

Results: results/evolved_reads.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from plait import Table

RESULTS = Path(__file__).with_name("results") / "evolved_reads.json"
AT_ONCE = 500_000
WHERE = "fare > 900"


def rows(first: int, count: int) -> pa.Table:
    """Make rows of the first columns."""
    chance = np.random.default_rng(first)
    ids = np.arange(first, first + count)
    words = pa.array([f"word {n}" for n in range(1_000)])
    return pa.table(
        {
            "id": ids,
            "price": chance.integers(0, 1_000, count),
            "word": words.take(pa.array(chance.integers(0, 1_000, count))),
        }
    )


def filled(place: str, count: int, *, altered: bool) -> Table:
    """Make one of the tables."""
    ddl = "id bigint, price bigint, word string"
    after = "word string, id bigint, fare bigint, extra bigint"
    table = Table.create(place, ddl if altered else after, record_key="id", buckets=8)
    with table.writer("insert") as writer:
        for first in range(0, count, AT_ONCE):
            data = rows(first, min(AT_ONCE, count - first))
            if not altered:
                data = data.rename_columns(["id", "fare", "word"])
                data = data.append_column("extra", pa.array(np.full(data.num_rows, 7)))
            writer.write(data)
    if altered:
        change = table.alter.columns().rename("price", "fare").move("word", after="")
        change.add("extra", "bigint", default=7).commit()
    return table


def arrow(table: Table) -> dict[str, Callable[[], object]]:
    """Return scans in this process."""
    return {
        "whole": lambda: sum(batch.num_rows for batch in table.scan().to_reader()),
        "part": lambda: table.scan(["extra", "fare"], where=WHERE).to_arrow().num_rows,
    }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description="Reads of altered tables.")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--spark", action="store_true")
    asked = parser.parse_args()
    results: dict[str, object] = {"rows": asked.rows}
    with tempfile.TemporaryDirectory(prefix="plait-bench-evolved-") as place:
        altered = filled(f"{place}/altered", asked.rows, altered=True)
        never = filled(f"{place}/never", asked.rows, altered=False)
        calls = {"arrow": (arrow(altered), arrow(never))}
        if asked.spark:
            import plait.spark

            spark = plait.spark.session()

            def in_spark(name: str) -> dict[str, Callable[[], object]]:
                frame = spark.read.format("plait").load(f"{place}/{name}")
                return {
                    "whole": lambda: frame.agg(dict.fromkeys(frame.columns, "max")).collect(),
                    "part": lambda: frame.where(WHERE).agg({"extra": "sum"}).collect(),
                }

            calls["spark"] = (in_spark("altered"), in_spark("never"))
        for engine, (ours, theirs) in calls.items():
            for what in ours:
                assert ours[what]() == theirs[what]() or engine == "spark"
                times: list[list[float]] = [[], []]
                for _ in range(asked.rounds):
                    for work, mine in zip((ours[what], theirs[what]), times, strict=True):
                        began = time.perf_counter()
                        work()
                        mine.append(time.perf_counter() - began)
                one, other = (statistics.median(each) for each in times)
                told = {"altered, s": one, "never altered, s": other, "ratio": one / other}
                results[f"{engine}, {what}"] = told
    text = json.dumps(results, indent=1)
    RESULTS.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
