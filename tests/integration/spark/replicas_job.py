"""A dual write on executors of their own; ``test_replicas_on_executors.py`` starts it.

``python -m tests.integration.spark.replicas_job MASTER DIRECTORY speculate|kill`` says in JSON what
it saw.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import plait.spark
from plait import Table
from plait.replicate import Replicas, Retries, repair, status
from tests.integration.spark.tables import frame, make
from tests.integration.spark.watched_sink import Watched
from tests.services.local_spark import PATIENT

ROWS = 4_000
SMALL = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[3]),
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
    # Spark ends the copy that lost; a lost executor would go on with it, and so does this.
    "spark.python.task.killTimeout": "600s",
}


def equal(table: Table, sink: Watched) -> bool:
    found = table.scan(["id", "part", "rev", "name"]).to_arrow().sort_by("id").to_pylist()
    with closing(sqlite3.connect(sink.database)) as connection:
        held = connection.execute("SELECT id, part, rev, name FROM t ORDER BY id").fetchall()
    return [tuple(row.values()) for row in found] == held


def ahead(table: Table) -> list[str]:
    return [each.task for found in status(table) for each in found.ahead]


def main() -> None:
    place, speculate = Path(sys.argv[2]), sys.argv[3] == "speculate"
    more = SPECULATION if speculate else {}
    spark = plait.spark.session(master=sys.argv[1], **PATIENT, **SMALL, **more)
    table, sink = make(place / "t"), Watched("eu", str(place / "eu.db"), str(place))
    replicas = Replicas([sink], batch_size=100, retries=Retries(attempts=1))
    (place / ("linger" if speculate else "kill")).write_text("1", encoding="utf-8")
    with table.writer("upsert", replicas=replicas) as writer:
        writer.write(frame(spark, 0, ROWS, 1))
    seen: dict[str, object] = {"rows": table.scan().count(), "equal": equal(table, sink)}
    seen["ahead"] = ahead(table)
    if speculate:
        # A newer row of every key; then the copy that lost goes on with the old ones.
        with table.writer("upsert", replicas=replicas) as writer:
            writer.write(frame(spark, 0, ROWS, 2))
        seen["ahead"] = ahead(table)
        before = len(sink.notes())
        (place / "go").touch()
        while not any(what == "goes-on" for what, *_ in sink.notes()[before:]):
            time.sleep(0.05)
        time.sleep(3)
        late = [note for note in sink.notes()[before:] if note[0].startswith("put")]
        seen |= {"late": len(late), "ahead_at_last": ahead(table)}
    done = repair(table, sink.plain)
    seen |= {"repaired": done.to_dict(), "equal_at_last": equal(table, sink)}
    seen |= {"in_step": [each.in_step for each in status(table)], "notes": sink.notes()}
    sys.stdout.write(json.dumps(seen) + "\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
