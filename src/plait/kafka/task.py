"""The task of a sink: it takes records of some partitions into a table, with others."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from plait.errors import (
    OffsetGapError,
    PlanStaleError,
    StreamError,
    TransactionClosedError,
    UndecodableError,
)
from plait.kafka.client import Clients
from plait.kafka.control import ControlTopic
from plait.kafka.dead_letters import DeadLetters
from plait.kafka.leading import Leader
from plait.kafka.memory import buffer_of, pieces
from plait.kafka.monitoring import Counts, PartitionCounts
from plait.kafka.preflight import require_rights
from plait.kafka.records.change_sets import ChangeReader
from plait.kafka.settings import SinkSettings
from plait.kafka.sources import SourceOffset, SourcePartition, by_partition
from plait.model.plan import TableSpec
from plait.model.words import WriteOperation
from plait.stream.participant import Participant
from plait.stream.transport import Endpoint
from plait.table import Table, handle_of

if TYPE_CHECKING:
    from confluent_kafka import Message

_log = logging.getLogger(__name__)

_LEADS: Final = 0
"""The partition, of the first topic by name, whose holder coordinates."""
_LEFT_OUT_S: Final = 20.0
_REJOIN_S: Final = 5.0
"""Seconds to wait for the group to confirm that another process has taken a partition."""


@dataclass(slots=True)
class _Lane:
    """A source partition that this process holds."""

    source: SourcePartition
    endpoint: Endpoint
    participant: Participant
    next: SourceOffset | None = None
    """What the caller is to read next; None while that is not known."""
    lost_at: float | None = None
    """When another process took the partition; None while it is ours."""
    left_out_at: float | None = None
    """When the coordinator began to leave it out; infinite once that was logged."""


def check_sink(clients: Clients, settings: SinkSettings, spec: TableSpec) -> None:
    """Check what a sink is told, before its table is created.

    Raises:
        OptionError: the formats of values and keys cannot make rows of such a table.
        SchemaMismatchError: a column that is named is not there, or has another type.
        TableNotFoundError: a topic is not there.
        StorageError: the brokers do not answer.
    """
    ChangeReader(spec, settings)
    for topic in filter(None, (*settings.topics, settings.dead_letters)):
        clients.require_topic(topic)


class SinkTask:
    """Takes the records of some partitions into a table, together with other processes.

    The calls are those of a Kafka Connect task: ``open`` and ``close`` as partitions come and go,
    ``put`` for records, ``pre_commit`` for the offsets that are in the table. Every record of a
    partition must be put, in order, from ``wanted`` on. ``KafkaSink.run`` does all that.

    It belongs to one thread.
    """

    def __init__(self, table: Table, settings: SinkSettings) -> None:
        """Join the control topic, which is made if it is absent.

        Raises:
            AccessDeniedError: the user lacks a right on the brokers; nothing was written.
            StorageError: the brokers do not answer.
            StreamError: processes of another table are at work under the name of this sink.
            MissingDependencyError: the library is not installed.
        """
        self.table, self.settings = table, settings
        spec = handle_of(table).cache.refresh().table.spec
        self._operation: WriteOperation = "upsert" if spec.keyed else "append"
        self._spec, self._changes = spec, ChangeReader(spec, settings)
        self.clients = Clients(settings.bootstrap, settings.client)
        require_rights(self.clients, settings)
        self._letters = DeadLetters(
            self.clients, settings.dead_letters, settings.dead_letter_percent
        )
        for topic in settings.topics:  # before the control topic is made for a name that is none
            self.clients.require_topic(topic)
        self._control = ControlTopic(self.clients, settings)
        try:
            self._control.claim(handle_of(table).identity, handle_of(table).ports.ids.nonce())
        except BaseException:
            self._control.close()
            raise
        self._clock = handle_of(table).ports.clock
        self._lanes: dict[SourcePartition, _Lane] = {}
        self._leader: Leader | None = None
        self.counts = Counts(step_s=handle_of(table).ports.clock.monotonic())

    @property
    def leads(self) -> bool:
        """Whether this process coordinates, as far as it knows."""
        return self._leader is not None

    def open(self, partitions: Iterable[SourcePartition]) -> None:
        """Take partitions on."""
        for source in partitions:
            endpoint = self._control.writer()
            self._lanes[source] = _Lane(source, endpoint, self._join(source, endpoint))
            self.counts.partitions[source] = PartitionCounts()
            if self._leads_by(source):
                self._leader = Leader(
                    self.table,
                    self.settings,
                    self.clients,
                    self._control,
                    self._operation,
                    self.counts,
                )
                self._leader.start()
        self._divide_memory()

    def close(self, partitions: Iterable[SourcePartition] | None = None) -> None:
        """Give partitions up, by default all; what is not decided, others will read again."""
        going = list(self._lanes) if partitions is None else partitions
        lanes = [lane for source in going if (lane := self._lanes.pop(source, None)) is not None]
        try:
            for lane in lanes:
                self.counts.partitions.pop(lane.source, None)
                lane.participant.leave()
                self._control.release(lane.endpoint)
        finally:  # only now, so that a checkpoint need not wait for those that leave
            if self._leader is not None and any(self._leads_by(lane.source) for lane in lanes):
                self._leader.stop()
                self._leader = None
        self._divide_memory()
        self._control.flush()
        if partitions is None:
            self._control.close()
            self._letters.close()

    def _divide_memory(self) -> None:
        """Give each partition its share: rows that come in, and those of the turn before."""
        share = buffer_of(self.settings.memory, len(self._lanes))
        for lane in self._lanes.values():
            lane.participant.buffer = share

    def _leads_by(self, source: SourcePartition) -> bool:
        """Tell whether the holder of a partition coordinates."""
        return source == SourcePartition(min(self.settings.topics), _LEADS)

    def poll(self) -> None:
        """Receive the coordinator's messages.

        Raises:
            TableError: the coordinator, if it is here, gave up.
        """
        self._control.require_alive()
        if self._leader is not None:
            self._leader.require_alive()
        counts = self.counts
        counts.step_s = handle_of(self.table).ports.clock.monotonic()
        counts.leads = self.leads
        for source, lane in self._lanes.items():
            if lane.lost_at is None:
                self._hear(lane)
                self._note_left_out(lane)
            elif self._clock.monotonic() >= lane.lost_at + _REJOIN_S:
                lane.participant, lane.lost_at = self._join(lane.source, lane.endpoint), None
                self._divide_memory()
            committed = lane.participant.committed(str(source))
            counts.partitions[source].note(
                None if lane.next is None else lane.next.number,
                SourceOffset.parse(committed).number if committed else None,
                counts.step_s,
            )

    def _hear(self, lane: _Lane) -> None:
        try:
            lane.participant.poll()
        except StreamError as error:
            self._lose(lane, error)

    def _note_left_out(self, lane: _Lane) -> None:
        """Say so once if the coordinator, in another process, does not read the partition.

        Of a partition that was added, it hears a moment later.
        """
        sources, now = lane.participant.sources, self._clock.monotonic()
        if not lane.participant.ready or str(lane.source) in sources:
            lane.left_out_at = None
        elif lane.left_out_at is None:
            lane.left_out_at = now
        elif now >= lane.left_out_at + _LEFT_OUT_S:
            lane.left_out_at = math.inf
            _log.warning(
                "%s waits, since the coordinator does not read it: it reads %s, and this process"
                " was told to read the topics %s; give every process of the sink the same topics",
                lane.source,
                ", ".join(sources) or "nothing",
                ", ".join(self.settings.topics),
            )

    def _lose(self, lane: _Lane, error: StreamError) -> None:
        """Give a partition up that another process has taken.

        That happens to a process that stood still for longer than its session. The group will say
        so too, a moment later. If it does not, the partition is ours, and we come back.
        """
        _log.warning("%s", error)
        lane.participant.close()
        lane.next, lane.lost_at = None, self._clock.monotonic()

    def _join(self, source: SourcePartition, endpoint: Endpoint) -> Participant:
        stream = self.table.stream(self.settings.name)
        return stream.participant(endpoint, str(source), label=f"p{source.partition}")

    def wanted(self, source: SourcePartition) -> SourceOffset | None:
        """Return what is to be read next of a partition; None while no turn has begun."""
        lane = self._lanes[source]
        text = lane.participant.offset(str(source)) if lane.participant.ready else ""
        return SourceOffset.parse(text) if text else None

    def put(self, records: Sequence[Message]) -> None:
        """Write records, those of each partition in order.

        Records that are not next are left out: read from ``wanted`` on then. Since offsets have
        gaps, say so by ``begin`` if the first record from there on has a greater one.

        Raises:
            UndecodableError: a record cannot be decoded, and has no place to go. Those before it
                were taken: ask for a commit by ``hurry``, and ``poll`` until ``caught_up``.
            TableError: see ``poll``; or a file could not be written.
        """
        self.poll()
        for source, group in by_partition(records).items():
            lane, at = self._lanes.get(source), None
            if lane is not None:
                at = self.wanted(source)
            if lane is not None and at is not None and group[0].offset() == at.number:
                lane.next = at
            self.put_partition(source, group)

    def put_partition(self, source: SourcePartition, records: list[Message]) -> None:
        """Write records of one partition, in order; see ``put``."""
        for piece in pieces(records):
            self._put_piece(source, piece)

    def _put_piece(self, source: SourcePartition, records: list[Message]) -> None:
        """Write records that are few enough to be decoded at once."""
        lane, at = self._lanes.get(source), None
        if lane is not None:
            at = self.wanted(source)
        if lane is None or at is None or lane.next != at:
            return
        if records and (records[0].offset() or 0) < at.number:
            records = [record for record in records if (record.offset() or 0) >= at.number]
        if not records:
            return
        spec = lane.participant.spec or self._spec
        changes = self._reader(spec).read(records)
        try:
            self._letters.take(records, changes.bad)
        except UndecodableError:
            self._put_piece(source, records[: changes.bad[0].at])  # they are good, and go first
            raise
        end = SourceOffset((records[-1].offset() or 0) + 1, at.topic_id)
        try:
            lane.participant.write(
                changes.rows,
                removals=changes.removals,
                start=str(at),
                end=str(end),
                source=str(lane.source),
                schema_id=spec.schema.id,
            )
        except (OffsetGapError, PlanStaleError, TransactionClosedError):
            return  # the turn began anew meanwhile: ``wanted`` says from where
        except StreamError as error:
            self._lose(lane, error)
            return
        lane.next = end
        self.counts.records += len(records)
        self.counts.bytes += changes.bytes
        self.counts.dead_letters += len(changes.bad)

    def _reader(self, spec: TableSpec) -> ChangeReader:
        """Return a reader for the columns of a turn: somebody may have altered the table."""
        if spec.schema.id != self._spec.schema.id:
            self._changes, self._spec = ChangeReader(spec, self.settings), spec
        return self._changes

    def begin(self, source: SourcePartition, offset: SourceOffset) -> None:
        """Say that the next records of a partition begin at this offset."""
        lane = self._lanes[source]
        if lane.next is not None:
            self.counts.rewinds += 1
        lane.next = offset

    def next(self, source: SourcePartition) -> SourceOffset | None:
        """Return where the next records of a partition begin."""
        return self._lanes[source].next

    def pre_commit(self) -> dict[SourcePartition, int]:
        """Return how far each partition is in the table, for the group's own offsets."""
        found = {s: lane.participant.committed(str(s)) for s, lane in self._lanes.items()}
        return {source: SourceOffset.parse(text).number for source, text in found.items() if text}

    @property
    def caught_up(self) -> bool:
        """Whether everything that was put is in the table."""
        return all(
            lane.participant.offset(str(s)) == lane.participant.committed(str(s))
            for s, lane in self._lanes.items()
            if lane.lost_at is None
        )

    def hurry(self) -> None:
        """Ask for a commit now."""
        for lane in self._lanes.values():
            lane.participant.hurry()
