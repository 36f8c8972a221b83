"""Runs the processes of a stress test, stops and kills them at random, and judges the table."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from plait import Table
from tests.processes.stress.judge import (
    copies_can_be_restored,
    judge,
    published_versions_are_equal,
    services_in,
)
from tests.processes.stress.work import COUNTER, ROWS, SCHEMA, Job, lay_out, publish, serve, work
from tests.services.forked import CONTEXT

PROPERTIES = {
    "checkpoint.interval": "10",
    "clean.retain.time": "0s",
    "clean.grace": "0s",
    "clean.retain.versions": "20",
    "archive.keep": "10",
    "lock.wait": "2s",
}
PUBLISHED = {"publish": "delta,iceberg", "publish.deadline": "1s"}
BEAT_S, TIMEOUT_S = 0.2, 1.0
STOP_S = 1.5
"""Longer than the heartbeat time-out: some that are stopped are taken for dead."""
PAUSE_S = 0.25
"""Between two blows, on average."""
HUSH_S = 4.0
"""So long nobody is stopped or killed while nothing lands: a slow machine gets there too."""


@dataclass
class Stress:
    """One run."""

    uri: str
    folder: Path
    """Of journals, on a local disk."""
    processes: int
    commits: int
    options: Mapping[str, object] = field(default_factory=dict)
    lock: str | None = None
    services: int = 0
    """Further processes, which compact and clean and are killed like the others."""
    publishers: int = 0
    """Further processes, which publish for other engines; one of them lays the table out anew."""
    table_type: str = "cow"
    policy: str = "key"
    seed: int = 0
    slowness: float = 1
    """Of the place: heartbeats and stops are so many times longer."""
    deadline_s: float = 540
    awaits: tuple[str, ...] = ()
    """Go on until each of these was seen once: see ``services_in``."""
    kills: int = 0
    """Go on until so many processes were killed."""
    lasts_s: float = 0
    """Go on for so long, however many commits landed."""
    disturb: Callable[[int], object] | None = None
    """Called so many times on the way with how often it was called before."""
    disturbances: int = 3

    def run(self) -> dict[str, object]:
        """Run until so many commits landed; give what was seen.

        Raises:
            AssertionError: a fault was found, or the time was up; what landed by then is judged.
        """
        table = self._create()
        started = time.monotonic()
        signals = self._storm()
        seconds = round(time.monotonic() - started, 1)
        found = judge(table, sorted(self.folder.glob("*.jsonl")))
        if self.services and Path(self.uri).is_dir():
            found["restored"] = copies_can_be_restored(self.uri, self.folder)
        if self.publishers:
            found["published"] = published_versions_are_equal(table, self.uri)
        seen = {
            "processes": self.processes,
            "seconds": seconds,
            "signals": dict(signals),
            **found,
        }
        assert self._landed() >= self.commits, f"too slow, sound as far as it came: {seen}"
        return seen

    @property
    def allow(self) -> tuple[str, ...]:
        """The addresses that processes may turn to: a lock that is a service."""
        return (self.lock,) if self.lock and "://" in self.lock else ()

    @property
    def everybody(self) -> int:
        """How many processes there are."""
        return self.processes + self.services + self.publishers

    def _create(self) -> Table:
        table = Table.create(
            self.uri,
            SCHEMA,
            record_key=["id"],
            buckets=3,
            table_type=self.table_type,
            policy=self.policy,
            lock=self.lock,
            properties={
                **PROPERTIES,
                **({"cluster.by": "value", "cluster.after": "0s"} if self.services else {}),
                **(PUBLISHED if self.publishers else {}),
                "heartbeat.interval": f"{BEAT_S * self.slowness:g}s",
                "heartbeat.timeout": f"{TIMEOUT_S * self.slowness:g}s",
            },
            storage_options=self.options or None,
        )
        counter = {"id": [COUNTER], "owner": [COUNTER], "value": [0]}
        table.upsert(pa.table(counter, schema=ROWS))
        return table

    def _storm(self) -> Counter[str]:
        """Let commits land among blows; after each disturbance as many as before it, or more."""
        chance, signals = random.Random(self.seed), Counter[str]()
        fleet = _Fleet(self)
        ends = time.monotonic() + self.lasts_s
        deadline = max(ends, time.monotonic() + self.deadline_s)

        def until(goal: int) -> None:
            while (landed := self._landed()) < goal and time.monotonic() < deadline:
                fleet.disturb(chance, signals, landed)

        share = self.commits // (self.disturbances + 1)
        try:
            fleet.start()
            for number in range(self.disturbances if self.disturb else 0):
                until(self._landed() + share)
                if self.disturb and time.monotonic() < deadline:
                    self.disturb(number)
                    signals["disturbances"] += 1
            until(max(self.commits, self._landed() + share))
            while signals["SIGKILL"] < self.kills and time.monotonic() < deadline:
                fleet.disturb(chance, signals, self._landed())
            while not self._all_seen() and time.monotonic() < deadline:
                fleet.disturb(chance, signals, self._landed())
            while time.monotonic() < ends:
                fleet.disturb(chance, signals, self._landed())
        finally:
            fleet.stop()
        return signals

    def _all_seen(self) -> bool:
        """Tell whether everything that is awaited was seen."""
        if not self.awaits:
            return True
        options = self.options or None
        table = Table.open(self.uri, storage_options=options, allow=self.allow)
        seen = services_in(table.inspect.history())
        return all(seen[name] for name in self.awaits)

    def _landed(self) -> int:
        """Count the commits that processes know to have landed."""
        bodies = (path.read_bytes() for path in self.folder.glob("*.jsonl"))
        return sum(body.count(b'{"committed"') for body in bodies)


class _Fleet:
    """Processes forked from one that has everything imported, so that a restart costs little."""

    def __init__(self, stress: Stress) -> None:
        self._stress = stress
        self._living: dict[int, multiprocessing.process.BaseProcess] = {}
        self._stopped: dict[int, float] = {}
        self._starts = 0
        self._landed, self._harmed = -1, 0.0

    def start(self) -> None:
        for number in range(self._stress.everybody):
            self._start(number)

    def _start(self, number: int) -> None:
        stress = self._stress
        self._starts += 1
        job = Job(
            stress.uri,
            dict(stress.options),
            number,
            stress.folder / f"{number}.jsonl",
            stress.seed * 100_003 + self._starts,
            allow=stress.allow,
        )
        target = work if number < stress.processes else serve
        if number >= stress.processes + stress.services:
            target = publish if number < stress.everybody - 1 else lay_out
        process = CONTEXT.Process(target=target, args=(job,), daemon=True)
        process.start()
        self._living[number] = process

    def disturb(self, chance: random.Random, signals: Counter[str], landed: int) -> None:
        """Do one thing to one process, and wait a little."""
        time.sleep(chance.uniform(0, 2 * PAUSE_S))
        now = time.monotonic()
        for number in [n for n, until in self._stopped.items() if until <= now]:
            self._send(number, signal.SIGCONT, signals)
            del self._stopped[number]
        for number, process in self._living.items():
            if process.exitcode is not None and process.exitcode != -signal.SIGKILL:
                message = f"process {number} ended by itself with {process.exitcode}"
                raise AssertionError(message)
        if landed == self._landed and now - self._harmed < HUSH_S:
            return
        self._landed, self._harmed = landed, now
        number = chance.randrange(self._stress.everybody)
        draw = chance.random()
        if draw < 0.15:
            self._kill(number, signals)
            self._start(number)
        elif draw < 0.6 and number not in self._stopped:
            self._send(number, signal.SIGSTOP, signals)
            self._stopped[number] = now + chance.expovariate(3 / (STOP_S * self._stress.slowness))

    def _send(self, number: int, kind: signal.Signals, signals: Counter[str]) -> None:
        pid = self._living[number].pid
        if pid is not None:
            os.kill(pid, kind)
            signals[kind.name] += 1

    def _kill(self, number: int, signals: Counter[str]) -> None:
        self._stopped.pop(number, None)
        self._send(number, signal.SIGKILL, signals)
        self._living[number].join()

    def stop(self) -> None:
        for process in self._living.values():
            with contextlib.suppress(ProcessLookupError):
                if process.pid is not None:
                    os.kill(process.pid, signal.SIGKILL)
            process.join()
