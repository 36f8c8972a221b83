"""A member of the consumer group: it reads what the group gives to its process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from plait.errors import UndecodableError
from plait.kafka.library import is_lost_offset, require_usable, translated
from plait.kafka.memory import queue_settings, size_of
from plait.kafka.position import OffsetRange, require_there
from plait.kafka.sources import SourceOffset, SourcePartition, by_partition
from plait.kafka.task import SinkTask
from plait.table import handle_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.05
_FEW: Final = 1_000
_SMALL: Final = 1 << 20
"""Fewer records than that wait a moment for others, and are decoded with them."""
_LOOK_S: Final = 1.0
_REFUSED_S: Final = 5.0
"""A partition in which seeks are refused for so long is begun anew."""
_JOIN_S: Final = 30.0
"""Seconds without an answer from the group after which a new client joins; doubled each time."""
_JOIN_S_MAX: Final = 600.0
_QUIET_S: Final = 10.0
"""A partition that has records and gives none for so long is begun anew; then twice as long."""
_QUIET_MAX_S: Final = 600.0
_GAPS_MAX: Final = 3
"""A partition with more real gaps, as of transactions, is looked at only where reading begins and
where the group changes."""


@dataclass(slots=True)
class _Reading:
    """Where the consumer is in a partition."""

    at: SourceOffset | None = None
    """What was asked of the consumer last; None while the partition is paused."""
    came: bool = False
    """Whether records have come since it began, or since the group changed."""
    gap: tuple[int, int] | None = None
    """The offset that was next, and the one that came instead."""
    gaps: int = 0
    """How many gaps proved to be real."""
    anew: bool = True
    """Whether it must begin by a new assignment, since a seek is refused or may be forgotten."""
    refused: float | None = None
    """When it first refused the seek that is due."""
    came_s: float | None = None
    """When records came last, or the partition was begun anew; None until it is looked at."""
    quiet_s: float = _QUIET_S
    """How long it may give no records although it has some."""


class Member:
    """Reads what the group gives to this process, and puts it into a task.

    It belongs to one thread.
    """

    def __init__(self, task: SinkTask) -> None:
        """Prepare; nobody is asked yet."""
        self._task, self._settings = task, task.settings
        self._clients, self._clock = task.clients, handle_of(task.table).ports.clock
        self._reading: dict[SourcePartition, _Reading] = {}
        self._told: dict[SourcePartition, int] = {}
        """What the group was told of offsets."""
        self._looked = -_LOOK_S
        self._unknown: float | None = None
        """Since when the group does not know it, as far as it has looked."""
        self._join_s = _JOIN_S

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set, and what was read is in the table.

        Raises:
            TableError: the sink cannot go on; another process may.
        """
        self._consumer = self._client()
        try:
            self._subscribe()
            self._read_until(stop)
        finally:
            self._consumer.close()

    def _client(self) -> Consumer:
        settings = self._settings
        assignment = {"partition.assignment.strategy": "cooperative-sticky"}
        queue = queue_settings(settings.memory)
        return self._clients.consumer(settings.name, assignment, defaults=queue)

    def _subscribe(self) -> None:
        """Ask the group for partitions."""
        self._consumer.subscribe(
            list(self._settings.topics),
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def _read_until(self, stop: threading.Event) -> None:
        poison: UndecodableError | None = None
        while poison is None and not stop.is_set():
            try:
                self._step(reading=True)
            except UndecodableError as error:  # the records before it are good, and committed first
                poison = error
        until = self._clock.monotonic() + self._settings.patience_s
        self._task.hurry()
        while not self._task.caught_up and self._clock.monotonic() < until:
            self._step(reading=False)
        self._tell_group(wait=True)
        if poison is not None:
            raise poison

    def _step(self, *, reading: bool) -> None:
        """Take what has come, and follow the sink where it wants to read elsewhere."""
        groups = by_partition(self._sound(self._drain()))
        self._task.poll()
        for source, group in groups.items() if reading else ():
            records = self._next_of(source, group)
            if records:
                self._task.put_partition(source, records)
                self._note(source)
        for source, state in list(self._reading.items()):
            self._follow(source, state)
        if self._look() and reading:
            self._require_membership()
        self._tell_group(wait=False)

    def _drain(self) -> list[Message]:
        """Return what the client has in its queue, which bounds it.

        To wait for a number of records would not: the queue fills again as it is emptied.
        """
        with translated("read"):
            most = self._settings.fetch_rows
            came = self._consumer.consume(most, 0)
            if len(came) < min(_FEW, most) and sum(map(size_of, came)) < _SMALL:  # let others come
                self._clock.sleep(_POLL_S)
                came += self._consumer.consume(most - len(came), 0)
        return came

    def _look(self) -> bool:
        """Note how far the topics go, which the client knows without asking; tell if it was due."""
        now = self._clock.monotonic()
        if now < self._looked + _LOOK_S:
            return False
        self._looked = now
        for source, counts in self._task.counts.held().items():
            counts.end = self._clients.known_end(self._consumer, *source)
            state = self._reading.get(source)
            if state is not None:
                self._require_flow(source, state, counts.end, now)
        return True

    def _require_flow(self, source: SourcePartition, state: _Reading, end: int, now: float) -> None:
        """Begin a partition anew that has records, but whose client gives none.

        What is left may also be markers of transactions, or records of an open one. So the time
        doubles each time, until records come.
        """
        waits = state.at is not None and state.at.number < end
        if state.came_s is None or not waits:
            state.came_s = now
        elif now >= state.came_s + state.quiet_s:
            _log.info("%s is read again from %s, since no record came", source, state.at)
            state.came_s, state.quiet_s = now, min(2 * state.quiet_s, _QUIET_MAX_S)
            state.at, state.anew = None, True

    def _sound(self, came: Sequence[Message]) -> list[Message]:
        """Return the records; log other events.

        Raises:
            OffsetsLostError: an offset is not there.
            StorageError: nothing more can come, as where the group or a topic is forbidden.
        """
        records: list[Message] = []
        for message in came:
            error = message.error()
            if error is None:
                records.append(message)
            elif is_lost_offset(message):
                self._require_next(SourcePartition.of(message), str(error))
            else:
                _log.warning("%s/%s: %s", message.topic(), message.partition(), error)
                require_usable(error, self._settings.name, message.topic() or "")
        return records

    def _require_next(self, source: SourcePartition, reason: str) -> None:
        """Raise if what is next of a partition is not there; else ask for it again.

        The client may still have been at another offset, from before a seek.
        """
        state = self._reading.get(source)
        if state is None:
            return
        state.anew = True
        if state.at is None:
            return
        topic = self._clients.require_topic(source.topic)
        bounds = OffsetRange(topic, *self._clients.bounds(self._consumer, *source))
        require_there(source, state.at, bounds)
        _log.warning("%s is read again from %s: %s", source, state.at, reason)
        state.at = None

    def _next_of(self, source: SourcePartition, records: list[Message]) -> list[Message]:
        """Return the records of a partition that may follow; all others are read again.

        The client may leave records out: it forgets a seek while it looks for the end of a
        partition that it has just got, and what it holds of a partition when the group changes
        once more. So the first record must be the next one. Offsets of a topic have gaps; another
        record is the next one if it comes again after a new assignment.
        """
        state = self._reading.get(source)
        if state is None or state.at is None:
            return []
        state.came_s, state.quiet_s = self._clock.monotonic(), _QUIET_S
        number = state.at.number
        later = [record for record in records if (record.offset() or 0) >= number]
        if not later:
            return []
        first = later[0].offset() or 0
        if len(later) == len(records) and first != number:
            known = state.gap == (number, first)
            if not known and (not state.came or state.gaps < _GAPS_MAX):
                _log.info("%s is read again from %s, since %s came", source, state.at, first)
                state.gap, state.at, state.anew = (number, first), None, True
                return []
            state.gaps += known
        state.came = True
        return later

    def _note(self, source: SourcePartition) -> None:
        """Remember how far a partition was read."""
        state, wanted = self._reading.get(source), self._task.wanted(source)
        if state is not None and wanted is not None and self._task.next(source) == wanted:
            state.at = wanted

    def _follow(self, source: SourcePartition, state: _Reading) -> None:
        """Read where the sink wants to: after a turn began anew, from the table's offset."""
        wanted = self._task.wanted(source)
        if wanted is None:
            if state.at is not None:
                self._pause(source, state)
        elif state.at != wanted:
            self._seek(source, state, wanted)

    def _seek(self, source: SourcePartition, state: _Reading, wanted: SourceOffset) -> None:
        """Read from an offset, unless the client refuses it for now."""
        resumed, now = state.at is None, self._clock.monotonic()
        if state.anew or (state.refused is not None and now > state.refused + _REFUSED_S):
            self._clients.begin_at(self._consumer, *source, wanted.number)
            state.anew = False
        elif not self._clients.seek(self._consumer, *source, wanted.number):
            state.refused = now if state.refused is None else state.refused
            return
        elif resumed:
            self._consumer.resume([self._clients.place(*source)])
        state.at, state.refused, state.came = wanted, None, False
        self._task.begin(source, wanted)

    def _pause(self, source: SourcePartition, state: _Reading) -> None:
        with translated(f"pause {source}"):
            self._consumer.pause([self._clients.place(*source)])
        state.at = None

    # --- the group -------------------------------------------------------------------------

    def _require_membership(self) -> None:
        """Join with a new client where the group does not get to know the present one.

        The group answers at once to somebody new. But a client may wait for minutes for an answer
        of a broker that went away while it joined. How long others then let the group wait is not
        its business.
        """
        now = self._clock.monotonic()
        if self._consumer.memberid():
            self._unknown, self._join_s = None, _JOIN_S
        elif self._unknown is None:
            self._unknown = now
        elif now >= self._unknown + self._join_s:
            _log.warning("the group is joined anew: it has not answered for %.0f s", self._join_s)
            self._unknown, self._join_s = now, min(2 * self._join_s, _JOIN_S_MAX)
            self._consumer.close()
            self._consumer = self._client()
            self._subscribe()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Take partitions on: paused, until the coordinator has told where they begin."""
        sources = [SourcePartition(each.topic, each.partition) for each in partitions]
        _log.info("assigned: %s", ", ".join(map(str, sources)))
        self._doubt()
        ends = [self._clients.end_of(*source) for source in sources]
        consumer.incremental_assign(ends)
        consumer.pause(ends)
        self._task.open(sources)
        self._reading.update({source: _Reading() for source in sources})

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Give partitions up; the coordinator hears it before another process has them."""
        sources = [SourcePartition(each.topic, each.partition) for each in partitions]
        _log.info("revoked: %s", ", ".join(map(str, sources)))
        self._doubt()
        for source in sources:
            self._reading.pop(source, None)
            self._told.pop(source, None)
        self._task.close(sources)

    def _doubt(self) -> None:
        """Look at the next records of all partitions: the client pauses them meanwhile."""
        for state in self._reading.values():
            state.came = False

    def _tell_group(self, *, wait: bool) -> None:
        """Store the table's offsets in the group, for tools that show lag; nobody reads them."""
        known = self._task.pre_commit()
        new = {source: at for source, at in known.items() if self._told.get(source) != at}
        if not new:
            return
        offsets = [self._clients.place(*source, at) for source, at in new.items()]
        try:
            with translated("store the group's offsets"):
                if wait:
                    self._consumer.commit(offsets=offsets, asynchronous=False)
                else:
                    self._consumer.commit(offsets=offsets)
        except OSError:
            _log.warning("the group's offsets were not stored", exc_info=True)
        self._told.update(new)
