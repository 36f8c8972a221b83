"""The time from producing a record until a reader of the table sees it."""

from __future__ import annotations

import json
import statistics
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks.kafka.columns import SCHEMA
from plait import Table
from plait.kafka import KafkaSink, SinkSettings
from plait.kafka.client import Clients

_LOOK_S = 0.01


def latency(
    bootstrap: str, place: Path, *, rate: int, seconds: int, interval_s: float
) -> dict[str, float]:
    """Produce so many records a second, and look at the table all the time.

    Returns:
        Milliseconds: the median, the 99th percentile and the maximum.
    """
    clients, topic = Clients(bootstrap, {}), "latency"
    clients.make_topic(topic, partitions=4, settings={})
    table = Table.create(str(place / "latency"), SCHEMA)
    sink = KafkaSink(table, SinkSettings(bootstrap, (topic,), interval_s=interval_s))
    stop = threading.Event()
    thread = threading.Thread(target=sink.run, args=(stop,))
    thread.start()
    seen: list[tuple[float, int]] = []
    reader = threading.Thread(target=_look, args=(str(place / "latency"), rate * seconds, seen))
    reader.start()
    _produce(clients, topic, rate, seconds)
    reader.join()
    stop.set()
    thread.join()
    waits = []
    opened = Table.open(str(place / "latency"))
    before = 0
    for at, version in seen:
        rows = opened.changes(before, version).to_arrow()
        produced = rows["at"].to_numpy()
        waits.append(at * 1000 - produced)
        before = version
    every = np.concatenate(waits)
    warm = every[len(every) // 10 :]  # the group forms during the first
    return {
        "median_ms": float(statistics.median(warm)),
        "p99_ms": float(np.percentile(warm, 99)),
        "max_ms": float(warm.max()),
        "records": len(warm),
    }


def _look(uri: str, count: int, seen: list[tuple[float, int]]) -> None:
    """Note when each version was there for a reader."""
    table, version, rows = Table.open(uri), 0, 0
    while rows < count:
        now = table.version
        if now != version:
            rows = table.scan().count()
            seen.append((time.time(), now))
            version = now
        time.sleep(_LOOK_S)


def _produce(clients: Clients, topic: str, rate: int, seconds: int) -> None:
    producer = clients.producer(**{"linger.ms": 5})
    began = time.perf_counter()
    for number in range(rate * seconds):
        wait = began + number / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        value = {"id": number, "at": int(time.time() * 1000), "note": "x" * 60}
        producer.produce(topic, json.dumps(value), str(number))
        producer.poll(0)
    producer.flush()
