"""One measurement in a process of its own: ``python -m benchmarks.kafka.work SYSTEM ...``.

It prints one JSON object: the seconds from the first request to the brokers until every record is
where it is to be, and the most memory that the process had.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.kafka.columns import COLUMNS, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STEP_S = 0.02
_BUCKETS = 4


def main() -> None:
    """Measure, and print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=["limit", "append", "upsert-cow", "upsert-mor", "spark"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--place", type=Path, required=True)
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--format", default="plait")
    parser.add_argument("--batch", type=int, help="So many records in each batch of Spark.")
    parser.add_argument("--jars", default="")
    asked = parser.parse_args()
    if asked.system == "limit":
        seconds = decode_only(asked)
    elif asked.system == "spark":
        seconds = spark(asked)
    else:
        seconds = sink(asked)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"s": seconds, "peak": peak, "cpu_s": used.ru_utime + used.ru_stime}))


def decode_only(asked: argparse.Namespace) -> float:
    """Read the topic with the sink's own consumer, and decode it into Arrow; write nothing."""
    from plait import Table
    from plait.kafka.client import Clients
    from plait.kafka.records.change_sets import ChangeReader
    from plait.kafka.settings import SinkSettings
    from plait.table import handle_of

    clients = Clients(asked.bootstrap, {})
    spec = handle_of(Table.create("memory://limit", SCHEMA)).cache.known().table.spec
    reader = ChangeReader(spec, SinkSettings(asked.bootstrap, (asked.topic,)))
    began, found = time.perf_counter(), 0
    consumer = clients.consumer()
    partitions = clients.require_topic(asked.topic).partitions
    consumer.assign([clients.place(asked.topic, number, 0) for number in range(partitions)])
    while found < asked.count:
        found += reader.read(consumer.consume(10_000, 0.05)).rows.num_rows
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def sink(asked: argparse.Namespace) -> float:
    """Let one sink process write the topic into a table."""
    from plait import Table
    from plait.kafka import KafkaSink, SinkSettings

    keyed = asked.system != "append"
    table = Table.create(
        str(asked.place / "table"),
        SCHEMA,
        record_key=["id"] if keyed else [],
        buckets=_BUCKETS if keyed else None,
        table_type="mor" if asked.system == "upsert-mor" else "cow",
    )
    settings = SinkSettings(asked.bootstrap, (asked.topic,), interval_s=asked.interval)
    began, stop = time.perf_counter(), threading.Event()
    one = KafkaSink(table, settings)
    thread = threading.Thread(target=one.run, args=(stop,))
    thread.start()
    while one.counts.committed_rows < asked.count:
        time.sleep(_STEP_S)
        if not thread.is_alive():
            sys.exit("the sink ended")
    seconds = time.perf_counter() - began
    stop.set()
    thread.join()
    return seconds


def spark(asked: argparse.Namespace) -> float:
    """Let Structured Streaming do it, in batches of one size, or everything in one batch."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    session = _session(asked)
    types = SCHEMA
    target = str(asked.place / "table")
    if asked.format == "plait":
        from plait import Table

        Table.create(target, SCHEMA)
    else:
        session.sql(f"CREATE TABLE delta.`{target}` ({types}) USING delta")
    began = time.perf_counter()
    source = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", asked.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", asked.topic)
        .option("startingOffsets", "earliest")
    )
    if asked.batch:
        source = source.option("maxOffsetsPerTrigger", asked.batch)
    rows = (
        source.load()
        .select(F.from_json(F.col("value").cast("string"), types).alias("r"))
        .select("r.*")
    )
    query = (
        rows.select(*COLUMNS)
        .writeStream.format(asked.format)
        .option("application", "events")
        .option("checkpointLocation", str(asked.place / "checkpoint"))
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()
    seconds = time.perf_counter() - began
    found = session.read.format(asked.format).load(target).count()
    if found != asked.count:
        sys.exit(f"{found} of {asked.count} rows")
    session.stop()
    return seconds


def _session(asked: argparse.Namespace) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
        "spark.jars": asked.jars,
    }
    if asked.format == "delta":
        settings |= {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    if asked.format == "plait":
        import plait.spark

        session = plait.spark.session(master="local[2]", **settings)
    else:
        builder = SparkSession.builder.master("local[2]").appName(asked.format)
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.range(1000).selectExpr("sum(id)").collect()  # warm
    return session


if __name__ == "__main__":
    main()
