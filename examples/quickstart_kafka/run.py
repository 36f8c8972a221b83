"""The run: a broker, a producer, three sink processes, of which the coordinator is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from examples.quickstart.place import Place
from examples.quickstart.source import extract
from examples.quickstart_kafka.events import SCHEMA, events_of, expected_of, load_flights
from examples.quickstart_kafka.live import View
from plait import StreamError, Table
from plait.cli.exits import CheckFailedError
from plait.errors import MissingDependencyError
from plait.kafka.client import Clients
from plait.kafka.status import SinkStatus, status_of
from plait.ports import Clock
from tests.services.jars import find_jars
from tests.services.kafka import Kafka

TOPIC: Final = "flights"
PARTITIONS: Final = 6
SINKS: Final = 3
_POLL_S: Final = 0.5
_WAIT_S: Final = 600.0
_KILL_AT: Final = 0.4
"""The coordinator is killed when this share of the events is in the table."""
_SETTINGS: Final = """\
# tablectl sink kafka TABLE --file sink.toml
bootstrap = "{bootstrap}"
topic = ["{topic}"]
interval = 2

[client]
"session.timeout.ms" = 6000  # the others take over the partitions of a dead process after this time
"""


def require_broker() -> None:
    """Refuse to start without the program of the broker; raise MissingDependencyError."""
    if find_jars("kafka") is None:
        message = "the Kafka broker has not been downloaded"
        raise MissingDependencyError(message, hint="make quickstart-kafka does so, with Maven")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found."""

    events: int
    rows: int
    killed: int
    """The process that was killed."""
    epochs: int
    elapsed_s: float
    problems: tuple[str, ...]


@dataclass(slots=True)
class Run:
    """One run in a directory."""

    place: Place
    view: View
    clock: Clock
    limit: int | None = None
    """The number of flights; None for all."""
    _began_s: float = field(init=False)
    _sinks: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _produced: int = 0

    def execute(self) -> Outcome:
        """Run the example; the broker and the processes end with it."""
        self._began_s = self.clock.monotonic()
        flights = load_flights(extract(self.place.workspace)).slice(0, self.limit)
        self._say("starting a broker")
        with Kafka(self.place.workspace.absolute() / "kafka") as kafka:
            clients = Clients(kafka.bootstrap, {"log_level": "0"})
            clients.make_topic(TOPIC, partitions=PARTITIONS, settings={})
            table = Table.create(
                str(self.place.table), SCHEMA, record_key=["id"], buckets=PARTITIONS
            )
            file = self.place.workspace / "sink.toml"
            file.write_text(_SETTINGS.format(bootstrap=kafka.bootstrap, topic=TOPIC))
            try:
                return self._watch(table, clients, flights, file)
            finally:
                for each in self._sinks:
                    each.kill()
                    each.wait()

    def _watch(self, table: Table, clients: Clients, flights: pa.Table, file: Path) -> Outcome:
        line = f"tablectl sink kafka {self.place.table} --file {file}"
        self._say(f"starting {SINKS} times: {line}")
        self._say(f"producing {flights.num_rows * 2:,} events")
        self._sinks += [self._start(file, number) for number in range(SINKS)]
        producer = threading.Thread(target=self._produce, args=(clients, flights), daemon=True)
        producer.start()
        total = flights.num_rows * 2
        killed, status = 0, None
        with self.view.running():
            while producer.is_alive() or status is None or status.lag != 0:
                self._require_running(killed)
                self.clock.sleep(_POLL_S)
                status = self._look(table, clients)
                done = 0 if status is None else sum(p.offset.number for p in status.partitions)
                if not killed and done >= total * _KILL_AT:
                    killed = self._kill_coordinator(status)
        self._say("all events are in the table; stopping the processes with SIGTERM")
        self._end(killed)
        self._say("comparing every value with what was produced")
        problems = [*_compare(table, expected_of(flights)), *_check(table)]
        return Outcome(
            total,
            table.scan().count(),
            killed,
            len(table.stream(TOPIC).audit().epochs),
            self.clock.monotonic() - self._began_s,
            tuple(problems),
        )

    def _start(self, file: Path, number: int) -> subprocess.Popen[bytes]:
        line = ["sink", "kafka", str(self.place.table), "--file", str(file), "--log-level", "info"]
        log = (self.place.workspace / f"sink-{number}.log").open("wb")
        with log:
            return subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", "plait.cli", *line], stdout=log, stderr=subprocess.STDOUT
            )

    def _produce(self, clients: Clients, flights: pa.Table) -> None:
        producer = clients.producer(**{"linger.ms": 50})
        for key, value in events_of(flights):
            while True:
                try:
                    producer.produce(TOPIC, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
            self._produced += 1
            producer.poll(0)
        producer.flush()

    def _look(self, table: Table, clients: Clients) -> SinkStatus | None:
        try:
            status = status_of(table, TOPIC, clients)
        except StreamError:
            return None  # no sink has begun yet
        killed = [each.pid for each in self._sinks if each.poll() is not None]
        self.view.update(status, self._produced, killed, self._now_s())
        return status

    def _kill_coordinator(self, status: SinkStatus | None) -> int:
        """Kill the process that coordinates, if one does now."""
        turn = None if status is None else status.coordinator
        if turn is None or turn.pid not in [each.pid for each in self._sinks]:
            return 0
        os.kill(turn.pid, signal.SIGKILL)
        self._say(
            f"killed process {turn.pid}, the coordinator; the others take over in a few seconds"
        )
        return turn.pid

    def _require_running(self, killed: int) -> None:
        ended = [each for each in self._sinks if each.pid != killed and each.poll() is not None]
        if ended or self._now_s() > _WAIT_S:
            what = f"sink process {ended[0].pid} ended" if ended else "it took too long"
            hint = f"see the logs in {self.place.workspace}"
            raise CheckFailedError(what, hint=hint)

    def _end(self, killed: int) -> None:
        living = [each for each in self._sinks if each.pid != killed]
        for each in living:
            each.send_signal(signal.SIGTERM)
        for each in living:
            if each.wait(_WAIT_S) != 0:
                message = f"sink process {each.pid} ended with {each.returncode}"
                raise CheckFailedError(message, hint=f"see the logs in {self.place.workspace}")

    def _say(self, text: str) -> None:
        self.view.step(text, self._now_s())

    def _now_s(self) -> float:
        return self.clock.monotonic() - self._began_s


def _compare(table: Table, expected: pa.Table) -> list[str]:
    """Compare every value with what was produced."""
    found = table.scan().to_arrow().sort_by("id").select(expected.column_names)
    expected = expected.sort_by("id").cast(found.schema)
    if found.equals(expected):
        return []
    return [f"the table has {found.num_rows:,} rows that differ from {expected.num_rows:,}"]


def _check(table: Table) -> list[str]:
    problems = [str(each) for each in table.check.verify().problems]
    return problems + [str(each) for each in table.stream(TOPIC).audit().problems]
