"""A key-value store in this process as a sink, by the protocol alone: scripted and recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import ReplicationError, StorageError
from plait.replicate import Replicas, SinkSchema

Rows = dict[tuple[object, ...], dict[str, object]]


@dataclass
class Place:
    """What one key-value store holds, and what it was asked for."""

    rows: Rows = field(default_factory=dict)
    calls: list[tuple[str, list[object]]] = field(default_factory=list)
    """Each put and remove that it took, with the values of the last key column."""
    sessions: int = 0
    before: Callable[[str], None] | None = None
    """Runs at each open, put, remove and flush; raises what the store should fail with."""
    mutex: threading.Lock = field(default_factory=threading.Lock)


PLACES: dict[str, Place] = {}


@dataclass(frozen=True)
class KeyValueSink:
    """A place by its name, as a client of a real store knows its address."""

    name: str
    removes: bool = True

    @property
    def place(self) -> Place:
        return PLACES.setdefault(self.name, Place())

    def open(self, schema: SinkSchema) -> KeyValueSession:
        self.place.sessions += 1
        if self.place.before is not None:
            self.place.before("open")
        return KeyValueSession(self.place, schema)


@dataclass
class KeyValueSession:
    place: Place
    schema: SinkSchema

    def batch_put(self, records: pa.RecordBatch) -> None:
        self._begin("put", records)
        for row in records.to_pylist():
            key = tuple(row[name] for name in self.schema.key)
            if self._wins(row, self.place.rows.get(key)):
                self.place.rows[key] = row

    def batch_remove(self, keys: pa.RecordBatch) -> None:
        self._begin("remove", keys)
        for row in keys.to_pylist():
            self.place.rows.pop(tuple(row[name] for name in self.schema.key), None)

    def flush(self) -> None:
        if self.place.before is not None:
            self.place.before("flush")

    def held(self) -> Iterator[pa.RecordBatch]:
        rows = list(self.place.rows.values())
        if rows:
            yield pa.RecordBatch.from_pylist(rows, self.schema.arrow)

    def close(self) -> None:
        pass

    def _begin(self, call: str, rows: pa.RecordBatch) -> None:
        if self.place.before is not None:
            self.place.before(call)
        with self.place.mutex:
            self.place.calls.append((call, rows.column(self.schema.key[-1]).to_pylist()))

    def _wins(self, row: dict[str, object], old: dict[str, object] | None) -> bool:
        name = self.schema.ordering
        if name is None or old is None or old[name] is None:
            return True
        return row[name] is not None and row[name] >= old[name]  # type: ignore[operator]  # of one type


def fresh(name: str, *, removes: bool = True) -> KeyValueSink:
    """Return an empty sink."""
    PLACES.pop(name, None)
    return KeyValueSink(name, removes)


def failing(
    times: int, *, call: str = "put", error: BaseException | None = None
) -> Callable[..., None]:
    """Return a ``before`` that fails so many times."""
    left = [times]

    def before(asked: str) -> None:
        if asked == call and left[0] > 0:
            left[0] -= 1
            raise error or StorageError("the store is down", path="there")

    return before


def held_by(sink: KeyValueSink) -> dict[object, object]:
    """Return ``v`` of each row that a sink holds, by the last column of its key."""
    return {key[-1]: row["v"] for key, row in sink.place.rows.items()}


def send(t: Table, data: pa.Table, *sinks: KeyValueSink, **how: Any) -> None:
    """Upsert rows into a table, and into these sinks first; ``how`` is what ``Replicas`` takes."""
    with t.writer("upsert", replicas=Replicas(sinks, **how)) as writer:
        writer.write(data)


def failure(t: Table, data: pa.Table, *sinks: KeyValueSink, **how: Any) -> ReplicationError:
    """Return the error with which such a write fails; the table is as it was."""
    with pytest.raises(ReplicationError) as caught:
        send(t, data, *sinks, **how)
    return caught.value


def outcomes(error: ReplicationError, *facts: str) -> list[tuple[object, ...]]:
    """Return these facts of what became of the rows at each sink."""
    found: Any = error.facts["outcomes"]
    return [tuple(each[fact] for fact in facts) for each in found]
