"""A stream whose driver is killed again and again: every row once, in append and in upsert.

``python -m tests.processes.stream_kills --epochs 1000 --kills 50`` starts a real Spark driver that
runs two queries on one deterministic source, each with a checkpoint of its own: one appends to a
table without a key, one upserts into a table with one. A number of times, after a random epoch,
everything of the driver is killed (SIGKILL), and another driver goes on from the checkpoints. A
third of the kills strike between publish and Spark's own log, and a third while rows are staged:
the driver is stopped (SIGSTOP), what it has left on disk is looked at, and it goes on until that is
such a moment. The others strike at random. In the end every value is compared with what the source
gives; and a run whose kills did not strike at these moments has shown nothing, and fails.
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
from tests.services.local_spark import PATIENT, warm_workers

ROOT = Path(__file__).resolve().parents[2]
ROWS = 20
"""Rows an epoch."""
BACK = 7
"""One row in five updates the key so far back."""
SILENCE_S = 300
"""So long may nothing happen before the run counts as stuck."""
MOMENTS = ("published", "staged", "whenever")
"""When to kill: before Spark's own log has what was published, while rows are staged, at random."""
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

    config = {**PATIENT, "spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "1"}
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
    """Run drivers one after the other, kill them, and check what is there in the end.

    Raises:
        AssertionError: a row is lost or there twice, or kills did not strike when they should.
    """
    chance = random.Random(seed)
    tables = create(directory)
    began = time.monotonic()
    stops = sorted(chance.sample(range(epochs - 1), kills))
    moments = [MOMENTS[at % len(MOMENTS)] for at in range(kills)]
    chance.shuffle(moments)
    amid = replayed = 0
    for stop, moment in zip(stops, moments, strict=True):
        driver = _start(directory, epochs)
        _wait(driver, tables, stop)
        if moment == "whenever":
            time.sleep(chance.random() * 1.5)
        else:
            _stop_at(driver, directory, tables, moment)
        _signal(driver, signal.SIGKILL)
        driver.wait()
        amid += _staged(tables)
        replayed += _ahead(directory, tables)
    driver = _start(directory, epochs)
    _wait(driver, tables, epochs - 1)
    if driver.wait(timeout=SILENCE_S) != 0:
        raise AssertionError((directory / "driver.log").read_text()[-4000:])
    assert amid >= moments.count("staged"), "no kill left an undecided instant"
    assert replayed >= moments.count("published"), "no kill came before Spark's own log"
    seconds = time.monotonic() - began
    done = [check(table) for table in tables]
    return Outcome(min(done), min(done) * ROWS, kills, kills + 1, amid, replayed, seconds)


def check(table: Table) -> int:
    """Compare every value with the source, and the timeline with itself; give the epochs."""
    names = list(table._handle.cache.refresh().streams)
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
    table.maintenance.rollback()
    report = table.check.verify()
    assert report.problems == (), report.to_dict()
    return epochs


def _start(directory: Path, epochs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", __spec__.name, "--drive", str(directory)]
    with (directory / "driver.log").open("ab") as log, warm_workers():
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
            log = (tables[0]._handle.store.address.uri.rsplit("/", 1)[0]) + "/driver.log"
            raise AssertionError(Path(log).read_text()[-4000:])
        time.sleep(0.01)


def _stop_at(
    driver: subprocess.Popen[bytes], directory: Path, tables: tuple[Table, Table], moment: str
) -> None:
    """Stop the driver, and let it go on until it stands at a moment; it stays stopped there."""
    since = time.monotonic()
    while True:
        _signal(driver, signal.SIGSTOP)
        if _staged(tables) if moment == "staged" else _ahead(directory, tables):
            return
        _signal(driver, signal.SIGCONT)
        if driver.poll() is not None or time.monotonic() - since > SILENCE_S:
            raise AssertionError(moment, (directory / "driver.log").read_text()[-4000:])
        time.sleep(0.003)


def _staged(tables: tuple[Table, Table]) -> bool:
    """Tell whether an instant is undecided."""
    return any(table.inspect.timeline().pending for table in tables)


def _ahead(directory: Path, tables: tuple[Table, Table]) -> bool:
    """Tell whether a table has an epoch that Spark's own log lacks."""
    return any(_ahead_of_spark(directory, table) for table in tables)


def _signal(driver: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to all that the driver has started: Python, the JVM, workers beside it.

    Workers have a process group of their own, and only their session tells whose they are. Who is
    started meanwhile is found by the second look.
    """
    for _ in range(2):
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(int(entry.name)) == driver.pid:
                    os.kill(int(entry.name), number)


def _position(table: Table) -> Position | None:
    return next(iter(table._handle.cache.refresh().streams.values()), None)


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
