"""The coordinator of a sink, in a thread of the process that holds partition 0."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from plait.errors import (
    CoordinatorFencedError,
    OffsetsLostError,
    PartitionsAddedError,
    TableError,
    TopicReplacedError,
    UndoneError,
)
from plait.kafka.client import Clients, Topic
from plait.kafka.control import ControlTopic
from plait.kafka.monitoring import Counts
from plait.kafka.position import EARLIEST, find_bounds, find_place, require_there
from plait.kafka.settings import REFUSE, SinkSettings
from plait.kafka.sources import SourceOffset
from plait.model.words import WriteOperation
from plait.stream.coordinator import Coordinator
from plait.stream.messages import EncodedMessage, position_offsets
from plait.stream.transport import Endpoint
from plait.table import Table, handle_of

_log = logging.getLogger(__name__)

_LOOK_S: Final = 0.05
_TOPICS_S: Final = 10.0
"""The time between two looks whether partitions were added."""
_FAILURES_MAX: Final = 3
"""Number of failures in a row that end a sink."""
_WORKED_S: Final = 60.0
"""Seconds of work after which a failure starts a new row of failures."""
_FENCED_S: Final = 5.0
"""Seconds that a fenced coordinator waits for the group to say who leads."""
_FATAL: Final = (OffsetsLostError, PartitionsAddedError, TopicReplacedError, UndoneError)


class _StoppedError(Exception):
    """The coordinator was told to stop while it waited."""


@dataclass(frozen=True, slots=True)
class _Stoppable:
    """The coordinator's end, at which it waits no more once it is to stop.

    A checkpoint would wait for writers of this process, and they for it to stop.
    """

    end: Endpoint
    stopping: threading.Event

    def send(self, message: EncodedMessage) -> None:
        self.end.send(message)

    def receive(self, wait_s: float) -> bytes | None:
        if wait_s > 0 and self.stopping.is_set():
            raise _StoppedError
        return self.end.receive(wait_s)


@dataclass(slots=True)
class Leader:
    """Begins, ends and commits turns until it is stopped; after a failure it begins anew."""

    table: Table
    settings: SinkSettings
    clients: Clients
    control: ControlTopic
    operation: WriteOperation
    counts: Counts
    pause_s: float = 1.0
    """The pause after a failure is at least twice as long."""
    failed: Exception | None = None
    """Why it gave up; the process ends with it."""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="plait-coordinator", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; what is undecided is rolled back."""
        if self._thread is not None:
            self._stopping.set()
            self._thread.join()
            self._thread = None

    def require_alive(self) -> None:
        """Raise if it gave up.

        Raises:
            TableError: the sink cannot go on; another process may.
            Exception: what it met is a bug.
        """
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        try:
            self._lead_until_stopped()
        except Exception as error:  # noqa: BLE001 - raised by the process's own thread
            _log.exception("the coordinator gives up")
            self.failed = error

    def _lead_until_stopped(self) -> None:
        clock, failures = handle_of(self.table).ports.clock, 0
        while not self._stopping.is_set():
            commits, began = self.counts.commits, clock.monotonic()
            try:
                self._lead()
                failures = 0
            except CoordinatorFencedError as error:
                _log.warning("another process coordinates: %s", error)
                self._stopping.wait(_FENCED_S)
            except (TableError, OSError) as error:  # files are read without a translation, too
                worked = self.counts.commits > commits or clock.monotonic() > began + _WORKED_S
                failures = 1 if worked else failures + 1
                if isinstance(error, _FATAL) or failures >= _FAILURES_MAX:
                    raise
                _log.warning("an epoch failed, and is read again: %s", error)
                self.counts.failed += 1
                self._stopping.wait(self.pause_s * 2**failures)

    def _lead(self) -> None:
        """Coordinate until the topics change."""
        handle_of(self.table).require_same_table()
        topics = self._find_topics()
        self._begin_sources(topics)
        endpoint = self.control.coordinator()
        ending = _Stoppable(endpoint, self._stopping)
        stream = self.table.stream(self.settings.name)
        try:
            with stream.coordinator(ending, self.operation) as coordinator:
                self._turns(coordinator, topics)
        except _StoppedError:
            return
        finally:
            self.control.release(endpoint)

    def _turns(self, coordinator: Coordinator, topics: Mapping[str, Topic]) -> None:
        """End turn after turn, until the topics change."""
        clock = handle_of(self.table).ports.clock
        looked = began = ended = clock.monotonic()
        while not self._stopping.is_set():
            coordinator.poll(_LOOK_S)
            now = clock.monotonic()
            due = self._due(coordinator, now - ended)
            if due or now >= looked + _TOPICS_S:
                handle_of(self.table).require_same_table()
            if due:
                self._collect(coordinator)
                began, ended = now, clock.monotonic()
            if due or now >= looked + _TOPICS_S:
                looked = now
                if self._find_topics() != topics:
                    return  # nothing of another topic with this name is committed
            if due:
                self._commit(coordinator)
                self.counts.commit_s += clock.monotonic() - began

    def _due(self, coordinator: Coordinator, since_s: float) -> bool:
        """Tell whether the turn is to end. While nothing comes, it goes on."""
        held, limits = coordinator.held, self.settings
        if not held.moved:
            return False
        full = held.rows >= limits.rows_max or held.bytes >= limits.bytes_max
        return full or held.urgent or since_s >= limits.interval_s

    def _collect(self, coordinator: Coordinator) -> None:
        """End the turn; go on without writers that are late."""
        if not coordinator.checkpoint(wait_s=self.settings.patience_s):
            for name in coordinator.awaited:
                _log.warning("the commit goes on without %s, which is late", name)
                coordinator.dismiss(name)

    def _commit(self, coordinator: Coordinator) -> None:
        """Commit what was collected.

        The topics' ids were asked for after it was read, and an id does not come back. So no row
        of a topic that was made again is among it.
        """
        result = coordinator.complete()
        if result is not None:
            self.counts.commits += 1
            self.counts.committed_rows += result.stats.rows_in
            _log.info("version %s holds %s rows more", result.version, result.stats.rows_in)

    # --- where sources begin ---------------------------------------------------------------

    def _find_topics(self) -> dict[str, Topic]:
        return {name: self.clients.require_topic(name) for name in self.settings.topics}

    def _begin_sources(self, topics: Mapping[str, Topic]) -> None:
        """Give each partition an offset in the table, before a record of it is read.

        Raises:
            TopicReplacedError: a topic is not the one whose offsets the table has.
            OffsetsLostError: Kafka does not have the records that are next.
            PartitionsAddedError: new partitions may hold older rows of a key.
        """
        stream = self.table.stream(self.settings.name)
        position = stream.position
        known = position_offsets(stream.application, position)
        place = self.settings.begin if position is None else EARLIEST
        begin: dict[str, str] = {}
        for source, bounds in find_bounds(self.clients, topics):
            at = known.get(str(source))
            if at is None:
                begin[str(source)] = str(find_place(self.clients, source, bounds, place))
            else:
                require_there(source, SourceOffset.parse(at), bounds)
        if not begin:
            return
        self._require_in_order(known, begin)
        stream.seek(begin, after=position)

    def _require_in_order(self, known: Mapping[str, str], begin: Mapping[str, str]) -> None:
        """Refuse new partitions where they may bring older rows of a key than the table has."""
        spec = handle_of(self.table).cache.known().table.spec
        ordered = not spec.keyed or spec.layout.ordering is not None
        if not known or ordered or self.settings.new_partitions != REFUSE:
            return
        names = ", ".join(sorted(begin))
        message = f"partitions were added, so rows of a key may come out of order: {names}"
        hint = "give the table an ordering column, or accept it with --new-partitions read"
        raise PartitionsAddedError(message, hint=hint, sources=sorted(begin))
