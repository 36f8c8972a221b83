"""The status of a sink, from the table and the brokers: none of its processes is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from plait.errors import EpochUnknownError, StreamError
from plait.kafka.client import Clients
from plait.kafka.position import OffsetRange, find_problem
from plait.kafka.sources import SourceOffset, SourcePartition
from plait.model.decision import Decision
from plait.model.history import PendingEntry
from plait.model.plain import Plain
from plait.model.stream import Position
from plait.stream.messages import position_offsets
from plait.table import Table, handle_of
from plait.timeline.pending import load_pending
from plait.txn.refusal import find_undone_position

_NEWEST: Final = 200
"""Number of decisions from which the rate is computed."""
_MS: Final = 1000
UNDONE: Final = "a restore undid its newest commit"


@dataclass(frozen=True, slots=True)
class PartitionStatus(Plain):
    """How far a partition is in the table."""

    KEYS = "source offset=offset.number topic_id=offset.topic_id end lag problem"

    source: SourcePartition
    offset: SourceOffset
    """What is read next."""
    end: int | None = None
    """The offset after the newest record; None if no broker was asked."""
    problem: str = ""
    """Why the sink cannot go on with this partition."""

    @property
    def lag(self) -> int | None:
        """How many offsets are not in the table yet. Some of them may have no record."""
        return None if self.end is None else max(0, self.end - self.offset.number)


@dataclass(frozen=True, slots=True)
class SinkStatus(Plain):
    """How far a sink is, and who coordinates it."""

    KEYS = "sink epoch version committed=committed_ms rows_per_s lag coordinator partitions"

    sink: str
    epoch: int
    version: int
    """Version of its newest commit."""
    committed_ms: int | None
    """When that was; None if it is older than the newest 200 decisions."""
    rows_per_s: float | None
    """Over its commits among the newest 200 decisions; None if there are fewer than two."""
    coordinator: PendingEntry | None
    """The turn that is open; None if no process is at work."""
    partitions: tuple[PartitionStatus, ...]

    @property
    def lag(self) -> int | None:
        """The lag of all partitions."""
        lags = [each.lag for each in self.partitions]
        return None if None in lags else sum(lag for lag in lags if lag is not None)


def status_of(table: Table, name: str, clients: Clients | None = None) -> SinkStatus:
    """Find the status of a sink; with ``clients``, ask the brokers for the lag.

    Raises:
        StreamError: the table has no such stream.
        EpochUnknownError: the stream is not one of a Kafka sink.
        StorageError: the brokers do not answer.
    """
    position = table.stream(name).position
    known = require_offsets(table, name, position)
    commits = _newest(table, name)
    is_undone = find_undone_position(handle_of(table).cache.known(), name) is not None
    partitions = _partitions(known, clients)
    if is_undone:
        partitions = [replace(each, problem=UNDONE) for each in partitions]
    return SinkStatus(
        name,
        0 if position is None else position.epoch,
        0 if position is None else position.version,
        commits[-1].completed_ms if commits else None,
        _rate(commits),
        _coordinator(table, name),
        tuple(partitions),
    )


def require_offsets(
    table: Table, name: str, position: Position | None
) -> dict[SourcePartition, SourceOffset]:
    """Return the offsets of a sink at a position, by partition.

    Raises:
        StreamError: the table has no such stream.
        EpochUnknownError: the stream is not one of a Kafka sink.
    """
    if position is None:
        names = ", ".join(sorted(handle_of(table).cache.known().streams)) or "none"
        message = f"the table has no sink {name!r}"
        raise StreamError(message, hint=f"its streams: {names}", application=name)
    known = _offsets(name, position)
    if not known:
        message = f"stream {name!r} was not written by a Kafka sink"
        hint = f"the sinks of this table: {', '.join(sinks_of(table)) or 'none'}"
        raise EpochUnknownError(message, hint=hint, end=position.end[:80])
    return known


def sinks_of(table: Table) -> list[str]:
    """Name the streams of a table that Kafka sinks wrote."""
    streams = handle_of(table).cache.refresh().streams
    return sorted(name for name, position in streams.items() if _offsets(name, position))


def _offsets(name: str, position: Position) -> dict[SourcePartition, SourceOffset]:
    """Return the offsets of a sink; none if another kind of writer wrote the stream."""
    try:
        offsets = position_offsets(name, position)
        return {SourcePartition.parse(key): SourceOffset.parse(at) for key, at in offsets.items()}
    except EpochUnknownError:
        return {}


def _newest(table: Table, name: str) -> list[Decision]:
    """Return the commits of a sink among the newest decisions, oldest first."""
    cache = handle_of(table).cache
    head = cache.refresh().version
    decisions = cache.timeline.load_after(max(-1, head - _NEWEST), limit=_NEWEST)
    return [each for each in decisions if any(t.application == name for t in each.tokens)]


def _rate(commits: list[Decision]) -> float | None:
    """Return the rows a second between the first and the last of some commits."""
    if not commits or commits[-1].completed_ms <= commits[0].completed_ms:
        return None
    rows = sum(each.stats.rows_in for each in commits[1:])
    return round(rows * _MS / (commits[-1].completed_ms - commits[0].completed_ms), 1)


def _coordinator(table: Table, name: str) -> PendingEntry | None:
    """Return the newest open turn of a sink: its record tells the process."""
    turns = [each for each in load_pending(handle_of(table).store) if each.stream == name]
    if not turns:
        return None
    newest = max(turns, key=lambda each: (each.writer, each.instant)).instant
    return next((each for each in table.inspect.writers() if each.instant == newest), None)


def _partitions(
    known: Mapping[SourcePartition, SourceOffset], clients: Clients | None
) -> list[PartitionStatus]:
    if clients is None:
        return [PartitionStatus(source, at) for source, at in sorted(known.items())]
    topics = clients.find_topics(sorted({source.topic for source in known}))
    consumer = clients.consumer()
    found = []
    try:
        for source, at in sorted(known.items()):
            topic = topics.get(source.topic)
            if topic is None:
                found.append(PartitionStatus(source, at, None, "the topic is not there"))
                continue
            if source.partition >= topic.partitions:
                text = "the topic was made again, and has fewer partitions"
                found.append(PartitionStatus(source, at, None, text))
                continue
            bounds = OffsetRange(topic, *clients.bounds(consumer, *source))
            found.append(PartitionStatus(source, at, bounds.end, find_problem(at, bounds)))
    finally:
        consumer.close()
    return found
