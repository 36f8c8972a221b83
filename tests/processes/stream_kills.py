"""A stream whose driver is killed again and again: every row once, in append and in upsert.

``python -m tests.processes.stream_kills --epochs 1000 --kills 50`` starts a real Spark driver that
runs two queries on one deterministic source, each with a checkpoint of its own: one appends to a
table without a key, one upserts into a table with one. A number of times, after a random epoch and
at a random moment of the next, everything of the driver is killed (SIGKILL), and another driver
goes on from the checkpoints. Moments are chosen so that some kills strike between publish and
Spark's own log, and some while rows are staged. In the end every value is compared with what the
source gives.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from plait import Table
from plait.model.stream import Position

ROOT = Path(__file__).resolve().parents[2]
ROWS = 20
"""Rows an epoch."""
BACK = 7
"""One row in five updates the key so far back."""
SILENCE_S = 300
"""So long may nothing happen before the run counts as stuck."""
MOMENTS = ("published", "staged", "whenever")
"""When to kill: at once after an epoch was published, once the next is staged, or at random."""
ADDED, CHANGED = "added", "changed"


@dataclass(frozen=True)
class Outcome:
    """What the run came to."""

    epochs: int
    rows: int
    kills: int
    drivers: int
    mid_epoch: int
    """Kills that left an instant behind which was not decided."""
    replayed: int
    """Kills after which Spark ran an epoch again that the table had already."""
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.epochs} epochs a table, {self.rows} rows each once, "
            f"{self.kills} kills ({self.mid_epoch} left an undecided instant, {self.replayed} "
            f"came before Spark's own log), {self.drivers} drivers, {self.seconds:.0f} s"
        )


def create(directory: Path) -> tuple[Table, Table]:
    """Make the two tables; heartbeats are short, so that the dead are seen soon."""
    properties = {"heartbeat.interval": "1s", "heartbeat.timeout": "3s"}
    return (
        Table.create(str(directory / ADDED), "value bigint", properties=properties),
        Table.create(
            str(directory / CHANGED),
            "id bigint, value bigint",
            record_key=["id"],
            ordering="value",  # of two rows of one batch: tasks have no order
            buckets=2,
            table_type="mor",
            properties=properties,
        ),
    )


def key_of(value: int) -> int:
    """Give the key under which a value is upserted."""
    return value - BACK if value % 5 == 4 and value >= BACK else value


def drive(directory: Path, epochs: int) -> None:
    """Be the driver: run both queries until both tables have so many epochs."""
    from plait.spark import session

    config = {"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "1"}
    spark = session(master="local[2,2]", **config)
    rate = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .load()
    )
    key = f"if(value % 5 = 4 and value >= {BACK}, value - {BACK}, value) AS id"
    queries = [
        rate.select("value").writeStream.option("application", "stream"),
        rate.selectExpr(key, "value").writeStream.option("operation", "upsert"),
    ]
    running = [
        query.format("plait")
        .option("checkpointLocation", str(directory / "checkpoints" / name))
        .start(str(directory / name))
        for query, name in zip(queries, (ADDED, CHANGED), strict=True)
    ]
    tables = [Table.open(str(directory / name)) for name in (ADDED, CHANGED)]
    parent = os.getppid()
    while any(query.isActive for query in running) and os.getppid() == parent:
        for query, table in zip(running, tables, strict=True):
            if (failed := query.exception()) is not None:
                raise failed
            at = _position(table)
            if query.isActive and at is not None and at.epoch >= epochs - 1:
                query.stop()
        time.sleep(0.05)
    spark.stop()


def run(directory: Path, *, epochs: int, kills: int, seed: int) -> Outcome:
    """Run drivers one after the other, kill them, and check what is there in the end."""
    chance = random.Random(seed)
    tables = create(directory)
    began = time.monotonic()
    stops = sorted(chance.sample(range(epochs - 1), kills))
    amid = replayed = 0
    for stop in stops:
        driver = _start(directory, epochs)
        _wait(driver, tables, stop)
        _wait_for(chance.choice(MOMENTS), tables, chance.random() * 1.5)
        _kill(driver)
        amid += any(table.timeline.pending for table in tables)
        replayed += any(_ahead_of_spark(directory, table) for table in tables)
    driver = _start(directory, epochs)
    _wait(driver, tables, epochs - 1)
    if driver.wait(timeout=SILENCE_S) != 0:
        raise AssertionError((directory / "driver.log").read_text()[-4000:])
    seconds = time.monotonic() - began
    done = [check(table) for table in tables]
    return Outcome(min(done), min(done) * ROWS, kills, kills + 1, amid, replayed, seconds)


def check(table: Table) -> int:
    """Compare every value with the source, and the timeline with itself; give the epochs."""
    names = list(table.site.cache.refresh().streams)
    assert len(names) == 1, f"one query, one application: {names}"
    audit = table.stream(names[0]).audit()
    assert audit.problems == (), audit.problems
    epochs = len(audit.epochs)
    assert audit.rows == epochs * ROWS
    found = table.scan().to_arrow().to_pylist()
    if "id" in table.schema.names:
        expected = {key_of(value): value for value in range(epochs * ROWS)}
        assert len(found) == len(expected), "INV-08: one row a key"
        held = {row["id"]: row["value"] for row in found}
        wrong = {key: value for key, value in held.items() if expected.get(key) != value}
        assert held.keys() == expected.keys()
        assert not wrong, f"wrong values: {dict(list(wrong.items())[:10])}"
    else:
        assert sorted(row["value"] for row in found) == list(range(epochs * ROWS))
    table.rollback()
    report = table.verify()
    assert report.problems == (), report.to_dict()
    return epochs


def _start(directory: Path, epochs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", __spec__.name, "--drive", str(directory)]
    with (directory / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--epochs", str(epochs)],
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=ROOT,
        )


def _wait(driver: subprocess.Popen[bytes], tables: tuple[Table, Table], epoch: int) -> None:
    """Wait until one of the tables has an epoch."""
    last, since = (-1, -1), time.monotonic()
    while True:
        found = [_position(table) for table in tables]
        now = tuple(-1 if at is None else at.epoch for at in found)
        if max(now) >= epoch:
            return
        if now != last:
            last, since = now, time.monotonic()
        if driver.poll() is not None or time.monotonic() - since > SILENCE_S:
            log = (tables[0].site.store.spec.uri.rsplit("/", 1)[0]) + "/driver.log"
            raise AssertionError(Path(log).read_text()[-4000:])
        time.sleep(0.01)


def _wait_for(moment: str, tables: tuple[Table, Table], delay_s: float) -> None:
    """Wait until it is time to kill: an epoch has just been published, or is being staged."""
    if moment == "whenever":
        time.sleep(delay_s)
    until = time.monotonic() + 10
    while moment == "staged" and time.monotonic() < until:
        if any(table.timeline.pending for table in tables):
            return
        time.sleep(0.01)


def _kill(driver: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)  # its own session: Python, the JVM
    driver.wait()


def _position(table: Table) -> Position | None:
    return next(iter(table.site.cache.refresh().streams.values()), None)


def _ahead_of_spark(directory: Path, table: Table) -> bool:
    """Tell whether the table has an epoch that Spark's log lacks, and so will be run again."""
    name = ADDED if "id" not in table.schema.names else CHANGED
    log = directory / "checkpoints" / name / "commits"
    logged = [int(path.name) for path in log.glob("*") if path.name.isdigit()]
    at = _position(table)
    return at is not None and at.epoch > max(logged, default=-1)


def main() -> None:
    """Run, and print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--drive", type=Path, help="be the driver of a run in this directory")
    asked = parser.parse_args()
    if asked.drive is not None:
        drive(asked.drive, asked.epochs)
        return
    with tempfile.TemporaryDirectory(prefix="plait-stream-") as directory:
        sys.stdout.write(f"seed {asked.seed}\n")
        sys.stdout.flush()
        done = run(Path(directory), epochs=asked.epochs, kills=asked.kills, seed=asked.seed)
        sys.stdout.write(f"{done}\n")


if __name__ == "__main__":
    main()
