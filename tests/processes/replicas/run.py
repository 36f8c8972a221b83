"""A run: writers that are killed, and what the ledger says compared with what each sink holds."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from plait import Table
from plait.kafka.client import Clients
from plait.ports import SystemIds
from plait.replicate import Sink, SinkSchema, repair, status
from plait.txn.recovery import roll_back_failed
from tests.processes.replicas.writer import REMOVED, Plan, attempts
from tests.services.kafka import Kafka
from tests.services.postgresql import PostgreSql

SCHEMA = "id bigint not null, v bigint, payload string"
ABSENT = -1
Values = np.ndarray[tuple[int], np.dtype[np.int64]]


def planned(
    folder: Path,
    postgresql: PostgreSql,
    kafka: Kafka,
    *,
    rows: int,
    chunk: int,
    batch: int,
    writers: int,
    share: float,
    patience_s: float,
) -> Plan:
    """Make the table and its sinks, and note the plan for the writers."""
    topic = f"replicas-{SystemIds().nonce()}"
    Clients(kafka.bootstrap, {"log_level": "0"}).make_topic(topic, partitions=3, settings={})
    servers = {"database": postgresql.url, "bootstrap": kafka.bootstrap, "topic": topic}
    plan = Plan(str(folder), rows, chunk, batch, writers, share, patience_s, **servers)
    for name in ("primary", "eu", "us"):
        Table.create(f"{folder}/{name}", SCHEMA, record_key="id", buckets=4, table_type="mor")
    (folder / "plan.json").write_text(json.dumps(asdict(plan)), encoding="utf-8")
    return plan


@dataclass
class Run:
    """Rounds of writers; after each, all of them are dead and the truth is told."""

    plan: Plan
    seed: int
    round_attempts: int
    """How many attempts a round has before everybody in it is killed."""
    kill_attempts: int
    """How many attempts there are between two kills within a round."""
    seen: Counter[str] = field(default_factory=Counter)
    _living: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _random: random.Random = field(default_factory=random.Random)

    def carry_out(self) -> dict[str, object]:
        """Run until every chunk is committed; return what was seen.

        Raises:
            AssertionError: a fault was found.
        """
        self._random.seed(self.seed)
        began = time.monotonic()
        rounds = 0
        try:
            while not self._round():
                rounds += 1
                self._judge(repairs=self._random.choice(self.plan.sinks()))
        finally:
            self._kill(list(self._living))
        self._judge(repairs=None)
        for sink in self.plan.sinks():
            self._settle(sink)
        troubles = Path(self.plan.folder, "troubles")
        lines = troubles.read_text(encoding="utf-8").split("\n") if troubles.exists() else []
        return {
            "rows": Table.open(self.plan.table).scan().count(),
            "commits": Table.open(self.plan.table).version,
            "rounds": rounds + 1,
            "seconds": round(time.monotonic() - began),
            "troubles": dict(Counter(line.split()[1] for line in lines if line)),
            **self.seen,
        }

    def _round(self) -> bool:
        """Let the writers work and kill some of them; return whether all is committed."""
        for number in range(self.plan.writers):
            self._start(number)
        begun = self._begun()
        until, next_kill = begun + self.round_attempts, begun + self.kill_attempts
        while self._living and (begun := self._begun()) < until:
            time.sleep(0.05)
            for number, process in list(self._living.items()):
                if (code := process.poll()) is not None:
                    assert code == 0, f"writer {number} ended with {code}: see its log"
                    del self._living[number]
            if begun >= next_kill and self._living:
                time.sleep(self._random.uniform(0, 1))
                number = self._random.choice(list(self._living))
                self._kill([number])
                self._start(number)
                next_kill = self._begun() + self.kill_attempts
        over = not self._living
        time.sleep(self._random.uniform(0, 1))
        self._kill(list(self._living))
        time.sleep(1)  # servers may still take what the dead had sent
        return over

    def _begun(self) -> int:
        """Return how many attempts there have been, and commits."""
        return sum(len(self._attempts(number)) for number in range(self.plan.writers))

    def _start(self, number: int) -> None:
        command = [sys.executable, "-m", "tests.processes.replicas.writer", self.plan.folder]
        with Path(self.plan.folder, f"writer-{number}.log").open("ab") as log:
            self._living[number] = subprocess.Popen(
                [*command, str(number)], stdout=log, stderr=subprocess.STDOUT
            )

    def _kill(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            process = self._living.pop(number)
            process.kill()
            process.wait()
            self.seen["killed"] += 1

    def _judge(self, *, repairs: Sink | None) -> None:
        """Compare what the ledger says of each sink with what the sink holds."""
        table = Table.open(self.plan.table)
        roll_back_failed(table._handle, reason="killed", everything=True)
        said = {each.sink: each for each in status(table)}
        ours = self._values(table.scan(["id", "v"]).to_reader())
        for sink in self.plan.sinks():
            theirs = self._held(sink, table)
            found = said.get(sink.name)
            if found is None:  # nobody has come so far
                assert (ours == theirs).all()
                continue
            assert (found.behind, found.pending) == ((), ()), found.to_dict()
            on_record = {each.instant.nonce for each in found.ahead}
            wrong = np.flatnonzero(ours != theirs)
            untold = [key for key in wrong.tolist() if not self._told(key, theirs, on_record)]
            assert not untold, f"{sink.name}: nothing tells of {len(untold)} rows: {untold[:5]}"
            self.seen["rows_ahead"] += len(wrong)
            self.seen["attempts_on_record"] += len(on_record)
            assert found.in_step or on_record
        if repairs is not None:
            self._settle(repairs)

    def _told(self, key: int, theirs: Values, on_record: set[str]) -> bool:
        """Tell whether an attempt on record put the row that a sink has, or removed it."""
        first = key - key % self.plan.chunk
        writer = first // self.plan.chunk % self.plan.writers
        mine = (each for each in self._attempts(writer) if each["first"] == first and "v" in each)
        if theirs[key] == ABSENT:
            removed = key - first < REMOVED
            return removed and any(self._nonce(each) in on_record for each in mine)
        return any(each["v"] == theirs[key] and self._nonce(each) in on_record for each in mine)

    def _attempts(self, writer: int) -> list[dict[str, object]]:
        return attempts(self.plan.folder, writer)

    @staticmethod
    def _nonce(attempt: dict[str, object]) -> str:
        return str(attempt["at"]).partition("-")[2]

    def _settle(self, sink: Sink) -> None:
        """Repair a sink, and see that it is equal afterwards."""
        table = Table.open(self.plan.table)
        done = repair(table, sink)
        self.seen["repaired_rows"] += done.missing + done.different + done.extra
        assert repair(table, sink, dry_run=True).equal, sink.name
        (found,) = (each for each in status(table) if each.sink == sink.name)
        assert found.in_step, found.to_dict()

    def _held(self, sink: Sink, table: Table) -> Values:
        session = sink.open(SinkSchema.of(table._handle.cache.known().table.spec))
        try:
            return self._values(session.held())
        finally:
            session.close()

    def _values(self, batches: Iterable[pa.RecordBatch]) -> Values:
        """Return the value of each key; every key at most once."""
        values = np.full(self.plan.rows, ABSENT, np.int64)
        for batch in batches:
            keys = batch.column("id").to_numpy(zero_copy_only=False)
            assert (values[keys] == ABSENT).all(), "a key is there twice"
            values[keys] = batch.column("v").to_numpy(zero_copy_only=False)
        return values
