"""Two coordinators of one sink alive at once, again and again: each epoch once, one goes on.

    python -m tests.processes.kafka.claims --rounds 100 --seed 1

Each round, another part of the sink comes that believes that it holds partition 0, as after a
rebalance that the first one has not heard of. Both coordinate and write over the control topic of
a real broker, until the older one learns that it was overtaken. Prints what it saw as JSON; ends
in 1 if a row is missing or there twice, or an older coordinator went on for longer than the
heartbeat interval.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from plait import Table
from plait.kafka.client import Clients
from plait.kafka.settings import SinkSettings
from plait.kafka.sources import SourcePartition
from plait.kafka.task import SinkTask
from tests.services.kafka import Kafka

HEARTBEAT_S = 10.0
ROUND_RECORDS = 200
_READ_S = 0.02
_WAIT_S = 300


class Claimant(threading.Thread):
    """Holds a partition that no group gave to it, and coordinates."""

    def __init__(self, uri: str, settings: SinkSettings, source: SourcePartition) -> None:
        super().__init__(daemon=True)
        self._task = SinkTask(Table.open(uri), settings)
        self._source, self._over = source, threading.Event()
        self.errors: list[Exception] = []
        self.began = threading.Event()

    def run(self) -> None:
        """Read the partition into the table until ``end``."""
        try:
            self._task.open([self._source])
            self.began.set()
            self._read()
        except Exception as error:  # noqa: BLE001 - raised by ``end``
            self.errors.append(error)
        finally:
            self._task.close()

    def end(self) -> None:
        """Give the partition up."""
        self._over.set()
        self.join()
        if self.errors:
            raise self.errors[0]

    @property
    def lost(self) -> bool:
        """Whether it found that another one has the partition."""
        lane = self._task._lanes.get(self._source)
        return lane is not None and lane.lost_at is not None

    @property
    def coordinator(self) -> int | None:
        """The thread that coordinates."""
        leader = self._task._leader
        return None if leader is None or leader._thread is None else leader._thread.ident

    def _read(self) -> None:
        task, source = self._task, self._source
        consumer = task.clients.consumer()
        consumer.assign([task.clients.place(*source, 0)])
        while not self._over.is_set():
            came = consumer.consume(1_000, _READ_S)
            task.poll()
            wanted = task.wanted(source)
            if wanted is None:
                continue
            if wanted != task.next(source):
                if task.clients.seek(consumer, *source, wanted.number):
                    task.begin(source, wanted)
                continue
            task.put([message for message in came if message.error() is None])
        consumer.close()


class Fenced(logging.Handler):
    """Notes when a coordinator learned that it was overtaken: by thread."""

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[int | None, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        if "another process coordinates" in record.getMessage():
            self.at.setdefault(record.thread, time.monotonic())


@dataclass
class Claims:
    """Rounds of two coordinators on one partition."""

    kafka: Kafka
    folder: Path
    keyed: bool
    seed: int
    fenced_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the topic and the table."""
        self._draw = random.Random(self.seed)
        clients = Clients(self.kafka.bootstrap, {"log_level": "0"})
        self._name = f"claims-{self.folder.name}"
        clients.make_topic(self._name, settings={})
        self._producer, self._produced = clients.producer(), 0
        self._table = Table.create(
            str(self.folder / "claims"),
            "id bigint",
            record_key=["id"] if self.keyed else [],
            buckets=2 if self.keyed else None,
            properties={"heartbeat.interval": f"{HEARTBEAT_S:g}s", "heartbeat.timeout": "60s"},
        )

    def play(self, rounds: int) -> dict[str, object]:
        """Let claimants come, one after the other; return what was seen.

        Raises:
            AssertionError: a row is missing or there twice, or the older one did not stop.
        """
        log, heard = logging.getLogger("plait.kafka.leading"), Fenced()
        log.addHandler(heard)
        try:
            older = self.claim()
            for _ in range(rounds):
                self.produce()
                time.sleep(self._draw.uniform(0, 1.2))
                newer = self.claim()
                self._await_end_of(older, newer, heard)
                time.sleep(self._draw.uniform(0, 0.3))
                older.end()
                older = newer
            self.await_rows(older)
            older.end()
        finally:
            log.removeHandler(heard)
        slowest = max(self.fenced_s)
        assert slowest < HEARTBEAT_S, f"an older coordinator went on for {slowest:.1f} s"
        median = sorted(self.fenced_s)[rounds // 2]
        fenced = {"median": round(median, 3), "most": round(slowest, 3)}
        return {"rounds": rounds, **self.judge(), "fenced_s": fenced}

    def claim(self) -> Claimant:
        """Have one come that believes that it holds the partition."""
        settings = SinkSettings(
            self.kafka.bootstrap,
            (self._name,),
            interval_s=0.1,
            patience_s=5,
            client={"log_level": "0"},
        )
        source = SourcePartition(self._name, 0)
        claimant = Claimant(str(self.folder / "claims"), settings, source)
        claimant.start()
        assert claimant.began.wait(_WAIT_S), claimant.errors
        return claimant

    def produce(self) -> None:
        """Write some records."""
        for number in range(self._produced, self._produced + ROUND_RECORDS):
            self._producer.produce(self._name, b'{"id":%d}' % number)
        self._producer.flush()
        self._produced += ROUND_RECORDS

    def _await_end_of(self, older: Claimant, newer: Claimant, heard: Fenced) -> None:
        began, thread = time.monotonic(), older.coordinator
        while thread not in heard.at:
            both = (*older.errors, *newer.errors)
            assert not both, both
            assert time.monotonic() - began < _WAIT_S, "the older coordinator goes on"
            time.sleep(0.005)
        self.fenced_s.append(heard.at[thread] - began)
        del heard.at[thread]

    def await_rows(self, last: Claimant) -> None:
        """Wait until every record is in the table."""
        until = time.monotonic() + _WAIT_S
        while (found := self._table.scan().count()) != self._produced:
            assert not last.errors, last.errors
            assert time.monotonic() < until, f"{found} rows of {self._produced}"
            time.sleep(0.1)

    def judge(self) -> dict[str, object]:
        """Check that each record is there once, and each epoch; return counts."""
        ids = sorted(self._table.scan(["id"]).to_arrow()["id"].to_pylist())
        assert ids == list(range(self._produced)), "a row is missing, or there twice"
        audit = self._table.stream(self._name).audit()
        assert audit.problems == (), audit.problems[:3]
        numbers = [each.epoch for each in audit.epochs]
        assert numbers == list(range(len(numbers))), "an epoch is there twice"
        assert audit.rows == len(ids), "an epoch was applied twice"
        assert self._table.check.verify().problems == ()
        return {"epochs": len(numbers), "versions": self._table.version}


def main() -> int:
    """Run keyed and not keyed; 1 if a fault was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="plait-claims-") as place,
        Kafka(Path(place, "broker")) as kafka,
    ):
        for keyed in (False, True):
            folder = Path(place, "keyed" if keyed else "append")
            folder.mkdir()
            claims = Claims(kafka, folder, keyed, asked.seed)
            try:
                seen: dict[str, object] = claims.play(asked.rounds)
            except AssertionError as fault:
                seen = {"fault": str(fault)}
            sys.stdout.write(json.dumps({"keyed": keyed, "seed": asked.seed, **seen}) + "\n")
            sys.stdout.flush()
            if "fault" in seen:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
