"""A topic into a table: ``python -m benchmarks.kafka [--count 2000000] [--rounds 3]``.

One broker and one topic of four partitions serve all. Each measurement is a process of its own, one
at a time, and the systems take turns, so that a slow moment of the machine meets all of them. The
limit is the sink's own consumer that decodes into Arrow and writes nothing. The sink commits every
five seconds. Spark takes everything in one batch, the best case for it, and then in batches of as
many records as it took in five seconds. Results: benchmarks/results/kafka.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.kafka.events import events
from benchmarks.kafka.latency import latency
from benchmarks.peers.prepare import jars_of, python_for
from plait.kafka.client import Clients
from tests.services.kafka import Kafka

RESULTS = Path(__file__).parents[1] / "results" / "kafka.json"
TOPIC, PARTITIONS = "events", 4
INTERVAL_S = 5.0
_SPARK = {"spark-plait": ("4.2", ["kafka-4.2"]), "spark-delta": ("4.1", ["kafka-4.1", "delta"])}
_BATCHES = {f"{system}-batches": system for system in _SPARK}
"""Spark in batches of what the same system, in one batch, takes in an interval."""
SYSTEMS = ("limit", "append", "upsert-cow", "upsert-mor", *_SPARK, *_BATCHES)


def produce(clients: Clients, topic: str, count: int) -> int:
    """Fill a topic; return the bytes of the values."""
    clients.make_topic(topic, partitions=PARTITIONS, settings={})
    producer, size = clients.producer(**{"linger.ms": 50}), 0
    for key, value in events(count):
        size += len(value)
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    return size


def measure(
    system: str, bootstrap: str, count: int, place: Path, batch: int | None = None
) -> dict[str, float]:
    """Run one measurement; ``batch``: of so many records in each batch of Spark."""
    shutil.rmtree(place / "run", ignore_errors=True)
    (place / "run").mkdir(parents=True)
    python, extra = sys.executable, []
    if system in _SPARK:
        version, names = _SPARK[system]
        python = str(python_for(version, place))
        jars = [str(jar) for name in names for jar in jars_of(name, place)]
        extra = ["--format", system.partition("-")[2], "--jars", ",".join(jars)]
        extra += ["--batch", str(batch)] if batch else []
    order = [
        python, "-m", "benchmarks.kafka.work", system.partition("-")[0] if extra else system,
        "--bootstrap", bootstrap, "--topic", TOPIC, "--count", str(count),
        "--place", str(place / "run"), "--interval", str(INTERVAL_S), *extra,
    ]  # fmt: skip
    ran = subprocess.run(order, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"{system}: {ran.stderr[-3000:]}")
    told: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    rate = count / told["s"]
    name = f"{system}, batches of {batch:,}" if batch else system
    print(f"{name:32} {rate:10,.0f} records/s  {told['peak'] / 2**20:6.0f} MiB", flush=True)
    return told


def _rate(runs: list[dict[str, float]], count: int) -> float:
    """Return how many records a second the fastest of some runs took."""
    return count / min(run["s"] for run in runs)


def _own(run: dict[str, float], count: int) -> dict[str, float]:
    """Return what a process of Python used; Spark works in another one."""
    return {
        "peak_mib": round(run["peak"] / 2**20),
        "cpu_us_per_record": round(run["cpu_s"] * 1e6 / count, 2),
    }


def main() -> None:
    """Measure all in turn, and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=SYSTEMS)
    parser.add_argument("--keep", type=Path, help="Where environments and jars are kept.")
    asked = parser.parse_args()
    place = (asked.keep or Path(tempfile.mkdtemp())).absolute()
    scratch = Path(tempfile.mkdtemp())
    found: dict[str, list[dict[str, float]]] = {system: [] for system in asked.only}
    with Kafka(scratch / "kafka") as kafka:
        clients = Clients(kafka.bootstrap, {})
        size = produce(clients, TOPIC, asked.count)
        for _ in range(asked.rounds):
            for system in asked.only:
                one = _BATCHES.get(system)
                batch = None
                if one is not None:
                    batch = round(_rate(found[one], asked.count) * INTERVAL_S)
                order = (kafka.bootstrap, asked.count, place)
                found[system].append(measure(one or system, *order, batch))
        waits = latency(kafka.bootstrap, scratch, rate=2_000, seconds=40, interval_s=1.0)
    print(waits)
    best = {system: min(runs, key=lambda run: run["s"]) for system, runs in found.items()}
    limit = best.get("limit", {"s": 0.0})["s"]
    RESULTS.write_text(
        json.dumps(
            {
                "records": asked.count,
                "value_bytes": round(size / asked.count),
                "rounds": asked.rounds,
                "interval_s": INTERVAL_S,
                "systems": {
                    system: {
                        "records_per_s": round(asked.count / run["s"]),
                        "median_records_per_s": round(
                            asked.count / statistics.median(r["s"] for r in found[system])
                        ),
                        "of_limit": round(limit / run["s"], 3),
                        **({} if system in (*_SPARK, *_BATCHES) else _own(run, asked.count)),
                    }
                    for system, run in best.items()
                },
                "latency_at_1_s": {name: round(value) for name, value in waits.items()},
            },
            indent=1,
        )
        + "\n"
    )
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
