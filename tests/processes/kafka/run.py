"""One run: records arrive while processes, brokers and the control topic are disturbed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from plait import Table
from plait.kafka.client import Clients
from tests.processes.kafka.fleet import Fleet
from tests.processes.kafka.judge import judge, missing_records
from tests.processes.kafka.records import SCHEMA, Production, Records
from tests.services.kafka import Kafka
from tests.services.process import die_with_parent

TOPIC = "events"
_DOWN_S = 1.0
"""So long a broker that was killed is away."""
_PROPERTIES = {"heartbeat.interval": "1s", "heartbeat.timeout": "10s"}
_END_S = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does; the seed says in which order."""

    records: int = 20_000
    keyed: bool = False
    table_type: str = "cow"
    lock: str | None = None
    partitions: int = 12
    processes: int = 4
    kills: int = 5
    stops: int = 1
    leaves: int = 1
    broker_kills: int = 1
    noise: float = 5
    """Damaged messages in a second on the control topic."""
    pause_s: float = 1.5
    """The mean time between two disturbances."""
    quiet_s: float = 300
    """So long may nothing arrive before the run counts as stuck."""
    seed: int = 0

    def disturbances(self) -> list[str]:
        """Return what happens, in its order: the brokers' kills evenly apart."""
        acts = ["kill"] * self.kills + ["stop"] * self.stops + ["leave"] * self.leaves
        random.Random(self.seed).shuffle(acts)
        for number in range(self.broker_kills, 0, -1):
            acts.insert(number * len(acts) // (self.broker_kills + 1), "broker")
        return acts


@dataclass
class Run:
    """A plan that is carried out on a broker, in a folder."""

    plan: Plan
    kafka: Kafka
    folder: Path
    seen: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the topic and the table."""
        plan = self.plan
        self._draw = random.Random(plan.seed)
        self._clients = Clients(self.kafka.bootstrap, {"log_level": "0"})
        self.topic = f"{TOPIC}-{self.folder.name}"
        self._clients.make_topic(self.topic, partitions=plan.partitions, settings={})
        self._table = Table.create(
            str(self.folder / "table"),
            SCHEMA,
            record_key=["id"] if plan.keyed else [],
            table_type=plan.table_type,
            lock=plan.lock,
            properties=_PROPERTIES,
        )
        uri, bootstrap = str(self.folder / "table"), self.kafka.bootstrap
        self._fleet = Fleet.of(uri, bootstrap, self.topic, self.folder, plan.processes)

    def carry_out(self) -> dict[str, object]:
        """Disturb until everything was done and has arrived; return what was seen.

        Raises:
            AssertionError: the table is wrong, or nothing arrives any more.
        """
        plan, began = self.plan, time.monotonic()
        noise = self._begin_noise()
        try:
            records = Records(plan.records, plan.keyed, plan.seed)
            producer = self._clients.producer(**{"linger.ms": 20})
            production = Production(producer, self.topic, plan.partitions, records)
            production.start()
            acts = plan.disturbances()
            done = Counter[str]()
            production.allowed = plan.records // (len(acts) + 1)
            self._await_first()
            for number, act in enumerate(acts, 1):
                production.allowed = number * plan.records // (len(acts) + 1)
                self._fleet.wait(self._draw.uniform(0, 2 * plan.pause_s))
                self._disturb(act)
                done[act] += 1
            disturbed_s = time.monotonic() - began
            production.finish()
            self._await_all()
            arrived_s = time.monotonic() - began
        finally:
            try:
                sent = self._end_noise(noise)
            finally:
                codes = self._fleet.end()
        self.seen |= {
            **judge(self._table, self.topic, records),
            "records": plan.records,
            "done": dict(done),
            "started": self._fleet.started,
            "ended_by_themselves": dict(self._fleet.ended),
            "exit_codes": codes,
            "noise": sent,
            "seconds": {
                "producing": round(production.seconds, 1),
                "disturbed": round(disturbed_s, 1),
                "arrived": round(arrived_s, 1),
                "all": round(time.monotonic() - began, 1),
            },
        }
        return self.seen

    def _disturb(self, act: str) -> None:
        if act == "broker":
            self.kafka.kill()
            self._fleet.wait(_DOWN_S)
            self.kafka.restart()
        else:
            {"kill": self._fleet.kill, "stop": self._fleet.stop, "leave": self._fleet.leave}[act](
                self._draw
            )

    def _await_first(self) -> None:
        """Wait until something is committed: kills of processes that only start show little."""
        since = time.monotonic()
        while not self._table.stream(self.topic).position:
            self._fleet.wait(0.1)
            assert time.monotonic() - since < self.plan.quiet_s, "no record arrives"

    def _await_all(self) -> None:
        """Wait until the table has every record."""
        least, since = self.plan.records + 1, time.monotonic()
        while least:
            self._fleet.wait(0.5)
            missing = missing_records(self._table, self._clients, self.topic, self.plan.partitions)
            if missing < least:
                least, since = missing, time.monotonic()
            silent_s = time.monotonic() - since
            assert silent_s < self.plan.quiet_s, f"{missing} records do not arrive"

    def _begin_noise(self) -> subprocess.Popen[bytes] | None:
        if not self.plan.noise:
            return None
        order = [sys.executable, "-m", "tests.processes.kafka.noise", self.kafka.bootstrap]
        order += [f"{self.topic}-control", "--rate", str(self.plan.noise)]
        order += ["--seed", str(self.plan.seed)]
        with (self.folder / "noise.log").open("wb") as log:
            return subprocess.Popen(
                order,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - no threads of Python's
            )

    def _end_noise(self, noise: subprocess.Popen[bytes] | None) -> object:
        if noise is None:
            return {}
        noise.terminate()
        code = noise.wait(_END_S)
        said = (self.folder / "noise.log").read_text(errors="replace")
        assert code == 0, f"the noise ended with {code}: {said[-2000:]}"
        return json.loads(said.splitlines()[-1])
