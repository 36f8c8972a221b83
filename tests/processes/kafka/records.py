"""The records of a run: drawn from a seed, so that what the table must hold can be computed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer

SCHEMA = "id bigint, seq bigint, note string"
GONE = 0.05
"""So many records of a keyed table remove their key."""
RECORDS_OF_A_KEY = 4
_BATCH = 5_000
_PAUSE_S = 0.05
_QUEUED_MAX = 50_000
_FLUSH_S = 600

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Records:
    """Record ``seq`` is about one id; all records of an id are in one partition, in order."""

    count: int
    keyed: bool
    seed: int

    def drawn(self) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Return the id of each record, and whether it removes that id."""
        if not self.keyed:
            return np.arange(self.count), np.zeros(self.count, bool)
        draw = np.random.default_rng(self.seed)
        ids = draw.integers(0, max(1, self.count // RECORDS_OF_A_KEY), self.count)
        return ids, draw.random(self.count) < GONE

    def expected(self) -> tuple[Numbers, Numbers]:
        """Return the ids that must be there, ascending, and the record that each shows."""
        ids, gone = self.drawn()
        last = np.full(int(ids.max(initial=-1)) + 1, -1)
        last[ids] = np.arange(self.count)  # where an index is repeated, the last value counts
        there = np.flatnonzero(last >= 0)
        there = there[~gone[last[there]]]
        return there, last[there]

    def messages(self, partitions: int) -> Iterator[list[dict[str, object]]]:
        """Make the messages, many at a time."""
        ids, gone = self.drawn()
        for first in range(0, self.count, _BATCH):
            part = slice(first, first + _BATCH)
            some = ids[part].tolist()
            seqs = range(first, first + len(some))
            yield [
                {
                    "key": b"%d" % key,
                    "value": None
                    if removes
                    else b'{"id":%d,"seq":%d,"note":"n%d"}' % (key, seq, seq % 97),
                    "partition": key % partitions,
                }
                for seq, key, removes in zip(seqs, some, gone[part].tolist(), strict=True)
            ]


class Production(threading.Thread):
    """Produces records in the background, as many as are allowed so far."""

    def __init__(self, producer: Producer, topic: str, partitions: int, records: Records) -> None:
        super().__init__(name="production", daemon=True)
        self._producer, self._topic, self._partitions = producer, topic, partitions
        self._records = records
        self._errors: list[str] = []
        self.allowed = self.produced = 0
        self.seconds = 0.0
        """Spent with producing, without the time in which nothing was allowed."""

    def run(self) -> None:
        """Produce; ``finish`` tells what went wrong."""
        for batch in self._records.messages(self._partitions):
            while self.produced >= self.allowed:
                self._producer.poll(_PAUSE_S)
            began = time.monotonic()
            self._send(batch)
            self.produced += len(batch)
            self.seconds += time.monotonic() - began
        if self._producer.flush(_FLUSH_S):
            self._errors.append("records were not taken in time")

    def finish(self) -> None:
        """Allow everything, and wait until the broker has it."""
        self.allowed = self._records.count
        self.join()
        if self._errors:
            message = f"{len(self._errors)} records were not produced: {self._errors[:3]}"
            raise RuntimeError(message)

    def _send(self, batch: list[dict[str, object]]) -> None:
        while len(self._producer) > _QUEUED_MAX:  # a full queue would take some, out of order
            self._producer.poll(_PAUSE_S)
        taken = self._producer.produce_batch(self._topic, batch, on_delivery=self._delivered)
        if taken != len(batch):
            self._errors.append(f"{len(batch) - taken} records found no room")
        self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._errors.append(str(error))
